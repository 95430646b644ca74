"""The recurrent form: token by token it gives what the parallel form gives, from a state that can be put away."""

import io
import re

import pytest
import torch
from attention_cases import NAMES, VARIANTS, draw_qkv, make_tame
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import build

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_rotary = pytest.mark.parametrize("rotary", ["none", "rope", "lrpe"])
shapes = st.fixed_dictionaries(
    {
        "b": st.integers(1, 2),
        "h": st.integers(1, 2),
        "n": st.integers(1, 40),
        "half_d": st.integers(1, 3),
        "chunk": st.integers(1, 9),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def steps(attention, qkv, start, state):
    """The outputs [B, H, N − start, D] of steps over the tokens from ``start`` on, and the last state."""
    outputs = []
    for i in range(start, qkv[0].shape[2]):
        o_BHD, state = attention.step(*(x[:, :, i] for x in qkv), state)
        outputs.append(o_BHD)
    return outputs, state


def elements(state) -> int:
    return sum(x.numel() for x in state.values())


@pytest.mark.slow
@each_variant
@each_rotary
@settings(deadline=None, max_examples=6)
@given(shape=shapes, split=st.floats(0, 1))
def test_prefill_and_steps_equal_the_parallel_form(variant, rotary, shape, split):
    b, h, n, d = shape["b"], shape["h"], shape["n"], 2 * shape["half_d"]
    attention = make_tame(variant, h, d, shape["chunk"], causal=True, rotary=rotary)
    qkv = draw_qkv(b, h, n, d, shape["seed"])
    whole = attention(*qkv)
    cut = round(split * n)
    outputs, state = [], attention.initial_state(b, torch.float64)
    if cut:
        prefix, state = attention.prefill(*(x[:, :, :cut] for x in qkv))
        outputs = list(prefix.unbind(2))
    assert int(state["position"]) == cut
    more, state = steps(attention, qkv, cut, state)
    assert int(state["position"]) == n
    # Norms divide by lengths that may be small: the bound is on what they are given.
    scale = max(1.0, whole.abs().max().item())
    torch.testing.assert_close(torch.stack([*outputs, *more], dim=2), whole, atol=1e-10 * scale, rtol=0)


@each_variant
@each_rotary
def test_a_state_that_was_saved_and_loaded_continues_bit_for_bit(variant, rotary):
    attention = make_tame(variant, 2, 4, 5, causal=True, rotary=rotary)
    qkv = draw_qkv(2, 2, 30, 4, seed=0)
    _, state = attention.prefill(*(x[:, :, :13] for x in qkv))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(x.is_contiguous() for x in state.values())
    assert state["position"].dtype == torch.int64
    expected, last = steps(attention, qkv, 13, state)
    actual, last_loaded = steps(attention, qkv, 13, loaded)
    assert all(torch.equal(x, y) for x, y in zip(expected, actual, strict=True))
    assert all(torch.equal(last[name], last_loaded[name]) for name in last)


@each_variant
def test_prefill_leaves_the_state_that_steps_leave(variant):
    attention = make_tame(variant, 2, 4, 5, causal=True, rotary="lrpe")
    qkv = draw_qkv(2, 2, 23, 4, seed=1)
    _, filled = attention.prefill(*qkv)
    _, stepped = steps(attention, qkv, 0, attention.initial_state(2, torch.float64))
    assert filled.keys() == stepped.keys()
    for name, x in filled.items():
        y = stepped[name]
        if name in ("keys", "values"):  # of a cache only what has been seen means anything
            seen = 23 if variant == "softmax" else 23 % 5
            x, y = x[:, :, :seen], y[:, :, :seen]
        torch.testing.assert_close(x, y, atol=1e-10, rtol=0)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "softmax"])
@settings(deadline=None, max_examples=5)
@given(n=st.integers(1, 40), block=st.integers(1, 9))
def test_the_state_does_not_grow_with_the_length(variant, n, block):
    h, d = 2, 4
    attention = make_tame(variant, h, d, block, causal=True)
    qkv = draw_qkv(1, h, n, d, seed=2)
    _, filled = attention.prefill(*qkv)
    _, stepped = steps(attention, qkv, 0, attention.initial_state(1, torch.float64))
    size = {"diag": 2 * h * block * d, "linear": h * d * d + h * d}.get(attention.name, h * d * d)
    assert elements(filled) == elements(stepped) == elements(attention.initial_state(1)) == size + 1


def test_the_cache_of_softmax_doubles_so_that_appending_copies_a_bounded_number_of_tokens():
    attention, n = build("softmax", {"heads": 1, "head_dim": 2, "causal": True}), 1000
    q = torch.zeros(1, 1, 2)
    state, copied = attention.initial_state(1), 0
    for position in range(n):
        before = state["keys"].data_ptr()
        _, state = attention.step(q, q, q, state)
        copied += position if state["keys"].data_ptr() != before else 0
        assert position < state["keys"].shape[2] <= max(16, 2 * (position + 1))
    assert copied <= 2 * n


@each_variant
@each_rotary
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_steps_err_no_more_than_the_parallel_form(variant, rotary, dtype):
    attention = make_tame(variant, 2, 4, 5, causal=True, rotary=rotary).to(dtype)
    qkv = [x.to(dtype) for x in draw_qkv(2, 2, 30, 4, seed=3)]
    parallel = attention(*qkv)
    outputs, state = steps(attention, qkv, 0, attention.initial_state(2, dtype))
    stepped = torch.stack(outputs, dim=2)
    assert stepped.dtype == dtype
    if attention.name != "softmax":
        assert all(x.dtype == torch.float32 for name, x in state.items() if name != "position")
    exact = attention.double()(*(x.double() for x in qkv))
    error, own = ((o.double() - exact).abs().max() for o in (stepped, parallel))
    assert error <= 2 * own + torch.finfo(dtype).eps * exact.abs().max()


@each_variant
@each_rotary
@pytest.mark.parametrize("n", [1, 5, 16], ids=["one-token", "a-full-block", "a-full-cache"])
def test_nothing_is_written_but_the_state(variant, rotary, n):
    attention = make_tame(variant, 2, 4, 5, causal=True, rotary=rotary)
    qkv, token = draw_qkv(2, 2, n, 4, seed=4), [x[:, :, 0] for x in draw_qkv(2, 2, 1, 4, seed=5)]
    o, state = attention.prefill(*qkv)
    kept = [*qkv, *token, o]
    before = [x.clone() for x in kept]
    for _ in range(20):
        o_BHD, state = attention.step(*token, state)
        kept.append(o_BHD)
        before.append(o_BHD.clone())
    assert all(torch.equal(x, y) for x, y in zip(kept, before, strict=True))
    theirs = {x.untyped_storage().data_ptr() for x in kept}
    ours = [x.untyped_storage().data_ptr() for x in state.values()]
    assert len({*theirs, *ours}) == len(theirs) + len(ours)


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_prefill_record_no_gradient(name):
    attention = build(name, {"heads": 1, "head_dim": 2, "causal": True, "rotary": "lrpe"})
    q = torch.ones(1, 1, 3, 2, requires_grad=True)
    o, state = attention.prefill(q, q, q)
    o_next, state = attention.step(q[:, :, 0], q[:, :, 0], q[:, :, 0], state)
    assert not any(x.requires_grad for x in (o, o_next, *state.values()))


@pytest.mark.parametrize("name", NAMES)
def test_a_mechanism_that_is_not_causal_has_no_recurrent_form(name):
    attention = build(name, {"heads": 1, "head_dim": 2})
    q = torch.zeros(1, 1, 1, 2)
    state = build(name, {"heads": 1, "head_dim": 2, "causal": True}).initial_state(1)
    for call in (
        lambda: attention.initial_state(1),
        lambda: attention.prefill(q, q, q),
        lambda: attention.step(q[:, :, 0], q[:, :, 0], q[:, :, 0], state),
    ):
        with pytest.raises(ValueError, match="causal=False: only a causal mechanism has a recurrent form"):
            call()


GOOD = torch.zeros(2, 3, 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("q", "k", "message"),
    [
        (torch.zeros(2, 3, 1, 4), GOOD, "q.shape=(2, 3, 1, 4): must be [B, 3, 4], one token per sequence"),
        (torch.zeros(2, 4, 4), GOOD, "q.shape=(2, 4, 4): must be [B, 3, 4]"),
        (GOOD, torch.zeros(1, 3, 4), "k.shape=(1, 3, 4): must equal q.shape=(2, 3, 4)"),
        (GOOD, GOOD.double(), "k.dtype=torch.float64: must equal q.dtype=torch.float32"),
        (GOOD.long(), GOOD, "q.dtype=torch.int64: must be a floating-point dtype"),
    ],
    ids=["length", "heads", "batch", "mixed", "integers"],
)
def test_tokens_that_do_not_fit_are_refused_in_one_line(name, q, k, message):
    attention = build(name, {"heads": 3, "head_dim": 4, "causal": True})
    with pytest.raises((ValueError, TypeError), match=re.escape(message)) as caught:
        attention.step(q, k, GOOD, attention.initial_state(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "fields", "change", "message"),
    [
        ("norm", {}, {"kv": torch.zeros(1, 3, 4, 4)}, "state['kv'].shape=(1, 3, 4, 4): must be (2, 3, 4, 4) for q"),
        ("norm", {}, {"kv": torch.zeros(2, 3, 4, 5)}, "state['kv'].shape=(2, 3, 4, 5): must be (2, 3, 4, 4)"),
        ("norm", {}, {"z": torch.zeros(2, 3, 4)}, "state=['kv', 'position', 'z']: must hold kv, position"),
        ("norm", {}, {"kv": torch.zeros(2, 3, 4, 4).double()}, "state['kv'] is torch.float64 on cpu: must be torch.f"),
        ("linear", {}, {"z": torch.zeros(2, 3, 1, 4)}, "state['z'].shape=(2, 3, 1, 4): must be (2, 3, 4)"),
        ("diag", {"block_size": 8}, {"keys": torch.zeros(2, 3, 4, 4)}, "must be (2, 3, 8, 4) for q.shape=(2, 3, 4)"),
        ("softmax", {}, {"keys": torch.zeros(2, 3, 9, 5)}, "(2, 3, 9, 5): must be (2, 3, any, 4) for q.shape"),
        ("softmax", {}, {"position": torch.tensor(17)}, "(2, 3, 16, 4): has no room for state['position']=17 tokens"),
        ("diag", {}, {"position": torch.tensor(-1)}, "state['position']=-1: must be the number of tokens read"),
        ("norm", {}, {"position": torch.tensor(1.0)}, "state['position']=1.0: must be the number of tokens read"),
        ("norm", {}, {"position": torch.tensor([1])}, "state['position']=tensor([1]): must be the number of"),
    ],
    ids=[
        "batch",
        "width",
        "surplus",
        "dtype",
        "denominator",
        "block",
        "cache",
        "room",
        "negative",
        "fraction",
        "vector",
    ],
)
def test_a_state_that_does_not_fit_is_refused_in_one_line(name, fields, change, message):
    attention = build(name, {"heads": 3, "head_dim": 4, "causal": True, **fields})
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        attention.step(GOOD, GOOD, GOOD, {**attention.initial_state(2), **change})
    assert "\n" not in str(caught.value)


def test_a_state_of_no_sequence_is_refused():
    attention = build("norm", {"heads": 1, "head_dim": 2, "causal": True})
    with pytest.raises(ValueError, match="batch=0: must be a whole number of at least 1"):
        attention.initial_state(0)
