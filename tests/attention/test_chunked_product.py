"""The causal chunked product against its own formula."""

import pytest
import torch
import torch.nn.functional as F
from attention_cases import assert_within, draw_qkv, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import causal_attention, product_and_normaliser
from transnormer_lib.attention.blockwise import Product


def causal_product(q, k, v, chunk_size):
    return causal_attention(q, k, v, None, Product(chunk_size))


def magnitude_budget(q, k, v):
    return 2 * torch.finfo(q.dtype).eps * (q.shape[2] + q.shape[3] + 8) * (q.abs() @ k.abs().mT @ v.abs())


@settings(deadline=None, max_examples=60)
@given(shape=shapes, wider=st.integers(0, 3))
def test_it_equals_the_masked_square_for_every_length_chunk_and_value_width(shape, wider):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d + wider, shape["seed"])
    q, k = q[..., :d], k[..., :d]
    square = (q @ k.mT).tril() @ v
    assert_within(causal_product(q, k, v, shape["chunk"]), square, magnitude_budget(q, k, v))


@settings(deadline=None, max_examples=30)
@given(shape=shapes, causal=st.booleans())
def test_the_normaliser_of_the_same_pass_is_the_row_sum(shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    s = (q @ k.mT).tril() if causal else q @ k.mT
    if causal:
        t, z = causal_product(q, k, F.pad(v, (0, 1), value=1.0), shape["chunk"]).split([d, 1], dim=-1)
    else:
        t, z = product_and_normaliser(q, k, v)
    assert_within(t, s @ v, magnitude_budget(q, k, v))
    assert_within(z, s.sum(-1, keepdim=True), magnitude_budget(q, k, torch.ones_like(v[..., :1])))


@settings(deadline=None, max_examples=20)
@given(shape=shapes)
def test_the_last_causal_row_is_the_last_bidirectional_row(shape):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    last = causal_product(q, k, v, shape["chunk"])[:, :, -1]
    assert_within(last, (q @ (k.mT @ v))[:, :, -1], magnitude_budget(q, k, v)[:, :, -1])


@pytest.mark.parametrize("n", [3, 4, 7, 9], ids=["one-short-chunk", "one-chunk", "ragged", "long-ragged"])
def test_first_and_second_derivatives_equal_finite_differences(n):
    inputs = [x.requires_grad_() for x in draw_qkv(1, 2, n, 2, seed=0)]
    assert torch.autograd.gradcheck(lambda *x: causal_product(*x, 4), inputs)
    assert torch.autograd.gradgradcheck(lambda *x: causal_product(*x, 4), inputs)


def test_inputs_that_are_transposed_views_give_the_same():
    q, k, v = draw_qkv(2, 3, 11, 4, seed=1)
    views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(causal_product(*views, 4), causal_product(q, k, v, 4))
