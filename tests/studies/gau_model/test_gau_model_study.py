"""The study of notebook 15: its runs, the paper's printed numbers, and what is said about results."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from chinese_data import needs_chinese, write_reading_tables

from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import classification
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.gau_model import costs, published, results
from transnormer_lib.studies.gau_model import runs as study
from transnormer_lib.training.store import RunStore

PROJECT = Project(Path(__file__).resolve().parents[3])


def parameters(preset: str) -> study.Parameters:
    return read(study.Parameters, resolve(PROJECT, preset, "15_gau_model"))


QUICK, NIGHT, PAPER = map(parameters, ("quick", "night", "paper"))
presets = pytest.mark.parametrize(
    "of", [QUICK, NIGHT, parameters("gpu"), PAPER], ids=["quick", "night", "gpu", "paper"]
)


@presets
def test_every_run_has_a_name_of_its_own_and_every_pre_training_masks_whole_words(of: study.Parameters) -> None:
    runs = study.runs(of)
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.data.masking.whole_words for run in runs if run.data.task == "masked")


@presets
def test_the_rows_have_as_many_parameters_to_three_percent(of: study.Parameters) -> None:
    encoders = [count_parameters(study.model(row, of)) for row in of.rows]
    assert max(encoders) < 1.03 * min(encoders)
    decoders = [count_parameters(study.decoder(row, of)) for row in of.picture_rows if row != "flash"]
    assert max(decoders) < 1.03 * min(decoders)


def test_at_night_flash_has_19_percent_more_parameters_than_gau() -> None:
    flash, gau = (count_parameters(study.decoder(row, NIGHT)) for row in ("flash", "gau"))
    assert flash / gau == pytest.approx(1.19, abs=0.005)


@presets
def test_fine_tuning_starts_from_the_encoder_of_the_same_row_and_seed(of: study.Parameters) -> None:
    encoders = {(row, seed): run.name for row, seed, run in study.search(of).judged()}
    for task in of.tasks:
        for row, seed, run in study.tunings(task, of).judged():
            assert run.start_from is not None
            assert run.start_from.name == encoders[row, seed]


def test_the_encoders_of_the_search_are_those_that_its_fine_tunings_start_from() -> None:
    (searched,) = NIGHT.rate_seeds
    tried = {run.name for by_rate in study.search(NIGHT).tried().values() for of in by_rate.values() for run in of}
    assert {study.encoder(row, searched, NIGHT).name for row in NIGHT.rows} <= tried


def test_no_seed_is_both_searched_and_judged() -> None:
    with pytest.raises(ValueError, match="rate_seeds=\\[10\\]: must not hold 10, which is judged"):
        study.search(replace(NIGHT, rate_seeds=(10,)))


def test_the_decoders_of_the_picture_are_those_of_notebook_04() -> None:
    from transnormer_lib.studies.autoregressive_lm import runs as causal

    other = read(causal.Parameters, resolve(PROJECT, "night", "04_autoregressive_lm"))
    theirs = {run.name: run.identity() for run in causal.runs(other)}
    ours = {run.name: run.identity() for *_, run in study.picture(NIGHT).judged() if run.model.attention[0] != "gau"}
    assert ours
    assert all(theirs[name] == identity for name, identity in ours.items())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": ("gau", "gau")}, "rows=.*gau.*"),
        ({"rows": ("gao",)}, "rows='gao'.*gau"),
        ({"tune_epochs": {}}, "tune_epochs='review-sentiment'"),
    ],
    ids=["twice", "unknown", "epochs"],
)
def test_wrong_parameters_are_named(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(QUICK, **wrong)


def test_a_task_without_a_learning_rate_is_named() -> None:
    with pytest.raises(ValueError, match=r"tune_rates=\{\}: must have 'review-sentiment' or 'review-sentiment gau'"):
        study.tunings("review-sentiment", replace(QUICK, rows=("gau",), tune_rates={}))


def test_a_row_may_have_its_own_learning_rate_on_a_task() -> None:
    of = replace(QUICK, tune_rates={"review-sentiment": 1e-3, "review-sentiment gau": 5e-3})
    rates = {row: run.optimizer.learning_rate for row, _, run in study.tunings("review-sentiment", of).judged()}
    assert rates == {"roformer-v2": 1e-3, "gau": 5e-3}


def test_the_printed_averages_are_the_means_but_for_one_that_was_cut() -> None:
    wrong = {line["model"] for line in published.averages() if abs(line["printed"] - line["mean of nine"]) > 0.005}
    assert wrong == {"GAU"}


def test_the_sign_test_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    ahead, p = published.sign_test("GAU, 30k", "RoFormerV2, 30k")
    assert ahead == 6
    assert p == pytest.approx(binomtest(ahead, 9).pvalue)


def test_a_lead_without_a_column_is_the_mean_of_the_others() -> None:
    leads = published.leads("GAU, 30k", "RoFormerV2, 30k")
    without = published.lead_without("GAU, 30k", "RoFormerV2, 30k")
    assert without["c3"] == pytest.approx(np.mean([lead for column, lead in leads.items() if column != "c3"]))


def test_the_paper_preset_has_tables_6_and_7_and_a_changed_setting_is_found() -> None:
    assert published.table_6(PAPER) == {}
    assert published.table_7(PAPER) == {}
    assert published.table_6(replace(PAPER, tune_dropout=0.2)).keys() >= {
        "afqmc gau hidden_dropout",
        "csl roformer-v1 classifier_dropout",
    }
    assert published.table_6(replace(PAPER, tune_rates={**PAPER.tune_rates, "csl": 1e-5})) == {
        f"csl {row} learning_rate": (1e-5, 2e-5) for row in PAPER.rows
    }
    assert set(published.table_7(replace(PAPER, schedule="cosine"))) == {f"{row} decay" for row in PAPER.rows}
    assert set(published.table_7(replace(PAPER, attention_dropout=0.0))) == {
        f"{row} attention_dropout" for row in PAPER.rows
    }
    assert published.table_6(replace(PAPER, tune_epochs={**PAPER.tune_epochs, "csl": 5.0})) == {
        f"csl {row} epochs": (5.0, 4) for row in PAPER.rows
    }
    assert published.table_7(replace(PAPER, steps=20_000, warmup=2000)) == {
        f"{row} steps": (20_000, "5k, 10k, 30k, 100k") for row in PAPER.rows
    }


def test_every_column_of_tables_6_and_7_is_compared_or_named() -> None:
    from transnormer_lib.papers import tables

    wrong = replace(
        PAPER, steps=7, warmup=3, batch_size=1, accumulate=1, learning_rate=1.0, dropout=0.3, attention_dropout=0.3,
        schedule="cosine",
    )  # fmt: skip
    found = {name.split()[1] for name in published.table_7(wrong)}
    fixed = {"eps", "beta_1", "beta_2", "weight_decay"}  # which no parameter changes
    columns = {column.name for column in tables.load("gau", "table_7").columns}
    assert found | fixed | set(published.NOT_IN_PRE_TRAINING) == columns | {"decay"}


def test_every_task_of_table_5_says_why_it_has_no_score() -> None:
    for task in published.TASKS.values():
        reason = results.lacking(task, {}, {}, QUICK, published.ALIKE)
        assert reason == f"the parameters ask for no run on {task}"


def test_the_preset_paper_fine_tunes_on_every_task_of_table_5() -> None:
    assert set(PAPER.tasks) == set(published.TASKS.values())
    assert not set(QUICK.tasks + NIGHT.tasks) & {"c3", "chid", "cmrc2018"}


@needs_chinese
def test_the_reading_tasks_are_trained_and_measured_on_the_way_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reading_tables(tmp_path)
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    tasks = ("c3", "chid", "cmrc2018")
    epochs = {task: 2 * 4 / classification.epoch(task, {}) for task in tasks}
    of = replace(
        QUICK, rows=("gau",), seeds=(0,), steps=2, warmup=0, tasks=tasks, tune_epochs=epochs, bands=(),
        tune_rates=dict.fromkeys(tasks, 1e-3), tune_batch_sizes=dict.fromkeys(tasks, 4), train_examples={},
        validation_windows=8,
    )  # fmt: skip
    store = RunStore(tmp_path / "runs")
    for task in tasks:
        tuned = results.tune(task, of, store)
        assert isinstance(tuned, results.Tuned)
        (run,) = tuned.runs
        metric = tuned.data.metrics[0]
        assert run.record["steps"] == 2
        assert tuned.scores == {"gau": [100.0 * run.validation[metric]]}
        assert set(tuned.shortcuts) == set(results.SHORTCUTS[tuned.data.kind])
        assert 0.0 <= max(tuned.shortcuts.values()) <= 100.0
        assert math.isclose(study.final_error(run, metric), 100.0 - tuned.scores["gau"][0])
        assert results.notes(tuned)
        assert results.lacking(task, {task: tuned}, {}, of, ["gau"]) == ""


def test_the_floor_of_a_mean_of_tasks_is_the_mean_of_their_better_shortcuts_and_a_sample_is_named_first() -> None:
    data = [SimpleNamespace(title=title, notes=notes) for title, notes in (("A", ("sample: 5 of 9",)), ("B", ()))]
    tuned = {
        name: results.Tuned(one, "test", {}, short, [])  # type: ignore[arg-type]
        for name, one, short in zip("ab", data, ({"x": 40.0, "y": 50.0}, {"x": 60.0, "y": 10.0}), strict=True)
    }
    assert results.mean_floor(tuned, ["a", "b"]) == 55.0
    assert results.notes(*tuned.values()) == ["sample: 5 of 9 (A)"]


def test_who_is_beaten_in_loss_and_price_is_not_named() -> None:
    bits = {"a": [1.0], "b": [2.0], "c": [3.0]}
    (line,) = results.in_the_picture(bits, {"reading": {"a": 5.0, "b": 1.0, "c": 2.0, "untrained": 0.1}})
    assert line == "Reading: no other model has both a lower loss and a lower price than a, b."


def test_the_models_that_are_timed_have_room_for_every_position_and_equal_parameters() -> None:
    of = read(costs.CostParameters, resolve(PROJECT, "quick", "15_gau_model"))
    small = replace(
        of, cost_dim=24, cost_heads=2, cost_layers=1, cost_lengths=(32,), cost_positions=(4, 16), cost_rounds=1
    )
    rows = ("gau", "transnormer-t2")
    found, tokens = costs.measure(rows, small), costs.tokens(rows, small)
    assert [cost.row for cost in found] == list(rows)
    assert all(seconds > 0 and math.isfinite(seconds) for cost in found for seconds in (*cost.training, *cost.reading))
    held = {(token.model, token.position): token.state_numbers for token in tokens}
    assert held["transnormer-t2", 4] == held["transnormer-t2", 16]
    kinds = costs.by_kind(found, tokens)
    assert [set(of) for of in kinds.values()] == [set(rows)] * 3


@needs_chinese
def test_whole_words_are_counted_and_shown() -> None:
    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.studies.gau_model import views

    corpus = results.text(QUICK)
    assert isinstance(corpus, TextCorpus)
    counted = results.words_selected_in_part(QUICK, corpus, batches=2)
    assert counted.in_part == 0
    assert counted.selected == pytest.approx(0.15, abs=0.03)
    for ids, places in views.gaps(corpus, 3, 32):
        assert len(places) > 1
        assert "�" not in "".join(views.signs(corpus, ids[list(places)]))


def test_the_leads_of_table_5_are_told_with_and_without_the_best_task() -> None:
    pair = ("GAU, 30k", "RoFormerV2, 30k")
    ahead, _ = published.sign_test(*pair)
    without = published.lead_without(*pair)
    said = published.leads_in_words({"alike": pair})
    assert said.startswith(f"alike: ahead on {ahead} of 9, +")
    assert f"without c3 {min(without.values()):+.2f}".replace("-", "−") in said


def test_the_picture_is_told_by_the_models_that_none_beats_and_names_one_seed() -> None:
    bits, kinds = {"a": [2.0], "b": [1.0], "c": [3.0]}, {"reading": {"a": 1.0, "b": 5.0, "c": 2.0, "untrained": 0.1}}
    said = results.picture_in_words(bits, kinds)
    assert said == "Not beaten in loss and price at once (one seed), reading: a and b."
    assert "one seed" not in results.picture_in_words({row: of * 2 for row, of in bits.items()}, kinds)
    assert results.picture_in_words({}, kinds).endswith("reading: none.")
