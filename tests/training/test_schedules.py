"""Properties of the learning-rate schedules."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.training.config import OptimizerConfig, Schedule
from transnormer_lib.training.schedules import factor, halvings, momentum

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


def test_a_warm_up_from_a_rate_is_fairseq_s_straight_line() -> None:
    options = OptimizerConfig(learning_rate=5e-4, warmup=8000, warmup_start=1e-7)
    at = factor(options, 100_000)
    rates = [at(step) * 5e-4 for step in (0, 2000, 4000, 8000, 32_000)]
    assert rates == pytest.approx([1e-7, 1e-7 + (5e-4 - 1e-7) / 4, (5e-4 + 1e-7) / 2, 5e-4, 2.5e-4], rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_decay_ends_at_the_given_rate(schedule: Schedule) -> None:
    at = factor(OptimizerConfig(learning_rate=1e-3, schedule=schedule, warmup=20, end_learning_rate=1e-5), STEPS)
    assert at(20) == 1.0
    assert at(STEPS) * 1e-3 == pytest.approx(1e-5)
    assert at(10 * STEPS) * 1e-3 == pytest.approx(1e-5)


def test_a_drop_is_one_step_down_and_nothing_else() -> None:
    options = OptimizerConfig(learning_rate=1e-3, schedule="drop", warmup=5, drop_after=30, end_learning_rate=1e-4)
    rates = [factor(options, 100)(step) * 1e-3 for step in range(100)]
    assert rates[5:30] == pytest.approx([1e-3] * 25)
    assert rates[30:] == pytest.approx([1e-4] * 70)


def test_polynomial_decay_of_power_one_is_half_way_in_the_middle() -> None:
    at = factor(OptimizerConfig(schedule="linear", warmup=20), 120)
    assert at(70) == pytest.approx(0.5)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_onecycle_is_torch_s_with_linear_annealing_of_rate_and_momentum(data: st.DataObject) -> None:
    steps = data.draw(st.integers(3, 300), label="steps")
    warmup = data.draw(st.integers(2, steps - 1), label="warmup")
    cycles = data.draw(st.booleans(), label="cycle_momentum")
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.9, 0.98))
    oracle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=1.0,
        total_steps=steps,
        pct_start=warmup / steps,
        anneal_strategy="linear",
        cycle_momentum=cycles,
        div_factor=25,
        final_div_factor=1e4,
    )
    options = OptimizerConfig(schedule="onecycle", warmup=warmup, cycle_momentum=cycles)
    at, beta = factor(options, steps), momentum(options, steps)
    for step in range(steps):
        assert at(step) == pytest.approx(oracle.get_last_lr()[0], rel=1e-9, abs=1e-12)
        assert beta(step) == pytest.approx(optimizer.param_groups[0]["betas"][0], rel=1e-9)
        optimizer.step()
        if step + 1 < steps:
            oracle.step()


def test_a_cycle_of_the_momentum_belongs_to_onecycle() -> None:
    with pytest.raises(ValueError, match="cycle_momentum=True: only schedule='onecycle' has a cycle, not 'linear'"):
        OptimizerConfig(schedule="linear", cycle_momentum=True)


@settings(deadline=None)
@given(steps=st.integers(1, 50), warmup=st.integers(0, 60))
def test_onecycle_stays_between_nothing_and_its_peak(steps: int, warmup: int) -> None:
    at = factor(OptimizerConfig(schedule="onecycle", warmup=warmup), steps)
    assert all(0.0 < at(step) <= 1.0 for step in range(steps))


@pytest.mark.parametrize("patience", [0, 1, 2])
def test_a_plateau_halves_the_rate_as_pytorchs_scheduler_does(patience: int) -> None:
    losses = [3.0, 2.0, 2.0, 2.5, 1.5, 1.6, 1.7, 1.5, 1.8, 1.4, 1.4, 1.4]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=patience, threshold=0.0)
    for count, loss in enumerate(losses, start=1):
        scheduler.step(loss)
        assert 0.5 ** halvings(losses[:count], patience) == optimizer.param_groups[0]["lr"]
