"""DiagAttention: attention that never leaves its block."""

import pytest
import torch
from attention_cases import assert_within, draw_qkv, make, rounding_budget, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import DiagConfig, build

each_scores = pytest.mark.parametrize("scores", ["softmax", "rela"])


@settings(deadline=None, max_examples=20)
@given(shape=shapes, causal=st.booleans(), more=st.integers(0, 9))
def test_one_block_that_holds_everything_is_softmax_attention(shape, causal, more):
    b, h, n, d = (shape[x] for x in "bhnd")
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    diag = make("diag-softmax", h, d, n + more, causal=causal)
    softmax = make("softmax", h, d, causal=causal)
    assert_within(diag(*qkv), softmax(*qkv), rounding_budget(softmax, *qkv))


@each_scores
@settings(deadline=None, max_examples=20)
@given(shape=shapes, causal=st.booleans())
def test_each_block_alone_gives_its_part_of_the_whole(scores, shape, causal):
    b, h, n, d = (shape[x] for x in "bhnd")
    w = shape["chunk"]
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    attention = make(f"diag-{scores}", h, d, w, causal=causal)
    parts = [attention(*(x[:, :, i : i + w] for x in qkv)) for i in range(0, n, w)]
    assert_within(torch.cat(parts, dim=2), attention(*qkv), rounding_budget(attention, *qkv))


@each_scores
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("rotary", ["rope", "lrpe"])
@settings(deadline=None, max_examples=10)
@given(shape=shapes, blocks=st.integers(1, 5), causal=st.booleans())
def test_blocks_may_change_places_because_positions_start_anew_in_each(scores, impl, rotary, shape, blocks, causal):
    b, h, w, d = shape["b"], shape["h"], shape["chunk"], 2 * shape["d"]
    attention = make(f"diag-{scores}", h, d, w, causal=causal, impl=impl, rotary=rotary)
    qkv = draw_qkv(b, h, blocks * w, d, shape["seed"])
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(shape["seed"]))
    places = (order[:, None] * w + torch.arange(w)).flatten()
    moved = attention(*(x[:, :, places] for x in qkv))
    budget = rounding_budget(attention, *qkv)[:, :, places]
    assert_within(moved, attention(*qkv)[:, :, places], 4 * d * budget)  # turning mixes d numbers once more


@each_scores
def test_a_ragged_last_block_sees_no_key_that_is_not_there(scores):
    # Equal values: an average of the five real keys returns them; zeros mixed in would pull it down.
    q, k, _ = draw_qkv(1, 2, 5, 3, seed=0)
    v = torch.full_like(q, 2.0)
    attention = make(f"diag-{scores}", 2, 3, chunk=64, norm="none")
    if scores == "softmax":
        torch.testing.assert_close(attention(q, k, v), v)
    else:
        expected = (q @ k.mT / 3**0.5).relu().sum(-1, keepdim=True) * 2.0
        torch.testing.assert_close(attention(q, k, v), expected.expand_as(v))


@pytest.mark.parametrize(
    ("fields", "norm"),
    [
        ({"scores": "softmax"}, "none"),
        ({"scores": "rela"}, "rms"),
        ({"scores": "rela", "norm": "none"}, "none"),
        ({"scores": "softmax", "norm": "rms"}, "rms"),
    ],
    ids=["T2", "T1", "rela-without", "softmax-with"],
)
def test_the_output_norm_is_the_papers_unless_given(fields, norm):
    assert DiagConfig(heads=2, head_dim=4, **fields).output_norm == norm
    attention = build("diag", {"heads": 2, "head_dim": 4, **fields})
    assert (attention.norm is not None) == (norm == "rms")


def test_the_released_block_is_the_default():
    assert DiagConfig(heads=1, head_dim=1).block_size == 64
