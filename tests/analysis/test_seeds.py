"""Sentences about paired differences: which way they point, and when there is no interval."""

import math

import pytest

from transnormer_lib.analysis.seeds import compared

VALUES = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9], "near": [1.0, 0.9, 1.1], "lost": [1.0, math.inf, 1.0]}


@pytest.mark.parametrize(
    ("row", "other", "higher", "says"),
    [
        ("a", "b", True, "behind; -1.0 points, 95% in [-1.0, -1.0]"),
        ("b", "a", True, "ahead; +1.0 points, 95% in [+1.0, +1.0]"),
        ("a", "b", False, "ahead; -1.0 points, 95% in [-1.0, -1.0]"),
        ("b", "a", False, "behind; +1.0 points, 95% in [+1.0, +1.0]"),
    ],
)
def test_the_change_is_that_of_the_row_named_first_whichever_way_is_better(
    row: str, other: str, higher: bool, says: str
) -> None:
    line = compared(row, other, VALUES, higher_is_better=higher, words=("ahead", "behind"), unit="points", digits=1)
    assert line == f"{row} against {other}: {says}."


@pytest.mark.parametrize("higher", [True, False])
def test_the_interval_runs_from_low_to_high_and_one_with_zero_in_it_tells_nothing_apart(higher: bool) -> None:
    line = compared("a", "near", VALUES, higher_is_better=higher, words=("x", "y"), unit="bits", digits=3)
    # Differences 0, 0.2, -0.2: mean 0, deviation 0.2, and Student's t at two degrees is 4.303.
    assert line == "a against near: not told apart; " + line.partition("; ")[2]
    assert line.endswith("95% in [-0.497, +0.497].")


def test_a_run_that_diverged_leaves_no_interval() -> None:
    line = compared("a", "lost", VALUES, higher_is_better=False, words=("x", "y"), unit="bits", digits=3)
    assert "no interval" in line
