"""What must not matter does not: the future of a causal mechanism, and padding of every mechanism."""

import pytest
import torch
from attention_cases import VARIANTS, assert_within, draw_mask, draw_qkv, make, rounding_budget, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
each_rotary = pytest.mark.parametrize("rotary", ["none", "lrpe"])  # lrpe is rope and a reflection


def even(d: int, rotary: str) -> int:
    """d, rounded up to an even number where pairs of features are rotated."""
    return d if rotary == "none" else d + d % 2


@each_variant
@each_impl
@each_rotary
@settings(deadline=None, max_examples=5)
@given(shape=shapes, where=st.floats(0, 1), masked=st.booleans())
def test_the_future_does_not_change_the_past(variant, impl, rotary, shape, where, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    d, cut = even(d, rotary), round(where * n)
    attention = make(variant, h, d, shape["chunk"], causal=True, impl=impl, rotary=rotary)
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    one = draw_qkv(b, h, n, d, shape["seed"])
    two = [
        torch.cat([x[:, :, :cut], y[:, :, cut:]], dim=2)
        for x, y in zip(one, draw_qkv(b, h, n, d, shape["seed"] ^ 1, scale=50.0), strict=True)
    ]
    assert torch.equal(attention(*one, mask)[:, :, :cut], attention(*two, mask)[:, :, :cut])


@each_variant
@each_impl
@settings(deadline=None, max_examples=10)
@given(shape=shapes, where=st.floats(0.01, 1), masked=st.booleans())
def test_a_prefix_alone_gives_the_prefix_of_the_whole(variant, impl, shape, where, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    cut = max(1, round(where * n))
    attention = make(variant, h, d, shape["chunk"], causal=True, impl=impl)
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    prefix = attention(*(x[:, :, :cut] for x in qkv), None if mask is None else mask[:, :cut])
    budget = rounding_budget(attention, *qkv, mask)[:, :, :cut]
    assert_within(prefix, attention(*qkv, mask)[:, :, :cut], budget)


@each_variant
@each_impl
@settings(deadline=None, max_examples=10)
@given(shape=shapes, causal=st.booleans(), extra=st.integers(1, 12))
def test_appending_padding_changes_nothing(variant, impl, shape, causal, extra):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make(variant, h, d, shape["chunk"], causal=causal, impl=impl)
    longer = draw_qkv(b, h, n + extra, d, shape["seed"])
    mask = (torch.arange(n + extra) >= n).expand(b, -1)
    qkv = [x[:, :, :n] for x in longer]
    budget = rounding_budget(attention, *longer, mask)[:, :, :n]
    assert_within(attention(*longer, mask)[:, :, :n], attention(*qkv), budget)


@pytest.mark.slow
@each_variant
@each_impl
@each_rotary
@pytest.mark.parametrize("content", [-3.0, 1e6, float("inf"), float("nan")])
@settings(deadline=None, max_examples=2)
@given(shape=shapes, causal=st.booleans())
def test_the_content_of_padding_is_irrelevant(variant, impl, rotary, content, shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    d = even(d, rotary)
    attention = make(variant, h, d, shape["chunk"], causal=causal, impl=impl, rotary=rotary)
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    mask = draw_mask(b, n, shape["seed"])
    expected = attention(q, k, v, mask)
    for x in (k, v):
        x.transpose(1, 2)[mask] = content
    assert torch.equal(attention(q, k, v, mask), expected)


# an affine LayerNorm maps zero to its bias
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "norm-layer-per-head-affine"])
@each_impl
@each_rotary
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_a_query_without_a_key_gets_zeros(variant, impl, rotary, causal):
    d = even(3, rotary)
    q, k, v = draw_qkv(2, 2, 9, d, seed=4)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0] = True
    mask[1, :2] = True  # causal: the first two queries of the second sequence see nothing
    o = make(variant, 2, d, chunk=4, causal=causal, impl=impl, rotary=rotary)(q, k, v, mask)
    assert not o[0].any()
    assert o[1, :, 3:].any()
    if causal:
        assert not o[1, :, :2].any()


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.startswith("diag")])
@each_impl
@settings(deadline=None, max_examples=5)
@given(shape=shapes, masked=st.booleans())
def test_bidirectional_attention_is_permutation_equivariant(variant, impl, shape, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make(variant, h, d, shape["chunk"], impl=impl)
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(shape["seed"]))
    shuffled = attention(*(x[:, :, order] for x in qkv), None if mask is None else mask[:, order])
    budget = rounding_budget(attention, *qkv, mask)[:, :, order]
    assert_within(shuffled, attention(*qkv, mask)[:, :, order], budget)
