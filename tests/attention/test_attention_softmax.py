"""Softmax attention against PyTorch's, and the softmax that knows empty rows."""

import pytest
import torch
import torch.nn.functional as F
from attention_cases import assert_within, draw_mask, draw_qkv, make, rounding_budget, shapes
from hypothesis import given, settings

from transnormer_lib.attention import masked_softmax


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@settings(deadline=None, max_examples=20)
@given(shape=shapes)
def test_the_reference_equals_pytorchs_attention(causal, shape):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    attention = make("softmax", h, d, causal=causal, impl="reference")
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert_within(attention(q, k, v), expected, rounding_budget(attention, q, k, v))


@settings(deadline=None, max_examples=20)
@given(shape=shapes)
def test_a_masked_softmax_is_the_softmax_of_what_is_allowed(shape):
    n = shape["n"]
    s = draw_qkv(1, 1, 1, n, shape["seed"], scale=5.0)[0].flatten()
    allowed = ~draw_mask(1, n, shape["seed"])[0]
    p = masked_softmax(s, allowed)
    assert not p[~allowed].any()
    unit = 8 * n * torch.finfo(s.dtype).eps
    if allowed.any():
        assert ((p[allowed] - s[allowed].softmax(0)).abs() <= unit).all()


def test_an_empty_row_has_weights_and_gradient_zero():
    s = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    allowed = torch.tensor([[False, False, False], [True, False, True]])
    p = masked_softmax(s, allowed)
    (p * torch.arange(6.0).view(2, 3)).sum().backward()
    assert not p[0].any()
    assert s.grad is not None
    assert not s.grad[0].any()
    assert s.grad[1].any()
