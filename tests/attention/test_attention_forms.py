"""The forms of a mechanism agree: loops = reference = chunked, in values and gradients, in every dtype."""

import pytest
import torch
from attention_cases import VARIANTS, assert_within, draw_mask, draw_qkv, make, oracle, rounding_budget, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import blockwise

each_variant = pytest.mark.parametrize("variant", VARIANTS)
WITHOUT_GAIN = [v for v, (_, fields) in VARIANTS.items() if not fields.get("affine")]

# Scaled by a signed sum that the clamp lifts to 1e-6, outputs of about 1e6 are right, and beyond float16.
IN_RANGE = [v for v in VARIANTS if v not in ("linear-elu", "linear-identity")]


@each_variant
@settings(deadline=None, max_examples=25)
@given(shape=shapes, causal=st.booleans(), masked=st.booleans())
def test_chunked_equals_reference(variant, shape, causal, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    reference = make(variant, h, d, shape["chunk"], causal=causal, impl="reference")
    chunked = make(variant, h, d, shape["chunk"], causal=causal, impl="chunked")
    assert_within(chunked(q, k, v, mask), reference(q, k, v, mask), rounding_budget(reference, q, k, v, mask))


@pytest.mark.parametrize("variant", WITHOUT_GAIN)
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@settings(deadline=None, max_examples=5)
@given(n=st.integers(1, 7), causal=st.booleans(), masked=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_each_form_equals_a_loop_over_tokens(variant, impl, n, causal, masked, seed):
    q, k, v = draw_qkv(2, 2, n, 3, seed)
    mask = draw_mask(2, n, seed) if masked else None
    attention = make(variant, 2, 3, chunk=3, causal=causal, impl=impl)
    budget = rounding_budget(attention, q, k, v, mask)
    o, expected = attention(q, k, v, mask), oracle(attention, q, k, v, mask)
    if mask is not None:  # what stands at padded queries means nothing
        o, expected = (x.masked_fill(mask[:, None, :, None], 0.0) for x in (o, expected))
    assert_within(o, expected, budget)


@pytest.mark.slow
@each_variant
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(
    ("masked", "rotary"), [(False, "none"), (True, "none"), (True, "lrpe")], ids=["unmasked", "masked", "masked-lrpe"]
)
def test_chunked_gradient_equals_finite_differences(variant, causal, masked, rotary):
    attention = make(variant, 2, 2, chunk=3, causal=causal, impl="chunked", rotary=rotary)
    q, k, v = draw_qkv(1, 2, 7, 2, seed=0)
    # Finite differences mean nothing across the kinks of elu and relu at zero: keep queries and keys off it.
    q, k = (x.sign() * (0.1 + x.abs()) for x in (q, k))
    mask = torch.tensor([[False, True, False, False, False, True, False]]) if masked else None
    # ReLA and relu have a kink in the scores as well; a row of theirs may also be all zero, which the norm
    # turns into a slope of 1/sqrt(ε). A larger ε keeps that slope within what a difference quotient resolves.
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if hasattr(attention, "norm") and attention.norm is not None:
        attention.norm.eps = 1e-2
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask), inputs)


@each_variant
@settings(deadline=None, max_examples=10)
@given(shape=shapes, causal=st.booleans())
def test_gradients_are_finite_and_zero_on_padding(variant, shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    q, k, v = (x.requires_grad_() for x in draw_qkv(b, h, n, d, shape["seed"]))
    mask = draw_mask(b, n, shape["seed"])
    make(variant, h, d, shape["chunk"], causal=causal)(q, k, v, mask).square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
    for x in (k, v):
        assert not x.grad.transpose(1, 2)[mask].any()


@pytest.mark.parametrize("variant", IN_RANGE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_half_precision_errs_by_its_own_rounding_only(variant, dtype, causal, impl, monkeypatch):
    monkeypatch.setattr(blockwise, "_BFLOAT16_PRODUCTS", False)  # what a CPU does that has none; see test_blockwise
    q, k, v = (x.to(dtype) for x in draw_qkv(2, 2, 50, 4, seed=1))
    attention = make(variant, 2, 4, chunk=16, causal=causal, impl=impl)
    exact = attention(q.double(), k.double(), v.double())
    o = attention.to(dtype)(q, k, v)
    assert o.dtype == dtype
    eps = torch.finfo(dtype).eps
    budget = rounding_budget(attention, q, k, v, eps=torch.finfo(torch.float32).eps) + eps * exact.abs()
    if variant == "softmax":  # the fused kernel rounds its weights to the input's dtype as well
        budget = budget + eps * (attention.attention_matrix(q.double(), k.double(), None).amax() * v.abs().sum())
    for parameter in attention.parameters():  # so are the gains rounded, once, by attention.to
        budget = budget + eps * parameter.double().abs().max() * (1 + exact.abs())
    assert_within(o, exact, budget)


def test_norm_attention_survives_products_beyond_float16():
    q, k, v = (x.half() for x in draw_qkv(1, 2, 400, 8, seed=2, scale=20.0))
    attention = make("norm-identity", 2, 8, causal=True)
    product = attention.attention_matrix(q.double(), k.double(), None) @ v.double()
    assert product.abs().max() > torch.finfo(torch.float16).max
    assert attention(q, k, v).isfinite().all()


@each_variant
@pytest.mark.parametrize("rotary", ["none", "lrpe"])
def test_autocast_does_not_change_float32_inputs(variant, rotary):
    q, k, v = (x.float() for x in draw_qkv(1, 2, 9, 4, seed=3))
    attention = make(variant, 2, 4, chunk=4, causal=True, rotary=rotary).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = attention(q, k, v)
    assert torch.equal(inside, attention(q, k, v))
