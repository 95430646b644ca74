"""What ``weights`` returns, by mechanism."""

import pytest
import torch
from attention_cases import PHIS, assert_within, draw_mask, draw_qkv, make, rounding_budget, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

AVERAGES = ["softmax", "linear-1+elu", "linear-relu", "diag-softmax"]
PRODUCTS = [*AVERAGES, *(f"unscaled-{phi}" for phi in PHIS)]
MAGNITUDES = [*(f"norm-{phi}" for phi in PHIS), "diag-rela", "diag-rela-no-norm"]

cases = {"shape": shapes, "causal": st.booleans(), "masked": st.booleans()}


def weigh(variant, shape, causal, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make(variant, h, d, shape["chunk"], causal=causal)
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    if mask is not None:  # weights of padded queries mean nothing
        qkv[0] = qkv[0].masked_fill(mask[:, None, :, None], 0.0)
    return attention, qkv, mask, attention.weights(*qkv, mask)


@pytest.mark.parametrize("variant", [*AVERAGES, *MAGNITUDES])
@settings(deadline=None, max_examples=15)
@given(**cases)
def test_rows_sum_to_one_where_anything_is_seen_and_to_zero_elsewhere(variant, shape, causal, masked):
    attention, (q, k, _), mask, w = weigh(variant, shape, causal, masked)
    n = w.shape[-1]
    allowed = attention.allowed(n, mask, w.device)
    s = attention.attention_matrix(q, k, allowed).abs().sum(-1)
    # relu and ReLA may silence every key; below the floor of the denominator a scaled row sums to less than one
    floor = getattr(attention.config, "denominator_floor", 0.0)
    if hasattr(attention, "scores"):
        s = attention.scores(q, k, allowed).abs().sum(-1)
    sums = w.sum(-1)
    assert (w >= 0).all()
    assert not sums[s == 0].any()
    assert ((sums[s > floor] - 1).abs() <= 4 * n * torch.finfo(w.dtype).eps).all()


@pytest.mark.parametrize("variant", [*AVERAGES, *MAGNITUDES, *(f"unscaled-{phi}" for phi in PHIS)])
@settings(deadline=None, max_examples=10)
@given(**cases)
def test_weights_are_zero_where_a_key_may_not_be_seen(variant, shape, causal, masked):
    attention, _, mask, w = weigh(variant, shape, causal, masked)
    n = w.shape[-1]
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    hidden = torch.zeros(w.shape, dtype=torch.bool)
    if causal:
        hidden |= j > i
    if mask is not None:
        hidden |= mask[:, None, None, :]
    if attention.name == "diag":
        hidden |= i // attention.config.block_size != j // attention.config.block_size
    assert not w[hidden].any()


@pytest.mark.parametrize("variant", PRODUCTS)
@settings(deadline=None, max_examples=10)
@given(**cases)
def test_weights_times_values_are_the_output(variant, shape, causal, masked):
    attention, qkv, mask, w = weigh(variant, shape, causal, masked)
    assert_within(w @ qkv[2], attention(*qkv, mask), rounding_budget(attention, *qkv, mask))


@pytest.mark.parametrize("variant", ["linear-1+elu", "linear-relu", "softmax", "diag-softmax"])
@settings(deadline=None, max_examples=15)
@given(shape=shapes, causal=st.booleans())
def test_an_average_stays_between_the_least_and_the_greatest_value(variant, shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    attention = make(variant, h, d, shape["chunk"], causal=causal)
    q, k, v = draw_qkv(b, h, n, d, shape["seed"])
    o = attention(q, k, v)
    budget = rounding_budget(attention, q, k, v)
    # relu may silence every key of a query, whose output is then zero: zero joins the hull
    least, greatest = (v.amin(2, keepdim=True), v.amax(2, keepdim=True))
    if variant == "linear-relu":
        least, greatest = least.clamp(max=0), greatest.clamp(min=0)
    assert (o >= least - budget).all()
    assert (o <= greatest + budget).all()
