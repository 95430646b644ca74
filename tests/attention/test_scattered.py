"""Scattered blocks: DiagAttention's cost, without its locality."""

import math
import subprocess
import sys

import pytest
import torch
from attention_cases import draw_mask, draw_qkv
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import Rotary, ScatteredConfig, build
from transnormer_lib.attention.scattered import PERMUTATION_SEED, groups

each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_rotary = pytest.mark.parametrize("rotary", ["none", "rope", "lrpe"])
each_size = pytest.mark.parametrize(("block", "span"), [(16, 256), (64, 256), (64, 512), (8, 1024)])

H, D = 2, 4
sizes = st.fixed_dictionaries({"block": st.integers(1, 6), "groups": st.integers(1, 4)})
lengths, seeds = st.integers(1, 41), st.integers(0, 2**32 - 1)
# With blocks of 4 over 12 positions: one token, less than a segment, whole segments, and one cut short.
LENGTHS = (1, 5, 11, 12, 13, 24, 31)


def make(block=4, span=12, **fields):
    attention = build("scattered", {"heads": H, "head_dim": D, "block_size": block, "span": span, **fields}).double()
    if isinstance(attention.rotary, Rotary):  # not from torch's global random state
        attention.rotary.reset_parameters(torch.Generator().manual_seed(0))
    return attention


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def group_of(position, block, span):
    """(segment, group) of a position, by counting through the permutation."""
    permutation = torch.randperm(span, generator=torch.Generator().manual_seed(PERMUTATION_SEED)).tolist()
    return position // span, permutation.index(position % span) // block


def oracle(q, k, v, block, span, causal, mask=None):
    """o_BHND by loops over tokens, in plain Python."""
    b, h, n, d = q.shape
    o = torch.zeros(b, h, n, d, dtype=torch.float64)
    group = [group_of(i, block, span) for i in range(n)]
    for x, y, i in [(x, y, i) for x in range(b) for y in range(h) for i in range(n)]:
        keys = [j for j in range(n) if group[j] == group[i] and not (causal and j > i)]
        keys = [j for j in keys if mask is None or not mask[x, j]]
        query = q[x, y, i].tolist()
        scores = [sum(a * c for a, c in zip(query, k[x, y, j].tolist(), strict=True)) / math.sqrt(d) for j in keys]
        e = [math.exp(s) for s in scores]
        for weight, j in zip(e, keys, strict=True):
            for m in range(d):
                o[x, y, i, m] += weight / sum(e) * v[x, y, j, m].item()
    return o


def distances(seen):
    """How far a query's keys other than itself are from it, on average over all such pairs, for seen [N, N]."""
    query, key = seen.fill_diagonal_(False).nonzero(as_tuple=True)
    return (query - key).abs().double().mean().item()


# --- what it computes -------------------------------------------------------------------------------------


@each_impl
@each_direction
@settings(deadline=None, max_examples=15)
@given(size=sizes, n=st.integers(1, 23), seed=seeds, masked=st.booleans())
def test_it_is_softmax_attention_inside_the_groups_token_by_token(impl, causal, size, n, seed, masked):
    block, span = size["block"], size["block"] * size["groups"]
    qkv, mask = draw_qkv(2, H, n, D, seed), draw_mask(2, n, seed) if masked else None
    expected = oracle(*qkv, block, span, causal, mask)
    actual = make(block, span, causal=causal, impl=impl)(*qkv, mask)
    if mask is not None:  # what stands on padding means nothing
        actual, expected = (o.masked_fill(mask[:, None, :, None], 0.0) for o in (actual, expected))
    close(actual, expected)


@each_impl
@each_direction
def test_one_group_that_holds_everything_is_softmax_attention(impl, causal):
    qkv = draw_qkv(2, H, 13, D, seed=0)
    softmax = build("softmax", {"heads": H, "head_dim": D, "causal": causal})
    close(make(20, 20, causal=causal, impl=impl)(*qkv), softmax(*qkv))


@each_direction
def test_it_is_diag_attention_of_the_tokens_in_another_order(causal):
    block, span = 4, 12
    qkv = draw_qkv(1, H, 3 * span, D, seed=1)
    order = (groups(span, block).flatten() + span * torch.arange(3)[:, None]).flatten()
    diag = build("diag", {"heads": H, "head_dim": D, "block_size": block, "causal": causal})
    close(make(block, span, causal=causal)(*qkv)[:, :, order], diag(*(x[:, :, order] for x in qkv)))


@each_size
@each_direction
def test_it_takes_as_many_operations_as_diag_attention(block, span, causal):
    fields = {"heads": H, "head_dim": D, "causal": causal, "block_size": block}
    scattered, diag = build("scattered", {**fields, "span": span}), build("diag", fields)
    assert all(scattered.flops(n * span) == diag.flops(n * span) for n in (1, 2, 5))
    counts = [scattered.flops(n) for n in range(1, 2 * span + 1)]
    assert counts == sorted(counts)  # a segment cut short costs no more than a whole one


@each_impl
def test_rotations_are_by_the_positions_in_the_sequence(impl):
    rotated, plain = make(rotary="rope", impl=impl), make(impl=impl)
    q, k, v = draw_qkv(2, H, 31, D, seed=2)
    close(rotated(q, k, v), plain(*Rotary(D, learned=False)(q, k), v))


# --- locality is gone -------------------------------------------------------------------------------------


@each_size
def test_every_position_is_in_exactly_one_group_of_block_size(block, span):
    dealt = groups(span, block)
    assert dealt.shape == (span // block, block)
    assert sorted(dealt.flatten().tolist()) == list(range(span))
    assert all(row == sorted(row) for row in dealt.tolist())


@each_size
@each_direction
def test_a_query_sees_as_many_keys_as_in_a_block(block, span, causal):
    fields = {"heads": 1, "head_dim": 1, "causal": causal, "block_size": block}
    scattered, diag = build("scattered", {**fields, "span": span}), build("diag", fields)
    ours, theirs = (one.allowed(span, None, torch.device("cpu")).sum(1) for one in (scattered, diag))
    assert torch.equal(ours.sort().values, theirs.sort().values)


@each_size
def test_the_keys_of_a_query_are_as_far_away_as_any_two_positions(block, span):
    scattered = make(block, span).allowed(span, None, torch.device("cpu"))
    anywhere = (span + 1) / 3  # the mean distance of two different positions
    assert distances(scattered) == pytest.approx(anywhere, rel=0.1)
    diag = build("diag", {"heads": 1, "head_dim": 1, "block_size": block}).allowed(span, None, torch.device("cpu"))
    assert distances(diag) == pytest.approx((block + 1) / 3)


@each_size
def test_neighbours_share_a_group_no_more_often_than_chance(block, span):
    seen = make(block, span).allowed(span, None, torch.device("cpu"))
    together, chance = seen.diagonal(1).double().mean().item(), (block - 1) / (span - 1)
    assert abs(together - chance) <= 3 * math.sqrt(chance * (1 - chance) / span)  # three standard deviations


def test_no_query_sees_beyond_its_segment():
    seen = make(4, 12).allowed(40, None, torch.device("cpu"))
    segment = torch.arange(40) // 12
    assert not (seen & (segment[:, None] != segment[None, :])).any()


# --- the permutation is fixed -----------------------------------------------------------------------------

GROUPS_OF_4_IN_16 = [[3, 6, 9, 11], [0, 8, 10, 15], [1, 4, 12, 13], [2, 5, 7, 14]]


def test_the_permutation_is_the_one_that_stored_runs_were_trained_with():
    assert groups(16, 4).tolist() == GROUPS_OF_4_IN_16


def test_the_permutation_depends_on_no_seed_and_moves_no_random_state():
    seen = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        attention = make()
        attention.reset_parameters(torch.Generator().manual_seed(seed))
        assert torch.equal(torch.get_rng_state(), before)
        seen.append(attention.allowed(31, None, torch.device("cpu")))
    assert torch.equal(*seen)


def test_the_permutation_is_the_same_in_another_process():
    code = "from transnormer_lib.attention.scattered import groups; print(groups(256, 16).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(groups(256, 16).tolist())


def test_the_permutation_is_the_same_for_all_heads_segments_and_lengths():
    long = make().weights(*draw_qkv(1, H, 36, D, seed=3))[0] > 0
    assert torch.equal(long[0], long[1])
    assert torch.equal(long[:, :12, :12], long[:, 12:24, 12:24])
    assert torch.equal(long[:, :7, :7], make().weights(*draw_qkv(1, H, 7, D, seed=4))[0] > 0)


def test_the_permutation_is_not_stored_with_the_weights():
    assert not make().state_dict()


# --- lengths, prefixes, padding, steps --------------------------------------------------------------------


@each_direction
@each_rotary
@pytest.mark.parametrize("n", LENGTHS)
def test_a_segment_cut_short_is_computed_as_specified(causal, rotary, n):
    qkv = draw_qkv(2, H, n, D, seed=n)
    fast, reference = (make(causal=causal, rotary=rotary, impl=impl) for impl in ("chunked", "reference"))
    close(fast(*qkv), reference(*qkv))


@each_direction
def test_a_segment_cut_short_sees_no_key_that_is_not_there(causal):
    # Equal values: an average of the keys that are there returns them; anything else mixed in would not.
    for n in LENGTHS:
        q, k, v = draw_qkv(1, H, n, D, seed=0)
        v = torch.full_like(v, 2.0)
        close(make(causal=causal)(q, k, v), v)


@each_impl
@each_rotary
@settings(deadline=None, max_examples=15)
@given(n=lengths, more=st.integers(1, 30), seed=seeds)
def test_what_comes_after_a_prefix_changes_nothing_in_it(impl, rotary, n, more, seed):
    attention = make(causal=True, rotary=rotary, impl=impl)
    whole = draw_qkv(2, H, n + more, D, seed)
    other = [torch.cat([x[:, :, :n], 20.0 * x[:, :, n:]], dim=2) for x in whole]
    alone = attention(*(x[:, :, :n] for x in whole))
    close(attention(*whole)[:, :, :n], alone)
    close(attention(*other)[:, :, :n], alone)


@each_impl
@each_direction
def test_segments_do_not_see_each_other(impl, causal):
    attention, qkv = make(causal=causal, impl=impl), draw_qkv(2, H, 31, D, seed=5)
    parts = [attention(*(x[:, :, i : i + 12] for x in qkv)) for i in range(0, 31, 12)]
    close(attention(*qkv), torch.cat(parts, dim=2))


@each_impl
@each_direction
@settings(deadline=None, max_examples=15)
@given(n=lengths, seed=seeds)
def test_padding_keeps_its_place_in_the_groups_and_is_seen_by_no_query(impl, causal, n, seed):
    attention, qkv, mask = make(causal=causal, impl=impl), draw_qkv(2, H, n, D, seed), draw_mask(2, n, seed)
    w = attention.weights(*qkv, mask)
    assert not w.masked_select(mask[:, None, None, :]).any()
    seen = attention.allowed(n, None, torch.device("cpu")) & ~mask[:, None, None, :]
    assert torch.equal(w > 0, seen.expand_as(w))  # masked or not, a token stays in its group
    close(attention(*qkv, mask), w @ qkv[2].masked_fill(mask[:, None, :, None], 0.0))


@each_rotary
@pytest.mark.parametrize("start", [0, 1, 7, 12, 13, 24])
def test_steps_compute_the_parallel_form(rotary, start):
    attention, qkv = make(causal=True, rotary=rotary), draw_qkv(2, H, 40, D, seed=6)
    expected = attention(*qkv).detach()
    state = attention.initial_state(2, torch.float64)
    if start:
        _, state = attention.prefill(*(x[:, :, :start] for x in qkv))
    for i in range(start, 40):
        o, state = attention.step(*(x[:, :, i] for x in qkv), state)
        close(o, expected[:, :, i])


def test_the_recurrent_state_holds_one_segment():
    state = make(4, 12, causal=True).initial_state(3)
    assert {name: tuple(x.shape) for name, x in state.items() if name != "position"} == {
        "keys": (3, H, 12, D),
        "values": (3, H, 12, D),
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block_size": 16, "span": 100}, "span=100: must be a multiple of block_size=16"),
        ({"block_size": 16, "span": 8}, "span=8: must be a multiple of block_size=16"),
        ({"span": 0}, "span=0: must be a whole number of at least 1"),
    ],
    ids=["not-a-multiple", "smaller-than-a-block", "none"],
)
def test_a_span_that_does_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ScatteredConfig(heads=1, head_dim=1, **fields)
