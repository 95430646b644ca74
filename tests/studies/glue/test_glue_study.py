"""The runs behind Table 5, and what their scores say."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from transnormer_lib import studies
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.bidirectional_lm.published import PUBLISHED
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.glue import results as found
from transnormer_lib.studies.glue import runs as study
from transnormer_lib.studies.glue.average import COLUMNS
from transnormer_lib.studies.glue.results import Results, TunedRun
from transnormer_lib.studies.glue.runs import Cell
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunFailed

ROOT = Path(__file__).resolve().parents[3]
PROJECT = Project(ROOT)
BASE = "05_bidirectional_lm"
SAMPLE = yaml.safe_load((ROOT / "tests/report/samples/06_glue.yaml").read_text())
SMALL = read(
    study.Parameters,
    {"base_rates": {}, "base_rotary": "none", "base_positions": "learned", "base_longest": 0, "length": 0, **SAMPLE},
)
EMBEDDED = replace(
    SMALL,
    tasks=("letter-order",),
    train_examples={"letter-order": 32},
    architectures=("transnormer-t2",),
    rates=(1e-3,),
    encoders=replace(SMALL.encoders, corpus="wikipedia", vocabulary="bytes", length=16),
)


def parameters_of(preset: str) -> study.Parameters:
    return read(study.Parameters, resolve(PROJECT, preset, "06_glue"))


def fake(row: str, seed: int, rate: float, *scores: float, task: str = "cola", start: bool = True) -> TunedRun:
    """A run with these validation scores, as fractions; without any it diverged."""
    metric = found.columns([task])[0].metric
    validation = [{"step": step, metric: value} for step, value in enumerate(scores)]
    record = {"status": "finished" if scores else "diverged", "validation": validation, "at_end": {}}
    best = max(validation, key=lambda result: result[metric]) if validation else None
    run = cast(Run, SimpleNamespace(record=record, validation=best))
    return found.tuned(Cell(task, row, start, seed, rate), run)


def fake_results(*measured: TunedRun) -> Results:
    tasks = dict.fromkeys(m.cell.task for m in measured)
    data = {task: cast(Any, SimpleNamespace(name=task, absent={}, stand_in=False)) for task in tasks}
    return Results(list(measured), data, {})


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_every_encoder_is_one_that_notebook_05_trains(preset: str) -> None:
    base = studies.runs(BASE, resolve(PROJECT, preset, BASE))
    trained = {config.name: replace(config, rate_search=()) for config in base}
    for config in study.runs(parameters_of(preset)):
        encoder = config if config.head is None else config.start_from
        assert encoder is None or trained.get(encoder.name) == encoder


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_encoders_come_before_the_runs_that_start_from_them(preset: str) -> None:
    runs = study.runs(parameters_of(preset))
    encoders = [config for config in runs if config.head is None]
    assert runs[: len(encoders)] == encoders
    assert all(config.start_from in encoders for config in runs if config.start_from)
    assert all(config.seed == config.start_from.seed for config in runs if config.start_from)


def test_a_row_from_scratch_differs_in_nothing_but_its_start() -> None:
    fine = study.run(Cell("cola", "transnormer-t2", True, 0, 1e-4), SMALL)
    scratch = study.run(Cell("cola", "transnormer-t2", False, 0, 1e-4), SMALL)
    assert fine.start_from is not None
    assert replace(fine, start_from=None, name=scratch.name) == scratch


def test_the_papers_scale_has_every_row_task_and_rate_of_the_paper() -> None:
    runs = [config for config in study.runs(parameters_of("paper")) if config.head]
    rates = {config.optimizer.learning_rate for config in runs}
    assert rates == {1e-5, 3e-5, 6e-5, 1e-4}
    rows = set(parameters_of("paper").rows())
    assert rows >= set(PUBLISHED)
    assert len(runs) == 6 * len(rows) * 5 * len(rates)
    (cola,) = {config.steps for config in runs if config.data.task_name == "cola"}
    assert cola == math.ceil(3 * 8551 / 32)


def test_pairs_are_joined_and_single_sentences_are_not() -> None:
    assert study.data_config("mrpc", SMALL).joined
    assert not study.data_config("cola", SMALL).joined
    assert not study.data_config("mrpc", replace(SMALL, joined=False)).joined


def test_a_limit_holds_for_both_sets_of_mnli() -> None:
    limit = study.data_config("mnli", SMALL).limit
    assert {limit[name] for name in ("validation", "validation_matched", "validation_mismatched")} == {48}


def test_what_cannot_be_a_grid_is_refused() -> None:
    changes: dict[str, dict[str, Any]] = {
        r"tasks=\['cola', 'cola'\]: must differ": {"tasks": ("cola", "cola")},
        "rates=.*: must differ": {"rates": (1e-4, 1e-4)},
        "from_scratch: 'flash': must be one of linear, transnormer-t2": {"from_scratch": ("flash",)},
        "train_examples=.*: must say how many of 'spelling' are read": {"tasks": ("spelling",)},
    }
    for message, change in changes.items():
        with pytest.raises(ValueError, match=message):
            study.runs(replace(SMALL, **change))


def test_the_best_rate_counts_seed_by_seed() -> None:
    results = fake_results(
        fake("linear", 0, 1e-4, 0.1, 0.3), fake("linear", 0, 1e-5, 0.5, 0.4),
        fake("linear", 1, 1e-4, 0.6), fake("linear", 1, 1e-5),
    )  # fmt: skip
    (column,) = results.columns
    assert results.scores(column) == {"linear": [50.0, 60.0]}
    assert [m.cell.rate for m in results.chosen("cola")] == [1e-5, 1e-4]


def test_a_row_from_scratch_is_a_row_of_its_own() -> None:
    results = fake_results(fake("linear", 0, 1e-4, 0.5), fake("linear", 0, 1e-4, 0.2, start=False))
    assert results.scores(results.columns[0]) == {"linear": [50.0], study.from_scratch("linear"): [20.0]}


def test_columns_whose_best_row_is_prints_are_counted() -> None:
    t2, softmax = fake("transnormer-t2", 0, 1e-4, 0.5), fake("vanilla", 0, 1e-4, 0.4)
    assert found.same_best(fake_results(t2, softmax)) == "Columns whose best row is print's: 1 of 1."
    ahead = fake("vanilla", 0, 1e-4, 0.6)
    assert found.same_best(fake_results(t2, ahead)) == "Columns whose best row is print's: none of 1."
    assert found.same_best(fake_results(t2)) == "Columns whose best row is print's: nothing to compare."


def test_choosing_never_lowers_a_score() -> None:
    results = fake_results(fake("linear", 0, 1e-4, 0.5, 0.4), fake("linear", 0, 1e-5, 0.3, 0.1))
    (line,) = found.effect_of_choosing(results)
    assert line["last evaluation"] < line["best evaluation"] < line["best rate too"]
    assert line["the same on test"] is None


def test_a_diverged_run_loses_and_is_counted() -> None:
    results = fake_results(*(fake("linear", seed, 1e-4, *scores) for seed, scores in enumerate([(0.5,), ()])))
    assert results.per_seed("linear", ["cola"]) == [50.0, -math.inf]
    assert found.table(results, {"CoLA": {}}) == [{"model": "linear", "CoLA": "50.0 (50.0 to 50.0, 1 diverged)"}]
    assert "CoLA, runs that diverged: linear 1 of 2." in found.conclusions(results, {"CoLA": {}})


def everything(row: str, seed: int, cola: tuple[float, ...]) -> list[TunedRun]:
    runs = []
    for task in ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola"):
        one = fake(row, seed, 1e-4, *(cola if task == "cola" else (0.7,)), task=task)
        if task == "mnli":
            one.run.record["validation"][0]["accuracy_mismatched"] = 0.7
        runs.append(one)
    return runs


def test_the_average_needs_all_columns_and_counts_a_diverged_run_as_0() -> None:
    results = fake_results(*everything("linear", 0, (0.7,)), *everything("linear", 1, ()))
    assert results.per_seed("linear", COLUMNS) == pytest.approx([70.0, 60.0])
    assert results.averages("linear")[1].plain is None
    line = found.table(results, {column.heading: {} for column in results.columns})[0]
    assert (line["average"], line["by task"]) == pytest.approx((65.0, 70.0))
    assert fake_results(fake("linear", 0, 1e-4, 0.5)).averages("linear") == []


def test_a_missing_number_has_a_reason() -> None:
    results = fake_results(fake("linear", 0, 1e-4, 0.5))
    assert found.lacking(results, SMALL, ["linear"], ["cola"]) == ""
    assert "no run of flash" in found.lacking(results, SMALL, ["flash"], ["cola"])
    assert "no run on SST-2" in found.lacking(results, SMALL, ["linear"], ["sst2"])
    absent = Results([], {}, {"cola": "no cola here"})
    assert found.lacking(absent, SMALL, ["linear"], ["cola"]) == "no cola here"
    stand_in = Results([], {"spelling": cast(Any, SimpleNamespace(name="spelling", absent={}, stand_in=True))}, {})
    assert "stand-ins are not GLUE" in found.lacking(stand_in, SMALL, ["linear"], ["cola"])
    one = Results([], {"mnli": cast(Any, SimpleNamespace(absent={"validation_mismatched": "not there"}))}, {})
    assert [column.name for column in one.columns] == ["mnli_m"]
    assert found.lacking(one, SMALL, ["linear"], ["mnli_mm"]) == "not there"


def test_tasks_without_data_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise DataUnavailable("not on this machine")

    monkeypatch.setattr("transnormer_lib.data.tasks.load_task", absent)
    results = found.measure(SMALL, cast(RunStore, None))
    assert results.absent == dict.fromkeys(SMALL.tasks, "not on this machine")
    assert (results.measured, results.columns, found.conclusions(results, {})) == ([], [], [])


@pytest.mark.slow
def test_a_row_whose_encoder_diverged_has_no_score() -> None:
    class Store:
        def get(self, config: Any, **_: object) -> Run:
            if config.start_from is None:
                return cast(Run, SimpleNamespace(record={"status": "diverged"}))
            raise RunFailed("run masked: diverged after 3 steps")

    results = found.measure(EMBEDDED, cast(RunStore, Store()))
    assert (
        {m.score(results.columns[0]) for m in results.measured}
        == {m.validation for m in results.measured}
        == {-math.inf}
    )


def test_a_stand_in_is_fine_tuned_from_end_to_end_and_measured_on_test(tmp_path: Path) -> None:
    results = found.measure(replace(EMBEDDED, seeds=(0,)), RunStore(tmp_path))
    (column,) = results.columns
    assert list(results.scores(column)) == ["transnormer-t2", study.from_scratch("transnormer-t2")]
    assert all(0 <= m.score(column, of) <= 100 for m in results.measured for of in ("best", "last", "test"))
    short = found.shortcut_scores(results)
    assert short["letter-order"]["most common label"] == 50.0
    assert found.described(results.data["letter-order"]).endswith("train 32, validation 48, test 48")
    assert any("from scratch: no interval" in line for line in found.conclusions(results, short))
