"""Properties of the learning-rate schedules."""

import math
from itertools import pairwise

import pytest

from transnormer_lib.training.config import OptimizerConfig, Schedule
from transnormer_lib.training.schedules import factor

STEPS = 200
SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine", "inverse-sqrt")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 20])
def test_rises_to_one_then_never_rises_again(schedule: Schedule, warmup: int) -> None:
    at = factor(OptimizerConfig(schedule=schedule, warmup=warmup), STEPS)
    values = [at(step) for step in range(STEPS)]
    assert all(0.0 <= v <= 1.0 for v in values)
    assert max(values) == values[warmup] == 1.0
    assert all(a < b for a, b in pairwise(values[: warmup + 1]))
    assert all(a >= b for a, b in pairwise(values[warmup:]))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_reaches_zero_when_the_run_ends(schedule: Schedule) -> None:
    assert factor(OptimizerConfig(schedule=schedule, warmup=20), STEPS)(STEPS) == pytest.approx(0.0, abs=1e-12)


def test_inverse_sqrt_halves_when_the_steps_since_the_start_quadruple() -> None:
    at = factor(OptimizerConfig(schedule="inverse-sqrt", warmup=25), 10_000)
    assert at(400) / at(100) == pytest.approx(0.5)
    assert at(100) == pytest.approx(math.sqrt(25 / 100))
