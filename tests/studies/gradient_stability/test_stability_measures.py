"""Each reading of a relative standard deviation, on gradients whose deviation is known."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.studies.gradient_stability.measures import (
    DEFINITIONS,
    MAIN,
    layer_norms,
    relative_deviation,
    stability,
    whole_norm,
)
from transnormer_lib.training.gradient_statistics import GradientStatistics

NAMES = (
    "embedding.weight",
    *(f"blocks.{i}.attention.{p}_proj.weight" for i in range(2) for p in ("q", "k", "v", "out")),
    "blocks.0.feed_forward.up.weight",
)


def statistics_of(gradients_TPE: torch.Tensor, warmup: int = 0) -> GradientStatistics:
    """The statistics of T gradients of P tensors with E entries each, by their definition."""
    counted = gradients_TPE[warmup:].double()
    mean_PE = counted.mean(0)
    return GradientStatistics(
        names=NAMES,
        counted=len(counted),
        norms=gradients_TPE.norm(dim=-1),
        mean_norm=mean_PE.norm(dim=-1),
        mean_square=counted.square().sum(-1).mean(0),
        elementwise_rsd=(counted.std(0, correction=0) / mean_PE.abs()).median(dim=-1).values,
    )


def draw(steps: int, seed: int, noise: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1.0 + noise * torch.randn(steps, len(NAMES), 7, generator=generator)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-6, 1e6))
def test_no_reading_depends_on_the_scale_of_the_gradient(seed: int, scale: float) -> None:
    gradients = draw(40, seed)
    plain, scaled = stability(statistics_of(gradients), 5), stability(statistics_of(gradients * scale), 5)
    assert plain.keys() == {definition.name for definition in DEFINITIONS}
    assert scaled == pytest.approx(plain, rel=1e-3)


def test_a_constant_gradient_has_no_deviation_in_any_reading() -> None:
    values = stability(statistics_of(torch.ones(30, len(NAMES), 7)), 10)
    assert values == pytest.approx(dict.fromkeys(values, 0.0), abs=1e-6)


def test_the_vector_reading_is_noise_over_signal() -> None:
    # Entries 1 + 0.3 ε: the deviation of the vector is 0.3 √n, its mean √n, in any number n of entries.
    assert stability(statistics_of(draw(4000, 0)), 0)["as a vector"] == pytest.approx(0.3, rel=0.02)
    assert stability(statistics_of(draw(4000, 0)), 0)["entry by entry"] == pytest.approx(0.3, rel=0.02)


def test_only_all_iterations_sees_the_warm_up() -> None:
    gradients = draw(60, 1)
    spiked = gradients.clone()
    spiked[:10] *= 100
    before, after = stability(statistics_of(gradients, 10), 10), stability(statistics_of(spiked, 10), 10)
    assert {name for name in before if before[name] != after[name]} == {"all iterations"}


def test_detrending_removes_a_drift_that_the_others_report() -> None:
    drift = torch.linspace(3, 1, 400)[:, None, None]
    values = stability(statistics_of(draw(400, 2, noise=0.01) * drift), 0)
    assert values["detrended"] < 0.25 * values[MAIN]


def test_a_reading_of_some_tensors_ignores_the_others() -> None:
    noisy = draw(100, 3)
    noisy[:, NAMES.index("embedding.weight")] *= torch.rand(100, 1, generator=torch.Generator().manual_seed(0)) * 50
    calm, wild = stability(statistics_of(draw(100, 3)), 0), stability(statistics_of(noisy), 0)
    for name in ("attention", "q and k"):
        assert wild[name] == calm[name]
    assert wild[MAIN] > 2 * calm[MAIN]


def test_norms_of_parts_make_up_the_whole() -> None:
    statistics = statistics_of(draw(9, 4))
    by_layer = layer_norms(statistics)
    assert by_layer.shape == (9, 2)
    rest = statistics.norms[:, 0].double().square()
    torch.testing.assert_close(by_layer.square().sum(1) + rest, whole_norm(statistics).square())


def test_too_few_steps_give_no_number() -> None:
    assert math.isnan(relative_deviation(torch.ones(1)))
    with pytest.raises(ValueError, match="warmup=-1: must be a whole number of at least 0"):
        stability(statistics_of(draw(5, 0)), -1)


def test_a_skipped_step_counts_in_no_reading_of_the_norms() -> None:
    plain = statistics_of(draw(40, 5), 10)
    norms = torch.cat([plain.norms[:4], torch.full((1, len(NAMES)), torch.inf), plain.norms[4:]])
    assert stability(replace(plain, norms=norms), 11) == stability(plain, 10)
