"""A row's own learning rate, in every study that searches for one."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from transnormer_lib import studies
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.project import find_project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.show.tables import table_html
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.attention_dilution import runs as dilution
from transnormer_lib.studies.autoregressive_lm import runs as autoregressive
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import rates
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.gau_model import runs as gau_model
from transnormer_lib.studies.gradient_stability import runs as stability
from transnormer_lib.studies.speech_ctc import runs as speech
from transnormer_lib.training.store import RunStore

PROJECT = find_project()
STUDIES: dict[str, Any] = {
    "02_gradient_stability": stability,
    "03_attention_dilution": dilution,
    "04_autoregressive_lm": autoregressive,
    "05_bidirectional_lm": bidirectional,
    "09_ablations": ablations,
}
each_study = pytest.mark.parametrize("notebook", STUDIES)


def searching(notebook: str) -> Any:
    parameters = read(STUDIES[notebook].Parameters, resolve(PROJECT, "quick", notebook))
    return replace(cast(Any, parameters), rates_tried=(0.1, 0.001), rate_seeds=(70, 71))


@each_study
def test_a_rows_own_rate_is_that_of_its_judged_runs_and_of_no_other_row(notebook: str) -> None:
    parameters, study = searching(notebook), STUDIES[notebook]
    row = study.search(parameters).rows[0]
    own = replace(parameters, rates={row: 0.0123})
    found = {(name, run.optimizer.learning_rate) for name, _, run in study.search(own).judged()}
    assert {rate for name, rate in found if name == row} == {0.0123}
    assert {rate for name, rate in found if name != row} <= {parameters.learning_rate}


@each_study
def test_the_search_comes_first_and_is_named_by_the_judged_runs(notebook: str) -> None:
    parameters, study = searching(notebook), STUDIES[notebook]
    every, tried = study.runs(parameters), study.search(parameters).tried()
    search = [run.name for by_rate in tried.values() for runs in by_rate.values() for run in runs]
    assert [run.name for run in every[: len(search)]] == search
    assert {run.seed for run in every[: len(search)]} == {70, 71}
    for name, seed, run in study.search(parameters).judged():
        assert seed in parameters.seeds
        assert set(run.rate_search) == {one.name for runs in tried[name].values() for one in runs}


@each_study
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": {"vanilla-mathced": 0.1}}, "rates='vanilla-mathced': must be one of"),
        ({"rates": {"diag/nrom": 0.1}}, "rates='diag/nrom': must be one of"),
        ({"rate_seeds": (0, 5)}, "rate_seeds=.*: must not hold ., which is judged"),
    ],
    ids=["a rate of no row", "a rate of no pair", "a seed that is judged"],
)
def test_a_mistake_is_refused_by_name(notebook: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STUDIES[notebook].runs(replace(searching(notebook), **changes))


def test_rates_of_rows_that_another_study_trains_are_taken_over() -> None:
    others = {"linear-unscaled+lrpe": 0.1, "scattered/norm": 0.1, "window/norm+lrpe": 0.1}
    parameters = replace(searching("03_attention_dilution"), rates=others)
    assert dilution.runs(parameters)


def test_rows_of_several_notebooks_are_the_same_runs_at_night() -> None:
    by_name: dict[str, Any] = {}
    for notebook in ("04_autoregressive_lm", "03_attention_dilution", "09_ablations"):
        for run in studies.runs(notebook, resolve(PROJECT, "night", notebook)):
            run = replace(run, rate_search=())  # notebook 04 tries one rate more, which changes no run
            assert by_name.setdefault(run.name, run) == run


def test_without_a_search_nothing_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = read(bidirectional.Parameters, resolve(PROJECT, "quick", "05_bidirectional_lm"))
    rates.show_search(bidirectional.search(quick), RunStore(tmp_path))
    assert capsys.readouterr().out == ""


@each_study
def test_the_judged_runs_are_had_one_by_one_in_order(notebook: str) -> None:
    search = STUDIES[notebook].search(searching(notebook))
    asked: list[Any] = []
    store: Any = SimpleNamespace(get=lambda run, *, weights: asked.append((run, weights)) or run)
    first, *others = search.trained(store, weights=False)
    assert [first, *others] == search.judged()
    assert asked == [(run, False) for *_, run in search.judged()]
    next(search.trained(store))
    assert asked[-1] == (first[2], True)
    assert len(asked) == len(others) + 2
    row = search.rows[-1]
    assert {name for name, *_ in search.trained(store, [row])} == {row}


@pytest.mark.parametrize(
    ("taken", "shown"),
    [(0.001, "0.001"), (0.1, "0.1, not the best"), (0.02, "0.02, which was not tried")],
    ids=["best", "another", "untried"],
)
def test_the_page_says_where_a_row_is_not_judged_at_the_best_rate(
    monkeypatch: pytest.MonkeyPatch, taken: float, shown: str
) -> None:
    tables: list[Any] = []

    def shown_table(lines: Any, **options: Any) -> None:
        assert table_html(lines, **options)
        tables.append((lines, options))

    monkeypatch.setattr(rates, "show_table", shown_table)
    parameters = searching("04_autoregressive_lm")
    row = autoregressive.search(parameters).rows[0]
    search = autoregressive.search(
        replace(parameters, rates=dict.fromkeys(autoregressive.search(parameters).rows, taken))
    )
    store: Any = SimpleNamespace(get=lambda run, **_: run)
    scored = replace(search, score=lambda run: run.optimizer.learning_rate)
    rates.show_search(scored, store)
    ((lines, options),) = tables
    assert {line["taken"] for line in lines} == {shown}
    assert (row in options["note"]) == (shown != "0.001")


def test_a_row_judged_at_a_rate_that_was_not_tried_is_named() -> None:
    parameters = replace(searching("04_autoregressive_lm"), rates={})
    search = autoregressive.search(parameters)
    assert set(rates.untried(search)) == set(search.rows)
    row = search.rows[0]
    assert row not in rates.untried(autoregressive.search(replace(parameters, rates={row: 0.1})))
    assert rates.untried(autoregressive.search(replace(parameters, rate_seeds=()))) == {}


def test_a_rate_is_chosen_by_the_studys_own_score_and_a_run_that_diverged_loses() -> None:
    def run(error: float, status: str = "finished") -> Any:
        return SimpleNamespace(
            record={"status": status, "validation": [{"error_rate": error, "nats_per_token": -error}]}
        )

    search = {0.1: [run(0.5), run(0.4)], 0.01: [run(0.6), run(0.1)], 0.001: [run(0.0), run(0.0, "diverged")]}
    assert rates.lowest(search, speech.final_error) == 0.01


def _kept(**last: float) -> Kept:
    """Kept runs by name, with their last loss in bits; infinite where one diverged."""
    records = [
        {"name": name, "status": "finished" if math.isfinite(bits) else "diverged"}
        | {"validation": [{"bits_per_token": bits}]}
        for name, bits in last.items()
    ]
    given = {"rates": {"diag/norm+lrpe": 0.01, "linear": 0.03}, "rates_tried": [0.01, 0.03], "rate_seeds": [100]}
    size = {"task": "causal", "seeds": [10, 11], "steps": 600, "batch_size": 4, "length": 256, "layers": 4, "dim": 64}
    return Kept("night", "night", "99_toy", {**given, **size}, [], records, "a machine", 1, "abc", "2026-01-02")


def test_kept_rows_have_the_losses_of_their_own_search_and_the_rate_taken() -> None:
    runs = {
        "causal-diag-norm-lrpe-lr0.01-seed100": 3.5,
        "causal-diag-norm-lrpe-lr0.03-seed100": math.inf,
        "causal-linear-lr0.03-seed100": 3.25,
        "causal-linear-seed10": 3.0,
    }
    first, second = rates.kept_table(_kept(**runs))
    assert first == {"row": "diag/norm+lrpe", "0.01": 3.5, "0.03": math.inf, "taken": "0.01"}
    assert second == {"row": "linear", "0.01": None, "0.03": 3.25, "taken": "0.03"}


def test_kept_rates_are_shown_aside_with_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[str] = []
    monkeypatch.setattr(rates, "show_table", lambda lines, **options: tables.append(table_html(lines, **options)))
    rates.show_kept(_kept(**{"causal-linear-lr0.03-seed100": 3.25}))
    (html,) = tables
    assert "on seed 100, and the rate taken: 0.03 by 1 of 1 rows." in html  # the other row has no run here
    assert "600 steps of 4 sequences of 256 tokens, 4 layers of width 64, judged on seeds 10 and 11." in html
    assert "data-aside" in html


def _ended(config: Any, **last: float) -> Any:
    return SimpleNamespace(config=config, record={"status": "finished"}, validation=last)


def at_night(study: Any, notebook: str) -> Any:
    return read(study.Parameters, resolve(PROJECT, "night", notebook))


@pytest.mark.parametrize(
    ("study", "notebook", "measure"),
    [(ablations, "09_ablations", "nats_per_token"), (speech, "13_speech_ctc", "error_rate")],
)
def test_a_row_that_is_not_judged_at_the_best_rate_of_its_search_is_named_once(
    study: Any, notebook: str, measure: str
) -> None:
    search = study.search(at_night(study, notebook))
    row = search.rows[0]
    taken = rates.own(search.parameters, row).learning_rate
    better = next(rate for rate in search.parameters.rates_tried if rate != taken)

    def ran(best: float) -> list[Any]:
        tried = [*rates.flat(search.tried()[row]), *(run for name, _, run in search.judged() if name == row)]
        return [_ended(run, **{measure: abs(math.log(run.optimizer.learning_rate / best))}) for run in tried]

    assert rates.passed_over(ran(taken)) == []
    (sentence,) = rates.passed_over(ran(better))
    assert f"is judged at {taken:g}, and {better:g} was the best of its search" in sentence
    assert rates.passed_over(ran(better)[1:]) == []  # the search is not whole


def test_a_classifiers_rate_is_measured_by_its_tasks_first_metric() -> None:
    search = gau_model.tunings("review-sentiment", at_night(gau_model, "15_gau_model"))
    taken = {rates.own(search.parameters, row).learning_rate for row in search.rows}
    other = next(rate for rate in search.parameters.rates_tried if rate not in taken)
    runs = [_ended(run, accuracy=float(run.optimizer.learning_rate == other)) for run in search.runs()]
    assert len(rates.passed_over(runs)) == len(search.rows)
