"""Feature maps: values, signs and names."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.attention import FEATURE_MAPS, feature_map
from transnormer_lib.attention.feature_maps import degree_two, slope

numbers = st.floats(-30, 30)


@given(x=numbers)
def test_values_follow_their_definitions(x):
    expected = {
        "elu": x if x > 0 else math.expm1(x),
        "1+elu": x + 1 if x > 0 else math.exp(x),
        "relu": max(x, 0.0),
        "identity": x,
    }
    assert set(expected) == set(FEATURE_MAPS)
    for name, value in expected.items():
        y = feature_map(name)(torch.tensor([x], dtype=torch.float64)).item()
        # 1 + elu rounds at the size of one
        assert abs(y - value) <= 4 * torch.finfo(torch.float64).eps * (1 + abs(value))


@pytest.mark.parametrize("name", ["1+elu", "relu"])
@given(x=numbers)
def test_the_maps_for_scaled_attention_are_never_negative(name, x):
    assert feature_map(name)(torch.tensor([x])).item() >= 0


@pytest.mark.parametrize("name", FEATURE_MAPS)
@given(x=numbers)
def test_the_slope_taken_from_the_value_is_the_derivative(name, x):
    point = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    y = feature_map(name)(point)
    (expected,) = torch.autograd.grad(y, point)
    found = slope(name, y.detach())
    assert abs((1.0 if found is None else found.item()) - expected.item()) <= 4 * torch.finfo(torch.float64).eps


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"phi='1\+elo': must be one of 'elu', '1\+elu', 'relu', 'identity'"):
        feature_map("1+elo")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_plus_elu_never_falls_below_its_derivative(dtype: torch.dtype) -> None:
    """φ' ≤ φ, exactly, far into the negatives too: what bounds the gradient of scaled 1+elu attention in q and k."""
    x = torch.linspace(-120.0, 20.0, 2801, dtype=dtype, requires_grad=True)
    y = feature_map("1+elu")(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert bool((slope <= y).all())
    assert bool((y[x > -80] > 0).all())


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_the_features_of_degree_two_give_the_squared_inner_product_exactly(dim):
    q, k = torch.randn(2, 30, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)
    phi_q, phi_k = degree_two(q), degree_two(k)
    assert phi_q.shape == (30, dim * (dim + 1) // 2)
    torch.testing.assert_close(phi_q @ phi_k.mT, (q @ k.mT).square(), rtol=1e-12, atol=1e-12)
