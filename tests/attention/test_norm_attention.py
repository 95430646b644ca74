"""NormAttention: what its norm fixes, and the weights that this project shows for it."""

import pytest
import torch
from attention_cases import PHIS, draw_qkv, make, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import magnitude_weights

EPS = torch.finfo(torch.float64).eps


@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("over", ["embedding", "head"])
@settings(deadline=None, max_examples=10)
@given(shape=shapes, causal=st.booleans())
def test_output_rms_is_one_over_what_is_normalised_as_eps_vanishes(placement, phi, over, shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    tiny = 1e-200
    attention = make(
        f"norm-{phi}", h, d, shape["chunk"], causal=causal, eps=tiny, eps_placement=placement, norm_over=over
    )
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    o = attention(q, k, v)
    dims = (1, 3) if over == "embedding" else (3,)
    rms = o.square().mean(dims).sqrt()
    nonzero = rms > 0  # relu may silence every key of a query
    assert ((rms[nonzero] - 1).abs() <= 8 * (h * d + 4) * EPS).all()
    if phi == "1+elu":
        assert nonzero.all()


@settings(deadline=None, max_examples=15)
@given(shape=shapes, causal=st.booleans(), phi=st.sampled_from(["elu", "1+elu"]))
def test_a_layer_norm_leaves_mean_zero_and_no_more_than_unit_variance(shape, causal, phi):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make(f"norm-{phi}", h, d, shape["chunk"], causal=causal, norm="layer", eps=1e-5)
    o = attention(*draw_qkv(b, h, n, d, shape["seed"]))
    unit = 64 * h * d * EPS * (1 + o.abs().max())
    # the mean is off by rounding of the product, blown up by at most 1/sqrt(ε)
    product = make(f"unscaled-{phi}", h, d, causal=causal, impl="reference")(*draw_qkv(b, h, n, d, shape["seed"]))
    assert (o.mean((1, 3)).abs() <= unit + h * d * EPS * product.abs().max() / 1e-5**0.5).all()
    assert (o.square().mean((1, 3)) <= 1 + unit).all()


@settings(deadline=None, max_examples=15)
@given(shape=shapes, factor=st.floats(0.01, 100.0), causal=st.booleans())
def test_the_scale_of_the_values_cancels_as_eps_vanishes(shape, factor, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make("norm-1+elu", h, d, shape["chunk"], causal=causal, eps=1e-200)
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    v = v.abs() + 0.1  # no cancellation inside the sums, so that rounding stays relative
    torch.testing.assert_close(attention(q, k, factor * v), attention(q, k, v), rtol=1e3 * n * EPS, atol=0)


def test_the_place_of_eps_matters_where_the_product_is_small():
    q, k, v = draw_qkv(1, 2, 6, 3, seed=0)
    inside, outside = (
        make("norm-elu", 2, 3, eps=1e-4, eps_placement=place)(q, k, 1e-3 * v) for place in ("inside", "outside")
    )
    product = make("unscaled-elu", 2, 3)(q, k, 1e-3 * v)
    rms = product.square().mean((1, 3), keepdim=True).sqrt()
    torch.testing.assert_close(inside, product / (rms.square() + 1e-4).sqrt())
    torch.testing.assert_close(outside, product / (rms + 1e-4))
    assert (inside.abs() < outside.abs()).all()


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 0),
        ({"affine": True}, 12),
        ({"affine": True, "norm_over": "head"}, 4),
        ({"affine": True, "norm": "layer"}, 24),
        ({"affine": True, "norm": "scale"}, 1),
        ({"norm": "scale"}, 0),
    ],
    ids=["released", "gain", "gain-per-head", "gain-and-bias", "one-number", "fixed-number"],
)
def test_learned_parameters_are_those_of_the_norm(fields, count):
    assert sum(p.numel() for p in make("norm-elu", 3, 4, **fields).parameters()) == count


def test_its_weights_are_shares_of_magnitude_and_ignore_the_sign():
    s = torch.tensor([[1.0, -3.0], [0.0, 0.0]])
    assert torch.equal(magnitude_weights(s), torch.tensor([[0.25, 0.75], [0.0, 0.0]]))
    assert torch.equal(magnitude_weights(-s), magnitude_weights(s))


def test_its_weights_do_not_depend_on_the_scale_of_the_scores():
    s = draw_qkv(1, 1, 4, 4, seed=0)[0]
    torch.testing.assert_close(magnitude_weights(1e-100 * s), magnitude_weights(s), rtol=16 * EPS, atol=0)
