"""A plan says what would be trained, without data and without training."""

import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from project_factory import study_project

from transnormer_lib.cli import main
from transnormer_lib.data import corpora
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.papers import tables
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.pipeline import Job, shares
from transnormer_lib.report.plan import Device, as_text, measure_device, plan
from transnormer_lib.report.train import runs_of
from transnormer_lib.studies.autoregressive_lm import published as autoregressive
from transnormer_lib.studies.bidirectional_lm import published as bidirectional
from transnormer_lib.studies.lra import published as arena
from transnormer_lib.training.config import Band, DataConfig, RunConfig

ROOT = Path(__file__).resolve().parents[2]
DEVICE = Device("a device", 1e12)


@pytest.fixture(autouse=True)
def no_data_no_training_no_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path))
    monkeypatch.setattr(corpora, "load_text_corpus", lambda *_: pytest.fail("read data"))
    monkeypatch.setattr("transnormer_lib.training.trainer.train", lambda *_, **__: pytest.fail("trained"))


@pytest.mark.slow
@pytest.mark.parametrize("preset", Project(ROOT).presets)
def test_every_preset_can_be_planned(preset: str) -> None:
    project = Project(ROOT)
    runs = plan(project, preset, project.notebooks, DEVICE)
    assert {run.notebook for run in runs} >= {"03_attention_dilution"}
    assert all(type(run.parameters) is int and run.parameters > 0 and run.tokens > 0 < run.flops for run in runs)
    assert preset in as_text(runs, DEVICE, preset)


MISPRINTED = {"linear": 124.70}  # Table 5 prints 124.0 for a model that differs from vanilla's in no weight


@pytest.mark.parametrize(
    ("notebook", "table", "task", "tokens"),
    [
        ("04_autoregressive_lm", "table_4", "causal", 100_000 * 128 * 512),
        ("05_bidirectional_lm", "table_5", "masked", 50_000 * 512 * 512),
    ],
)
def test_every_row_of_tables_4_and_5_is_planned_at_its_published_size(
    notebook: str, table: str, task: str, tokens: int
) -> None:
    published = autoregressive.PUBLISHED if task == "causal" else bidirectional.PUBLISHED
    runs = plan(Project(ROOT), "paper", [notebook], DEVICE)
    sizes = {re.sub(rf"^{task}-|-seed\d+$", "", run.run): round(run.parameters / 1e6, 2) for run in runs}
    for row, method in published.items():
        printed = tables.load("transnormer", table).value("params", method=method)
        assert sizes[row] == (MISPRINTED.get(row, printed) if task == "masked" else printed)
    assert {run.tokens for run in runs} == {tokens}


def test_choices_are_planned_with_all_their_candidates_and_gaps_by_their_published_number() -> None:
    runs = {run.run: run for run in plan(Project(ROOT), "paper", ["15_gau_model"], DEVICE)}
    names = {
        task: next(name for name in runs if name.startswith(f"{task}-gau-")) for task in ("c3", "chid", "cmrc2018")
    }
    assert runs[names["c3"]].tokens == -(-8 * 11_869 // 24) * 24 * 4 * 512
    assert runs[names["chid"]].tokens == -(-3 * 577_000 // 32) * 32 * 10 * 512
    assert runs[names["cmrc2018"]].tokens == -(-3 * 10_142 // 32) * 32 * 512
    per_token = {task: runs[name].flops / runs[name].tokens for task, name in names.items()}
    assert max(per_token.values()) < 1.02 * min(per_token.values())


def test_every_cell_of_tables_5_and_6_is_planned() -> None:
    glue, arena_runs = (
        {run.run for run in plan(Project(ROOT), "paper", [notebook], DEVICE)} for notebook in ("06_glue", "07_lra")
    )
    for row in bidirectional.PUBLISHED:
        for task in ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola"):
            assert any(re.fullmatch(rf"{task}-{row}-lr.*", run) for run in glue), (task, row)
    for row in arena.PUBLISHED:
        for task in arena.TASKS:
            assert f"{task}-{row}-paper-seed0" in arena_runs, (task, row)


def test_hours_halve_on_a_device_twice_as_fast() -> None:
    slow, fast = (plan(Project(ROOT), "quick", ["03_attention_dilution"], Device("d", r)) for r in (1e9, 2e9))
    assert [s.hours for s in slow] == pytest.approx([2 * f.hours for f in fast])


def test_a_run_that_two_notebooks_ask_for_is_counted_once() -> None:
    runs = plan(Project(ROOT), "quick", ["03_attention_dilution", "04_autoregressive_lm"], DEVICE)
    shared = [run for run in runs if run.shared_with]
    assert {run.shared_with for run in shared} == {"03_attention_dilution"}
    own = sum(run.hours for run in runs if run.shared_with is None)
    total = re.search(r"quick: (\d+) runs, \S+ FLOPs, (\S+) hours", as_text(runs, DEVICE, "quick"))
    assert total is not None
    assert int(total[1]) == len(runs) - len(shared)
    assert float(total[2]) == pytest.approx(own, rel=0.01)


def _a_run() -> RunConfig:
    return runs_of(Project(ROOT), "quick", "03_attention_dilution")[0]


def _runs(monkeypatch: pytest.MonkeyPatch, runs: dict[str, list[RunConfig]]) -> None:
    monkeypatch.setattr("transnormer_lib.report.plan.runs_of", lambda project, preset, notebook: runs[notebook])


def test_the_run_that_others_start_from_is_planned_once_and_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    base, other = (replace(_a_run(), name="base", seed=seed) for seed in (0, 1))
    banded = replace(base, bands=(Band(4, 0.0, 9.0),))
    tuned = [replace(base, name=name, start_from=base) for name in ("one", "two")]
    _runs(monkeypatch, {"05": [other, banded], "06": [*tuned, replace(tuned[0], name="three", start_from=other)]})
    listed = [(run.notebook, run.run, run.shared_with) for run in plan(Project(ROOT), "quick", ["06"], DEVICE)]
    assert listed == [("06", run, None) for run in ("base", "one", "two", "base", "three")]
    listed = [(run.notebook, run.run, run.shared_with) for run in plan(Project(ROOT), "quick", ["05", "06"], DEVICE)]
    assert listed[:2] == [("05", "base", None)] * 2
    assert [shared for _, _, shared in listed[2:]] == ["05", None, None, "05", None]


def test_a_pair_is_two_sequences_and_the_text_says_that_they_may_be_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    base = _a_run()
    data = DataConfig(task="classify", task_name="acceptability", length=32, batch_size=4)
    model = replace(base.model, kind="encoder")
    one, two = (
        replace(base, model=model, data=data, head=ClassifierHead(classes=2, pairs=pairs), steps=100, bands=())
        for pairs in (False, True)
    )
    _runs(monkeypatch, {"06": [one, two]})
    one, two = plan(Project(ROOT), "quick", ["06"], DEVICE)
    assert (one.tokens, two.tokens) == (100 * 4 * 32, 2 * 100 * 4 * 32)
    assert "tokens, FLOPs: upper limits" in as_text([one, two], DEVICE, "quick")


def test_the_command_prints_json_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "quick", "--only", "03", "--json", "--root", str(ROOT)]) == 0
    runs: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert all(isinstance(run["parameters"], int) and run["hours"] > 0 for run in runs)


def test_parameters_that_make_no_run_are_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    from transnormer_lib.report import parameters

    good = parameters.resolve
    monkeypatch.setattr(parameters, "resolve", lambda *a: good(*a) | {"heads": 7})
    with pytest.raises(UserMistake, match="03_attention_dilution: heads=7: must divide dim=64"):
        plan(Project(ROOT), "quick", ["03_attention_dilution"], DEVICE)


@pytest.mark.parametrize(
    ("notebook", "values", "rule"),
    [
        ("14_gau_details", "s: 7", "s=7: must be even with rope=True"),
        ("14_gau_details", "rows: [banana]", "normaliser='banana': must be one of 'softmax_plus'"),
        ("15_gau_model", "dim: 2", "head_dim=1: must be even with rotary='rope'"),
        ("13_speech_ctc", "evaluations: 1000000000", "evaluations=1000000000: must be at most 100000"),
    ],
    ids=["an-odd-width", "an-unknown-row", "an-odd-head", "endless-evaluations"],
)
@pytest.mark.parametrize("command", ["plan", "sweep --dry-run", "train --run no-such-run", "runs export records.gz"])
def test_parameters_that_make_no_run_are_one_line_and_exit_code_two(
    command: str, notebook: str, values: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = study_project(tmp_path, notebook)
    project.values_path("quick", notebook).write_text(values)
    assert main([*command.split(), "--root", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"transnormer: preset 'quick': {notebook}: {rule}")
    assert error.count("\n") == 1
    assert [share.runs for share in shares(project, "quick", [Job(notebook, "digest", None)])[0].values()] == []


@pytest.mark.parametrize("command", ["plan", "sweep --dry-run"])
def test_a_model_that_is_too_large_for_this_machine_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def count(model: Any) -> int:
        raise RuntimeError("can't allocate memory")

    project = study_project(tmp_path)
    monkeypatch.setattr("transnormer_lib.training.setup.count_parameters", count)
    assert runs_of(project, "quick", project.notebooks[0])  # which this machine may train none of
    assert main([*command.split(), "--root", str(tmp_path)]) == 2
    assert re.fullmatch(r"transnormer: model\.dim=\d+: .* exceed this machine's memory\n", capsys.readouterr().err)


def test_the_table_shows_every_run_with_its_model() -> None:
    runs = plan(Project(ROOT), "paper", ["04_autoregressive_lm"], DEVICE)
    lines = {line.split()[0]: line for line in as_text(runs, DEVICE, "paper").splitlines()}
    for run in runs:
        assert f"{run.parameters:,}" in lines[run.run]
    assert "decoder 6 x 512, 8 heads: 3 diag, 3 norm" in lines["causal-transnormer-t2-seed0"]
    assert "decoder 6 x 512, 8 heads: 6 softmax" in lines["causal-vanilla-seed0"]


def test_the_rate_of_a_device_is_that_of_its_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.accumulate([0.0, 0.0, 0.1, 0.0, 0.02, 0.0, 0.2])  # products of 0.1, 0.02 and 0.2 seconds
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    assert measure_device(gpu=False).rate == pytest.approx(2 * 1024**3 / 0.02)
