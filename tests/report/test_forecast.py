"""A dry sweep says what it would train and how long that takes, from the times of stored runs; it trains nothing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from training_cases import whole_record

from transnormer_lib import studies, sums
from transnormer_lib.cli import main
from transnormer_lib.data import corpora
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import plan
from transnormer_lib.report import sweep as sweeping
from transnormer_lib.report.forecast import Forecast, NotebookForecast, as_text, forecast
from transnormer_lib.report.plan import Device, hours
from transnormer_lib.report.train import runs_of
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.stored_run import write_record

CHECKOUT = Path(__file__).resolve().parents[2]
DIVERGED = {"status": "diverged", "divergence": {"step": 0, "what": "loss", "layer": ""}, "steps": 0, "train_loss": []}
ONE, OTHER = "03_attention_dilution", "04_autoregressive_lm"
TINY = {"architectures": ["vanilla", "linear"], "mixtures": [], "seeds": [0, 1], "dim": 8, "heads": 2}
TINY |= {"layers": 2, "length": 8, "block_size": 4, "steps": 10, "warmup": 1, "batch_size": 2, "bands": []}
DEVICE = Device("a device", 1e9)
DATA = {"wikipedia": "as when it was trained"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A study of two rows and two seeds, and an empty store. Data and training are out of reach."""
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(corpora, "load_text_corpus", lambda *_: pytest.fail("read data"))
    monkeypatch.setattr("transnormer_lib.training.trainer.train", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setattr(sweeping, "snakemake", lambda *_: pytest.fail("started jobs"))
    monkeypatch.setattr(plan, "measure_device", lambda gpu: DEVICE)
    (tmp_path / "notebooks").mkdir()
    shutil.copy(CHECKOUT / "notebooks" / f"{ONE}.ipynb", tmp_path / "notebooks")
    shutil.copytree(CHECKOUT / "params" / "quick", tmp_path / "params" / "quick")
    (tmp_path / "params" / "quick" / f"{ONE}.yaml").write_text(yaml.safe_dump(TINY))
    return Project(tmp_path)


def ask(monkeypatch: pytest.MonkeyPatch, runs: dict[str, list[RunConfig]]) -> None:
    """Let the notebooks ask for these runs."""
    monkeypatch.setattr("transnormer_lib.report.forecast.runs_of", lambda project, preset, notebook: runs[notebook])


def store(project: Project, config: RunConfig, seconds: float, **changes: Any) -> None:
    """Put a run that took so long into the store."""
    folder = project.root / "runs" / run_id(config, DATA)
    folder.mkdir(parents=True)
    record = whole_record(config) | {"data": DATA, "seconds": seconds, "flops": 1000}
    record["provenance"]["device"] = "a measured machine"
    write_record(config, record | changes, folder)
    sums.seal(folder)


def told(found: Forecast) -> list[tuple[int, int, int, int]]:
    return [(one.runs, one.shared, one.stored, one.left) for one in found.notebooks]


def test_the_time_of_the_same_recipe_comes_first_then_that_of_the_notebook_then_the_rate(project: Project) -> None:
    softmax_0, softmax_1, linear_0, linear_1 = runs_of(project, "quick", ONE)
    assert softmax_0.model == softmax_1.model != linear_0.model == linear_1.model
    (empty,) = forecast(project, "quick", [ONE], None, DEVICE).notebooks
    assert (empty.stored, empty.left, empty.rests_on) == (0, 4, {"rate": 4})
    planned = plan.plan(project, "quick", [ONE], DEVICE)
    assert empty.hours == pytest.approx(sum(run.hours for run in planned))
    flops = {run.run: run.flops for run in planned}
    store(project, softmax_0, 7200.0, flops=flops[softmax_0.name])
    (found,) = forecast(project, "quick", [ONE], None, DEVICE).notebooks
    assert (found.stored, found.left, found.rests_on) == (1, 3, {"recipe": 1, "notebook": 2})
    per_flop = 2.0 / flops[softmax_0.name]
    assert found.hours == pytest.approx(2.0 + per_flop * (flops[linear_0.name] + flops[linear_1.name]))


def test_what_other_notebooks_took_over_the_rate_counts_where_a_notebook_has_no_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = runs_of(project, "quick", ONE)
    ask(monkeypatch, {ONE: [first], OTHER: [last]})
    (rate,) = forecast(project, "quick", [OTHER], None, DEVICE).notebooks
    store(project, first, 3 * 3600 * hours(1000.0, DEVICE))  # FLOPs of the record
    _, found = forecast(project, "quick", [ONE, OTHER], None, DEVICE).notebooks
    assert found.rests_on == {"rate": 1}
    assert found.hours == pytest.approx(3 * rate.hours)


def test_time_is_proportional_to_the_steps_of_the_same_recipe(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = runs_of(project, "quick", ONE)[0]
    longer = replace(base, name="longer", steps=3 * base.steps)
    ask(monkeypatch, {ONE: [base, longer]})
    store(project, base, 3600.0)
    assert forecast(project, "quick", [ONE], None, DEVICE).notebooks[0].hours == pytest.approx(3.0)


def test_a_run_that_was_paused_does_not_change_the_median(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    base = runs_of(project, "quick", ONE)[0]
    seeds = [replace(base, name=f"seed{seed}", seed=seed) for seed in range(4)]
    ask(monkeypatch, {ONE: seeds})
    for run, seconds in zip(seeds, (3600.0, 3600.0, 1e6), strict=False):
        store(project, run, seconds)
    assert forecast(project, "quick", [ONE], None, DEVICE).notebooks[0].hours == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes",
    [{"device": "cuda"}, DIVERGED],
    ids=["of another kind of device", "that diverged before its first step"],
)
def test_a_time_says_nothing_of_a_run(project: Project, changes: dict[str, Any]) -> None:
    first, *_ = runs_of(project, "quick", ONE)
    store(project, first, 1.0, **changes)
    (found,) = forecast(project, "quick", [ONE], None, DEVICE).notebooks
    assert (found.stored, found.left, found.rests_on) == (1, 3, {"rate": 3})


def test_each_of_several_processes_and_threads_is_a_core(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = runs_of(project, "quick", ONE)
    ask(monkeypatch, {ONE: [first, second]})
    store(project, first, 3600.0, processes=4)
    assert forecast(project, "quick", [ONE], None, DEVICE).notebooks[0].hours == pytest.approx(4.0)
    preset = project.root / "params" / "quick" / "preset.yaml"
    preset.write_text(preset.read_text().replace("threads: 1", "threads: 3"))
    assert forecast(project, "quick", [ONE], None, DEVICE).notebooks[0].hours == pytest.approx(12.0)


def test_a_run_that_two_notebooks_need_is_counted_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(project, "quick", ONE)
    ask(monkeypatch, {ONE: runs[:3], OTHER: runs[1:]})
    store(project, runs[1], 60.0)
    found = forecast(project, "quick", [ONE, OTHER], None, DEVICE)
    assert told(found) == [(3, 0, 1, 2), (3, 2, 0, 1)]
    assert "quick: 4 runs, 1 stored, 3 left, " in as_text(found, "quick", 1)


@pytest.mark.parametrize(
    ("stored", "left"),
    [((), ["base", "tuned"]), (("base",), ["tuned"]), (("tuned",), []), (("base", "tuned"), [])],
    ids=["nothing stored", "its start stored", "stored without its start", "both stored"],
)
def test_what_is_left_is_what_a_sweep_would_train(
    project: Project, monkeypatch: pytest.MonkeyPatch, stored: tuple[str, ...], left: list[str]
) -> None:
    base = replace(runs_of(project, "quick", ONE)[0], name="base")
    runs = {"base": base, "tuned": replace(base, name="tuned", start_from=base)}
    for name in stored:
        store(project, runs[name], 60.0)
    ask(monkeypatch, {ONE: [runs["tuned"]]})
    found = forecast(project, "quick", [ONE], None, DEVICE)
    assert told(found) == [(2, 0, len(stored), len(left))]

    swept: list[Any] = []
    monkeypatch.setattr(studies, "runs", lambda *_: [runs["tuned"]])
    monkeypatch.setattr("transnormer_lib.training.identity._fingerprint", lambda _: DATA["wikipedia"])
    monkeypatch.setattr(
        "transnormer_lib.training.store.RunStore.find", lambda _, config: config if config.name in stored else None
    )
    monkeypatch.setattr(sweeping, "snakemake", lambda *arguments: swept.append(arguments) or 0)
    assert sweeping.sweep(project, "quick", [ONE]) == 0
    jobs = json.loads(swept[0][1].read_text())["runs"] if swept else {}
    assert sorted(name.rpartition("-")[0] for name in jobs) == left


def test_a_pattern_chooses_the_runs_and_all_stored_runs_say_how_long_they_take(project: Project) -> None:
    first, second, *_ = runs_of(project, "quick", ONE)
    store(project, first, 3600.0)
    found = forecast(project, "quick", [ONE], second.name, DEVICE)
    assert told(found) == [(1, 0, 0, 1)]
    assert (found.notebooks[0].hours, found.notebooks[0].rests_on) == (pytest.approx(1.0), {"recipe": 1})
    with pytest.raises(UserMistake, match="run='x': no run of preset 'quick' has such a name"):
        forecast(project, "quick", [ONE], "x", DEVICE)


def test_a_run_of_other_arithmetic_is_not_stored(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, runs_of(project, "quick", ONE)[0], 3600.0)
    monkeypatch.setattr("transnormer_lib.training.numbers.TRAINING", 99)
    assert told(forecast(project, "quick", [ONE], None, DEVICE)) == [(4, 0, 0, 4)]


def test_the_text_says_what_the_hours_rest_on(project: Project) -> None:
    first, *_ = runs = runs_of(project, "quick", ONE)
    text = as_text(forecast(project, "quick", [ONE], None, DEVICE), "quick", 1)
    assert "rate: FLOPs over 50% of 1 GFLOP/s on a device" in text
    assert "stored runs took" not in text
    store(project, first, 2 * 3600 * hours(1000.0, DEVICE))  # FLOPs of the record
    found = forecast(project, "quick", [ONE], None, DEVICE)
    text = as_text(found, "quick", 2)
    assert f"quick: {len(runs)} runs, 1 stored, 3 left, " in text
    assert "recipe: median seconds per step of stored runs with the same model" in text
    assert text.endswith("on a measured machine")
    assert found.over_rate == pytest.approx(2.0)


@pytest.mark.parametrize(("gpu", "unit"), [(False, "core-hours, on 4 at a time 2 hours"), (True, "GPU-hours")])
def test_the_hours_are_of_cores_or_of_one_gpu(gpu: bool, unit: str) -> None:
    lines = [NotebookForecast("a", 2, 0, 1, 1, 5.0, {"recipe": 1}), NotebookForecast("b", 2, 1, 0, 1, 3.0, {"rate": 1})]
    text = as_text(Forecast(lines, gpu, DEVICE, 1, ["a machine"], 2.0), "p", 4).splitlines()
    assert text[3] == f"p: 3 runs, 1 stored, 2 left, 8 {unit}"
    assert text[4] == "shared: an earlier notebook needs the run too; counted there"
    assert text[-1].endswith(", times the 2 by which stored runs took longer (median of 1)")


def test_the_command_trains_nothing_and_ends_well(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "--dry-run", "--only", "03", "--root", str(project.root)]
    assert main(command) == 0
    assert "quick: 4 runs, 0 stored, 4 left, " in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["notebooks"]
    assert (line["notebook"], line["runs"], line["left"]) == (ONE, 4, 4)
    assert not (project.root / "runs").exists()
    assert not project.report_dir("quick").exists()


@pytest.mark.parametrize("more", [["--processes", "2"], ["--", "--executor", "slurm"]], ids=" ".join)
def test_what_is_for_training_alone_is_refused(
    project: Project, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--dry-run", "--root", str(project.root), *more]) == 2
    assert capsys.readouterr().err.startswith("transnormer: dry-run: trains nothing, so it takes neither")
