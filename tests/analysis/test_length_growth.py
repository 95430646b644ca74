"""Exponents and crossovers are recovered from synthetic data."""

import math
import random

import pytest

from transnormer_lib.analysis.length_growth import Crossover, crossover, crossover_per_round, exponent

LENGTHS = (1024, 2048, 3072, 4096, 5120, 8192)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_pure_power_is_found_with_an_interval_of_no_width(power: float) -> None:
    found = exponent({n: 3e-6 * n**power for n in LENGTHS})
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((power, power, power))
    assert found.lengths == LENGTHS


def test_the_interval_covers_the_true_exponent_in_about_95_of_100_noisy_tables() -> None:
    draw = random.Random(0)
    covered = 0
    for _ in range(1000):
        found = exponent({n: n**1.3 * math.exp(draw.gauss(0, 0.1)) for n in LENGTHS})
        assert found is not None
        covered += found.low <= 1.3 <= found.high
    assert 930 <= covered <= 970


def test_shorter_lengths_do_not_count() -> None:
    bent = {n: 1.0 if n < 2048 else float(n) for n in LENGTHS}
    found = exponent(bent, from_length=2048)
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_two_points_give_an_exponent_without_an_interval_and_one_gives_none() -> None:
    two = exponent({1024: 1.0, 2048: 4.0})
    assert two is not None
    assert (two.value, two.low, two.high) == (pytest.approx(2.0), -math.inf, math.inf)
    assert exponent({1024: 1.0}) is None
    assert exponent({1024: 1.0, 2048: 4.0}, from_length=2000) is None


@pytest.mark.parametrize("cost", [0.0, -1.0, math.inf, math.nan])
def test_costs_that_have_no_logarithm_are_refused(cost: float) -> None:
    with pytest.raises(ValueError, match=r"costs\[2048\]"):
        exponent({1024: 1.0, 2048: cost})


def powers(factor: float, power: float) -> dict[int, float]:
    return {n: factor * n**power for n in LENGTHS}


def test_a_linear_cost_overtakes_a_quadratic_one_where_the_two_are_equal() -> None:
    found = crossover(powers(3000.0, 1), powers(1.0, 2))  # 3000·n = n²
    assert found == Crossover(pytest.approx(3000.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1e6, Crossover(None)), (1.0, Crossover(1024.0, from_start=True))],
    ids=["never within the lengths", "from the start"],
)
def test_a_crossover_outside_the_lengths_is_reported_and_not_extrapolated(factor: float, expected: Crossover) -> None:
    assert crossover(powers(factor, 1), powers(1.0, 2)) == expected


def test_being_ahead_for_a_while_is_no_crossover() -> None:
    ahead_then_behind_then_ahead = {1024: 0.5, 2048: 2.0, 3072: 0.5}
    found = crossover(ahead_then_behind_then_ahead, dict.fromkeys((1024, 2048, 3072), 1.0))
    assert found.length is not None
    assert 2048 < found.length < 3072


def test_only_lengths_that_both_have_are_compared() -> None:
    other = powers(1.0, 2)
    assert crossover(powers(3000.0, 1), {n: other[n] for n in (1024, 2048)}) == Crossover(None)
    with pytest.raises(ValueError, match="no length in common"):
        crossover({1: 1.0}, {2: 1.0})


def test_every_common_round_is_compared_separately() -> None:
    cost = {1024: (2.0, 2.0, 2.0), 2048: (0.5, 2.0)}
    other = {1024: (1.0, 1.0), 2048: (1.0, 1.0, 1.0)}
    first, second = crossover_per_round(cost, other)
    assert first.length == pytest.approx(math.sqrt(1024 * 2048))
    assert second == Crossover(None)
    assert crossover_per_round(cost, {8192: (1.0,)}) == []
