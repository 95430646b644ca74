"""Per-layer measurements in a deep model equal autograd, and the one-layer bounds hold in every layer."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.analysis.kernel_maps import KERNELS
from transnormer_lib.analysis.layerwise import Stack, layer_gradients, measure_layer
from transnormer_lib.attention import build, scale_rows

MECHANISMS = ["softmax", "linear", "norm"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_largest_score_gradient_equals_autograd_through_the_scores(mechanism):
    stack = Stack(mechanism, length=7, dim=12, heads=3, batch=2, eps=1e-4)
    q, k, v, g = torch.randn(4, 2, 3, 7, 4, generator=seeded(), dtype=torch.float64)
    if mechanism == "softmax":
        s = (q @ k.mT / math.sqrt(4)).requires_grad_()
        o = s.softmax(-1) @ v
    else:
        phi = KERNELS["1+elu"].phi
        s = (phi(q) @ phi(k).mT).requires_grad_()
        norm = build("norm", {"heads": 3, "head_dim": 4, "phi": "1+elu", "eps": 1e-4})
        o = scale_rows(s) @ v if mechanism == "linear" else norm.finish(s @ v)
    (gradient,) = torch.autograd.grad((o * g).sum(), s)
    largest = measure_layer(stack, {"q": q, "k": k, "v": v, "g": g})[3]
    assert largest == pytest.approx(float(gradient.abs().max()), rel=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31), gain=st.floats(0.2, 8), depth=st.integers(1, 5))
def test_the_sharp_bound_holds_in_every_layer(mechanism, seed, gain, depth):
    found = layer_gradients(Stack(mechanism, depth=depth, length=8, gain=gain), seeded(seed))
    assert found.holds
    assert found.largest.shape == (depth,)
    assert bool((found.largest > 0).all())


def test_large_weights_amplify_the_upstream_gradient_of_the_first_layer():
    gains = [layer_gradients(Stack("softmax", gain=gain), seeded()).c1[[0, -1]].tolist() for gain in (1.0, 8.0)]
    ratios = [first / last for first, last in gains]
    assert ratios[1] > 10 * ratios[0]


def test_the_same_generator_gives_the_same_measurement():
    first, second = (layer_gradients(Stack("norm", depth=2), seeded(5)) for _ in range(2))
    for field in dataclasses.fields(first):
        assert torch.equal(getattr(first, field.name), getattr(second, field.name))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mechanism": "diag"}, "mechanism='diag'"),
        ({"mechanism": "norm", "depth": 0}, "depth=0"),
        ({"mechanism": "norm", "dim": 10, "heads": 4}, "dim=10"),
        ({"mechanism": "norm", "gain": 0.0}, "gain=0.0"),
    ],
    ids=lambda x: str(x),
)
def test_a_stack_that_cannot_be_built_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Stack(**fields)
