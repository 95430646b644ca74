"""The discretised mixture of logistics is a distribution, and draws follow it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pixel_cases import decoder

from transnormer_lib.models.language_model import build_model
from transnormer_lib.models.logistics import LEAST_LOG_SCALE, MOST_LOG_SCALE, Mixtures
from transnormer_lib.studies.image_generation.mixtures import chi_square_p, random_mixtures, sum_error

outputs = st.lists(st.floats(-40, 40), min_size=3, max_size=30).filter(lambda x: len(x) % 3 == 0)


@settings(max_examples=200, deadline=None)
@given(outputs, st.integers(2, 300))
def test_the_probabilities_of_all_values_sum_to_one(numbers: list[float], values: int) -> None:
    mixture = Mixtures.of(torch.tensor([numbers], dtype=torch.float64), values)
    assert sum_error(mixture) < 1e-10


@settings(max_examples=50, deadline=None)
@given(outputs, st.integers(0, 255))
def test_a_probability_is_the_equation_s(numbers: list[float], x: int) -> None:
    mixture = Mixtures.of(torch.tensor(numbers, dtype=torch.float64), 256)
    count, total = len(numbers) // 3, 0.0
    weights = [math.exp(a - max(numbers[:count])) for a in numbers[:count]]
    for k in range(count):
        mean, scale = numbers[count + k], math.exp(min(max(numbers[2 * count + k], LEAST_LOG_SCALE), MOST_LOG_SCALE))
        y = 2 * x / 255 - 1

        def sigma(z: float) -> float:
            return 1 / (1 + math.exp(-z)) if z > -700 else 0.0

        upper = 1.0 if x == 255 else sigma((y + 1 / 255 - mean) / scale)
        lower = 0.0 if x == 0 else sigma((y - 1 / 255 - mean) / scale)
        total += weights[k] / sum(weights) * (upper - lower)
    assert math.exp(float(mixture.log_probability(torch.tensor(x)))) == pytest.approx(total, abs=1e-12)


def test_in_float32_they_sum_to_one_up_to_rounding() -> None:
    many = random_mixtures(64, 10, 256, torch.Generator().manual_seed(0))
    single = Mixtures(many.log_weights.float(), many.means.float(), many.log_scales.float(), 256)
    assert sum_error(single) < 1e-4


@pytest.mark.parametrize("number", range(4))
def test_draws_follow_the_distribution(number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    one = random_mixtures(1, 10, 256, generator)
    copies = Mixtures(*(part.expand(20_000, -1) for part in (one.log_weights, one.means, one.log_scales)), 256)
    single = Mixtures(one.log_weights[0], one.means[0], one.log_scales[0], 256)
    draws = copies.draw(generator)
    assert chi_square_p(single, draws) > 1e-4
    assert chi_square_p(single, (draws + 20).clamp(max=255)) < 1e-4, "the test must be able to fail"


def test_a_far_mean_puts_everything_into_the_last_bin() -> None:
    mixture = Mixtures.of(torch.tensor([[0.0, 50.0, -3.0]]), 256)
    assert float(mixture.log_probability(torch.tensor([255]))) == pytest.approx(0.0, abs=1e-6)
    assert torch.isfinite(mixture.log_probabilities()).all()
    assert mixture.draw().tolist() == [255]


@pytest.mark.parametrize("width", [0, 4])
def test_outputs_must_be_three_per_component(width: int) -> None:
    with pytest.raises(ValueError, match=r"outputs\.shape"):
        Mixtures.of(torch.zeros(2, width), 256)


def test_a_decoder_s_loss_is_the_mean_over_the_values_and_its_logits_are_log_probabilities() -> None:
    model = build_model(decoder(), 0)
    ids = torch.randint(256, (3, 12))
    logits = model(ids[:, :-1])
    assert float((logits.exp().sum(-1) - 1).abs().max()) < 1e-4
    by_hand = -logits.gather(-1, ids[:, 1:, None]).mean()
    assert float(model(ids[:, :-1], targets_BN=ids[:, 1:])) == pytest.approx(float(by_hand), rel=1e-5)


@pytest.mark.parametrize("fields", [{"kind": "encoder"}, {"tied": True}, {"output_bias": True}], ids=str)
def test_only_a_decoder_without_another_output_has_a_mixture(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"logistics=10|output_bias=True"):
        decoder(**fields)


@pytest.mark.parametrize("x", [0, 7, 255])
@pytest.mark.parametrize("log_scale", [-90.0, 90.0, 1e4])
def test_gradients_are_finite_whatever_the_scale(log_scale: float, x: int) -> None:
    outputs = torch.tensor([0.0, 0.3, log_scale], requires_grad=True)
    Mixtures.of(outputs, 256).log_probability(torch.tensor(x)).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_one_mixture_gives_one_value() -> None:
    value = Mixtures.of(torch.zeros(30), 256).draw(torch.Generator().manual_seed(0))
    assert value.shape == ()
    assert 0 <= int(value) <= 255
