"""A sweep trains the runs that the store lacks, a job each, after the run that they start from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from transnormer_lib import studies
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import sweep as sweeping
from transnormer_lib.report.sweep import sweep

CHECKOUT = Path(__file__).resolve().parents[2]
STUDY = "03_attention_dilution"
TINY = {"architectures": ["vanilla", "linear"], "mixtures": ["linear"], "seeds": [0], "dim": 8, "heads": 2}
TINY |= {"layers": 2, "length": 8, "block_size": 4, "steps": 2, "warmup": 1, "batch_size": 2, "validation_windows": 2}
TINY |= {"bands": []}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The notebook of a study with tiny parameters, and an empty store; one run starts from another."""
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    (tmp_path / "notebooks").mkdir()
    shutil.copy(CHECKOUT / "notebooks" / f"{STUDY}.ipynb", tmp_path / "notebooks")
    shutil.copy(CHECKOUT / "Snakefile", tmp_path)
    shutil.copytree(CHECKOUT / "params" / "quick", tmp_path / "params" / "quick")
    (tmp_path / "params" / "quick" / f"{STUDY}.yaml").write_text(yaml.safe_dump(TINY))
    plain = studies.runs

    def with_successor(notebook: str, parameters: Any) -> Any:
        runs = plain(notebook, parameters)
        base = replace(runs[0], name="base")
        return [*runs[:1], replace(runs[0], name="tuned", start_from=base)]

    monkeypatch.setattr(studies, "runs", with_successor)
    return Project(tmp_path)


def _stored(project: Project) -> list[str]:
    return sorted(path.parent.name.rpartition("-")[0] for path in (project.root / "runs").glob("*/record.json"))


@pytest.mark.slow
def test_every_run_is_made_once_the_one_they_start_from_first(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(project, "quick", [STUDY], cores=2) == 0, (project.report_dir("quick") / "sweep.log").read_text()
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "sweep: what the runs print goes to reports/quick/sweep.log"
    assert told[-1] == "sweep: 3 of 3 runs made"
    assert _stored(project) == ["base", "causal-vanilla-seed0", "tuned"]
    plan = json.loads((project.report_dir("quick") / ".sweep" / "plan.json").read_text())
    after = {
        name.rpartition("-")[0]: [start.rpartition("-")[0] for start in run["after"]]
        for name, run in plan["runs"].items()
    }
    assert after == {"base": [], "tuned": ["base"], "causal-vanilla-seed0": []}
    assert sweep(project, "quick", [STUDY]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("sweep: 0 runs to train, into ")


def test_what_a_job_is_told_fits_the_cluster_and_the_processes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sweeping, "snakemake", lambda *arguments: seen.append(arguments) or 0)
    assert sweep(project, "quick", [STUDY], "tuned", 3, 2, ["--executor", "slurm"]) == 0
    [(_, plan_file, target, cores, extra, _, _)] = seen
    assert (target, cores, extra) == ("sweep", 3, ["--executor", "slurm"])
    plan = json.loads(plan_file.read_text())
    assert plan["launcher"].endswith("torch.distributed.run --standalone --nproc-per-node 2")
    assert plan["processes"] == 2  # cores that Snakemake keeps for each run
    assert len(plan["runs"]) == 2  # and the one it starts from
    assert plan["store"] == str((project.root / "runs").resolve())


def test_runs_made_and_time_left_are_told_when_they_change(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trains(_project: Any, plan_file: Path, *others: Any) -> int:
        meanwhile, plan = others[-1], json.loads(plan_file.read_text())
        stamps = project.root / plan["stamps"]
        stamps.mkdir()
        for name in plan["runs"]:
            (stamps / f"{name}.run").touch()
            meanwhile()
            meanwhile()
        return 0

    monkeypatch.setattr(sweeping, "snakemake", trains)
    assert sweep(project, "quick", [STUDY]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in told[2:]] == [f"sweep: {made} of 3 runs made" for made in (1, 2, 3)]
    assert [line.endswith(" s left") for line in told[2:]] == [True, True, False]


def test_a_pattern_that_no_run_matches_is_a_mistake(project: Project) -> None:
    with pytest.raises(UserMistake, match="run='x': no run of preset 'quick' has such a name"):
        sweep(project, "quick", [STUDY], "x")


@pytest.mark.usefixtures("no_real_data")
def test_a_run_without_data_costs_only_itself(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = studies.runs, []

    def with_absent(*arguments: Any) -> Any:
        first, *others = plain(*arguments)
        absent = replace(first.data, corpus="wikitext-103")
        return [replace(first, name="elsewhere", data=absent), first, *others]

    monkeypatch.setattr(studies, "runs", with_absent)
    monkeypatch.setattr(sweeping, "snakemake", lambda *arguments: seen.append(arguments) or 0)
    assert sweep(project, "quick", [STUDY]) == 1
    plan = json.loads(seen[0][1].read_text())
    assert sorted(name.rpartition("-")[0] for name in plan["runs"]) == ["base", "causal-vanilla-seed0", "tuned"]
    assert capsys.readouterr().err.startswith("sweep: elsewhere: no data: ")


def test_a_run_that_cannot_be_made_is_exit_code_1(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "snakemake", lambda *_: 1)
    assert sweep(project, "quick", [STUDY]) == 1
