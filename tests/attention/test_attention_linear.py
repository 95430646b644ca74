"""Linear attention with and without scaling."""

import pytest
import torch
from attention_cases import PHIS, assert_within, draw_qkv, make, rounding_budget, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import build, scale_rows


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@settings(deadline=None, max_examples=15)
@given(shape=shapes)
def test_scaling_divides_the_unscaled_output_by_its_row_sum(causal, shape):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    scaled = make("linear-1+elu", h, d, shape["chunk"], causal=causal)
    unscaled = make("unscaled-1+elu", h, d, shape["chunk"], causal=causal)
    row_sum = unscaled(q, k, torch.ones_like(v))
    ratio = unscaled(q, k, v) / row_sum
    assert_within(scaled(q, k, v), ratio, 2 * rounding_budget(scaled, q, k, v))


@settings(deadline=None, max_examples=15)
@given(shape=shapes, factor=st.floats(0.5, 20.0), phi=st.sampled_from(["relu", "identity"]))
def test_unscaled_output_grows_with_the_queries_and_scaled_output_does_not(shape, factor, phi):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    unscaled = make(f"unscaled-{phi}", h, d, shape["chunk"])
    budget = factor * rounding_budget(unscaled, q, k, v)
    assert_within(unscaled(factor * q, k, v), factor * unscaled(q, k, v), budget)
    # relu is homogeneous, so the factor cancels, unless the row sum is below its floor
    scaled = make("linear-relu", h, d, shape["chunk"], denominator_floor=1e-300)
    assert_within(scaled(factor * q, k, v), scaled(q, k, v), 2 * rounding_budget(scaled, q, k, v))


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_the_denominator_is_clamped_at_its_floor(impl, causal, floor):
    # one query and key with similarity 1e-8, far below either floor
    q = k = torch.full((1, 1, 1, 1), 1e-4, dtype=torch.float64)
    v = torch.ones_like(q)
    attention = build(
        "linear", {"heads": 1, "head_dim": 1, "phi": "relu", "causal": causal, "impl": impl, "denominator_floor": floor}
    )
    torch.testing.assert_close(attention(q, k, v), torch.full_like(v, 1e-8 / floor))


def test_a_vanishing_row_of_scores_keeps_a_finite_gradient():
    s = torch.zeros(2, 3, requires_grad=True)
    scale_rows(s).sum().backward()
    assert s.grad is not None
    assert s.grad.isfinite().all()


@pytest.mark.parametrize("phi", PHIS)
def test_scores_are_products_of_features(phi):
    q, k, _ = draw_qkv(1, 2, 5, 3, seed=0)
    attention = make(f"unscaled-{phi}", 2, 3)
    phi_q, phi_k = attention.features(q, k)
    expected = torch.einsum("bhid,bhjd->bhij", phi_q, phi_k)
    torch.testing.assert_close(attention.attention_matrix(q, k, None), expected)
    single = attention.attention_matrix(q[0, 0], k[0, 0], None)  # a pair of matrices will do
    torch.testing.assert_close(single, expected[0, 0])
