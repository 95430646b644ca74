"""The sentences of captions: the row they name leads, one seed orders nothing, and diverged runs are counted."""

import math
from typing import Any

import pandas as pd
import pytest

from transnormer_lib.analysis.decoding import StepCost
from transnormer_lib.studies.common import findings, row_losses, scores
from transnormer_lib.studies.common.language_models import Floor

FAR = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9]}
NEAR = {"a": [1.0, 1.1, 0.9], "b": [1.1, 1.0, 1.0]}
LOSS: dict[str, Any] = {"what": "loss", "unit": " bits", "digits": 2}


def test_the_lowest_mean_leads_and_its_difference_has_a_true_minus() -> None:
    said = findings.lead(FAR, **LOSS)
    assert said == "Lowest mean loss: a, 1.00 bits; then b, 2.00 bits (difference −1.00, 95% in [−1.00, −1.00])."


def test_of_scores_the_highest_mean_leads() -> None:
    said = findings.lead(FAR, what="score", unit="", digits=1, higher_is_better=True)
    assert said.startswith("Highest mean score: b, 2.0; then a, 1.0 (difference +1.0")


def test_rows_that_an_interval_does_not_part_are_not_distinguishable() -> None:
    assert "not distinguishable" in findings.lead(NEAR, **LOSS)
    assert "not distinguishable" not in findings.lead(FAR, **LOSS)


@pytest.mark.parametrize("values", [{"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [1.0]}])
def test_one_seed_orders_nothing(values: dict[str, list[float]]) -> None:
    said = findings.lead(values, **LOSS)
    assert said.startswith("With one seed, which orders nothing")
    assert "95%" not in said


def test_a_single_row_is_compared_with_none() -> None:
    assert findings.lead({"a": [1.0]}, **LOSS) == "Loss: a, 1.00 bits, with one seed."
    assert findings.lead({"a": [1.0, 3.0]}, **LOSS) == "Loss: a, 2.00 bits."


def test_runs_that_diverged_are_counted_and_leave_no_interval() -> None:
    said = findings.lead({"a": [1.0, math.inf], "b": [2.0, 2.0], "c": [math.inf] * 2}, **LOSS)
    assert said == (
        "Lowest mean loss: a, 1.00 bits; then b, 2.00 bits (no interval: a run diverged). Diverged: a 1 of 2, c 2 of 2."
    )
    assert findings.lead({"a": [math.inf]}, **LOSS) == "Every run diverged."


@pytest.mark.parametrize(
    ("limit", "higher", "said"),
    [
        (3.0, False, "Every run beats the bigram, 3.00."),
        (0.5, False, "No run beats the bigram, 0.50."),
        (1.0, False, "Runs that do not beat the bigram, 1.00: a 2 of 3, b 3 of 3."),
        (1.95, True, "Runs that do not beat the bigram, 1.95: a 3 of 3, b 1 of 3."),
    ],
)
def test_a_value_equal_to_the_limit_does_not_beat_it(limit: float, higher: bool, said: str) -> None:
    assert findings.behind(FAR, "the bigram", limit, digits=2, higher_is_better=higher) == said


def test_a_run_that_diverged_beats_nothing() -> None:
    assert findings.behind({"a": [math.inf]}, "the bigram", 9.0, digits=2) == "No run beats the bigram, 9.00."
    beaten = findings.behind({"a": [-math.inf]}, "chance", 9.0, digits=2, higher_is_better=True)
    assert beaten == "No run beats chance, 9.00."


def test_the_growth_of_decoding_names_the_rows_that_differ_most() -> None:
    costs = [StepCost("cached", n, (n * 1e-3,), 10 * n) for n in (8, 64)]
    costs += [StepCost("linear", n, (1e-3,), 5) for n in (8, 64)]
    said = findings.decoding_growth(costs)
    assert said == (
        "From position 8 to 64 a token of cached takes 8.0 times as long, the most, of linear 1.0 times, the least; "
        "the state grows in cached alone."
    )
    assert findings.decoding_growth(costs[:2]).endswith("takes 8.0 times as long; the state grows in every row.")
    assert findings.decoding_growth(costs[2:]).endswith("the state grows in no row.")


def test_losses_say_the_lead_and_who_stays_behind_the_floor() -> None:
    said = row_losses.finding(FAR, Floor("bigram", 1.5))
    assert said.startswith("Lowest mean loss: a, 1.000 bits")
    assert said.endswith("Runs that do not beat the bigram, 1.500: b 3 of 3.")


def test_the_last_change_of_a_row_that_diverged_is_left_out() -> None:
    frame = pd.DataFrame(
        [
            {
                "row": row,
                "seed": seed,
                "step": step,
                "bits": math.inf if row == "lost" and step == 20 else 5 - step / 10,
            }
            for row in ("a", "lost")
            for seed in (0, 1)
            for step in (10, 20)
        ]
    )
    assert row_losses.last_change(frame) == "Change of the mean from step 10 to 20: a −1.000."
    assert row_losses.last_change(frame[frame.row == "lost"]).endswith("no row has one.")
    assert row_losses.last_change(frame[frame.step == 10]) == "There is one waypoint."


def test_few_columns_of_scores_are_told_and_many_are_counted() -> None:
    floors = {"t": {"chance": 1.92}}
    said = scores.finding({"t": FAR}, floors)
    assert said.startswith("Highest mean score, t: b, 2.0")
    assert said.endswith("Runs that do not beat the shortcut chance, 1.9: a 3 of 3, b 1 of 3.")
    many: dict[str, dict[str, list[float]]] = {"t": FAR, "u": FAR, "v": {"a": [3.0], "b": [1.0]}}
    said = scores.finding(many, {"t": {"chance": 0.0}, "u": {"chance": 1.92}, "v": {}})
    assert said == "Highest mean, of 3 columns: b in 2, a in 1. A run does not beat the best shortcut in u."


def test_the_number_farthest_from_print_is_so_in_either_direction() -> None:
    said = findings.farthest({"a": 1.0, "b": 2.0, "new": 99.0}, {"a": 1.5, "b": 1.75}, digits=2)
    assert said == "Farthest from print: a, by −0.50."
    assert findings.farthest({"a": 1.001}, {"a": 1.0}, digits=2) == "All agree with print to 2 decimals."


def test_extremes_name_the_largest_and_the_smallest_and_a_single_row_alone() -> None:
    how: dict[str, Any] = {"what": "Worth", "unit": " bits", "digits": 1}
    said = findings.extremes({"a": -0.5, "b": 0.25, "c": 2.0}, **how)
    assert said == "Worth: +2.0 bits for c, the most, −0.5 for a, the least."
    assert findings.extremes({"a": 1.0}, **how) == "Worth: +1.0 bits for a."


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"a": 0.5, "b": 1234.5}, "Size: from 0.5 kB for a to 1,234 kB for b."),
        ({"a": 2.0, "b": 2.0}, "Size: 2 kB for every row."),
        ({"a": 2.0}, "Size: 2 kB for a."),
        ({"a": math.inf, "b": None}, "Size: no row has a value."),
        ({}, "Size: no row has a value."),
    ],
    ids=["two", "equal", "one", "infinite", "none"],
)
def test_the_ends_of_a_column_are_told(values: dict[str, float | None], said: str) -> None:
    assert findings.ends(values, what="Size", unit=" kB") == said


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "Off: none of 9."),
        (["a", "b"], "Off: 2 of 9 (a, b)."),
        (list("abcde"), "Off: 5 of 9."),
        (list("abcdefghi"), "Off: 9 of 9."),
    ],
    ids=["none", "some", "many", "all"],
)
def test_what_is_counted_is_named_while_it_is_few(names: list[str], said: str) -> None:
    assert findings.counted(names, 9, what="Off") == said
