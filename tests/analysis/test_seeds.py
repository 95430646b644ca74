"""Means, ranges and sentences about paired differences, with diverged runs and without."""

import math

import pytest

from transnormer_lib.analysis.seeds import compared, mean, spread

VALUES = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9], "near": [1.0, 0.9, 1.1], "lost": [1.0, math.inf, 1.0]}


def test_diverged_runs_are_counted_and_left_out_of_mean_and_range() -> None:
    assert (mean([3.0, math.inf, 4.0]), spread([3.0, math.inf, 4.0], 2)) == (3.5, "3.00 to 4.00, 1 diverged")
    assert (mean([math.inf] * 2), spread([math.inf] * 2, 2)) == (math.inf, "2 diverged")
    assert (mean([-math.inf, 0.5]), spread([-1.5, -0.5], 1)) == (0.5, "−1.5 to −0.5")


@pytest.mark.parametrize(
    ("row", "other", "higher", "says"),
    [
        ("a", "b", True, "behind; −1.0 points, 95% in [−1.0, −1.0]"),
        ("b", "a", True, "ahead; +1.0 points, 95% in [+1.0, +1.0]"),
        ("a", "b", False, "ahead; −1.0 points, 95% in [−1.0, −1.0]"),
        ("b", "a", False, "behind; +1.0 points, 95% in [+1.0, +1.0]"),
    ],
)
def test_the_change_is_that_of_the_row_named_first_whichever_way_is_better(
    row: str, other: str, higher: bool, says: str
) -> None:
    line = compared(row, other, VALUES, higher_is_better=higher, words=("ahead", "behind"), unit="points", digits=1)
    assert line == f"{row} against {other}: {says}."


@pytest.mark.parametrize("higher", [True, False])
def test_rows_are_not_distinguishable_if_the_interval_includes_zero(higher: bool) -> None:
    line = compared("a", "near", VALUES, higher_is_better=higher, words=("x", "y"), unit="bits", digits=3)
    # Differences 0, 0.2, -0.2: mean 0, deviation 0.2, and Student's t at two degrees is 4.303.
    assert line == "a against near: not distinguishable; " + line.partition("; ")[2]
    assert line.endswith("95% in [−0.497, +0.497].")


def test_a_run_that_diverged_leaves_no_interval() -> None:
    line = compared("a", "lost", VALUES, higher_is_better=False, words=("x", "y"), unit="bits", digits=3)
    assert "no interval" in line
