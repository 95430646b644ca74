"""norm_attention as a PyTorch operator, and the arguments it refuses."""

import math
import sys

import pytest
import torch
from kernel_data import DEVICE, ON_CPU, inputs, padding, rotation
from linear_cases import initial_state, kernel, results
from torch import Tensor
from transnormer_kernels import linear_ops, norm_attention

F32 = torch.float32
NORMS = pytest.mark.parametrize("norm", ["embedding", "head", "none", "denominator"])
CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "causal"), [("embedding", True), ("denominator", False)], ids=str)
def test_opcheck_of_the_forward_and_backward_operators(norm, causal):
    q, k, v, g = inputs(2, 5, 1, 16, F32)
    theta, reflection = rotation(16, F32).values()
    state = initial_state(2, 1, 16, norm, F32)
    leaves = [x.requires_grad_() for x in (q, k, v, state["kv"], theta)]
    z = state["z"].requires_grad_() if norm == "denominator" else None
    chosen = ("1+elu", norm, causal, 1e-8, "inside", 1e-6, padding(2, 5), None, 0)
    forward = (*leaves[:3], *chosen, leaves[3], z, leaves[4], reflection, 3, 0, True, True)
    torch.library.opcheck(torch.ops.transnormer.linear_attention.default, forward)
    with torch.no_grad():
        o, scale, kv, final_z, *saved = linear_ops.linear_attention(*forward)
        by_z = torch.ones_like(final_z) if norm == "denominator" else None
        data = (x.detach() for x in leaves[:3])
        backward = (g, torch.ones_like(kv), by_z, *data, o, scale, *saved, *chosen, theta.detach(), reflection, 3, True)
        torch.library.opcheck(torch.ops.transnormer.linear_attention_backward.default, backward)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_the_shapes_of_the_fake_operator_are_those_of_the_kernels(packed):
    """Also in cases that opcheck does not cover: no gradient, no final state, packed sequences."""
    q, k, v, _ = inputs(1, 6, 1, 16, F32)
    offsets = torch.tensor([0, 4, 6], dtype=torch.int32, device=DEVICE) if packed else None
    for norm in ("embedding", "head", "none", "denominator"):
        for save, final in ((False, False), (True, False), (False, True)):
            options = ("relu", norm, True, 1e-8, "inside", 1e-6, None, offsets, 4 if packed else 0)
            arguments = (q, k, v, *options, None, None, None, None, 0, 0, save, final)
            torch.library.opcheck(
                torch.ops.transnormer.linear_attention.default, arguments, test_utils=["test_schema", "test_faketensor"]
            )


@pytest.mark.slow
@CAUSAL
@NORMS
def test_it_compiles_as_one_graph_with_its_gradient(norm, causal):
    data = inputs(1, 10, 1, 16, F32)
    options = {"norm": norm, "causal": causal, "initial_state": initial_state(1, 1, 16, norm, F32), **rotation(16, F32)}
    torch.compiler.reset()
    compiled = torch.compile(kernel, fullgraph=True, backend="aot_eager")
    expected = results(kernel, *data, **options)
    for name, x in results(compiled, *data, **options).items():
        assert torch.equal(x, expected[name]), name


def test_it_compiles_as_one_graph_with_wide_heads_and_packed_sequences():
    data = inputs(1, 10, 1, 80, F32)
    offsets = torch.tensor([0, 4, 10], dtype=torch.int32, device=DEVICE)
    options = {"cu_seqlens": offsets, "max_seqlen": 6, **rotation(80, F32)}
    torch.compiler.reset()
    compiled = torch.compile(kernel, fullgraph=True, backend="aot_eager")
    expected = results(kernel, *data, **options)
    for name, x in results(compiled, *data, **options).items():
        torch.testing.assert_close(x, expected[name], msg=lambda m, name=name: f"{name}: {m}")


def test_autocast_gives_the_kernels_its_dtype():
    data = inputs(1, 20, 1, 16, F32)
    with torch.autocast(DEVICE, dtype=torch.float16):
        found = results(kernel, *data[:3], data[3].half())
    assert found["o"].dtype == torch.float16
    assert found["dq"].dtype == found["kv"].dtype == F32
    assert torch.equal(found["o"], norm_attention(*(x.half() for x in data[:3])))


def test_nothing_is_saved_without_a_recorded_gradient(monkeypatch):
    q, k, v, _ = inputs(1, 20, 1, 16, F32)
    operator, saved = linear_ops.linear_attention, []

    def watched(*arguments):
        made = operator(*arguments)
        saved.append(made[-2].numel() + made[-1].numel())
        return made

    module = sys.modules["transnormer_kernels.norm_attention"]  # the package has a function of that name
    monkeypatch.setattr(module, "linear_attention", watched)
    norm_attention(q, k, v, norm="denominator")
    with torch.no_grad():
        norm_attention(q.requires_grad_(), k, v, norm="denominator")
    assert saved == [0, 0]
    norm_attention(q, k, v, norm="denominator")
    assert saved[2] == 16 * 16 + 16


def test_the_gradient_of_v_alone_is_that_of_all():
    q, k, v, g = inputs(1, 20, 1, 16, F32)
    o = norm_attention(q, k, v.requires_grad_(), **rotation(16, F32))
    (dv,) = torch.autograd.grad(o, v, g)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(norm_attention(*leaves, **rotation(16, F32)), leaves, g)
    assert torch.equal(dv, expected[2])


# ------------------------------------------------------------------------------------------------- what is refused

X = torch.zeros(2, 4, 1, 16)
WIDE = torch.zeros(2, 4, 1, 80)
KV = torch.zeros(2, 1, 16, 16)
OFFSETS = torch.tensor([0, 4], dtype=torch.int32)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X[0], X[0], X[0]), {}, ValueError, "q.shape=(4, 1, 16): must be [B, N, H, D]"),
        ((X[:, :0],) * 3, {}, ValueError, "q.shape=(2, 0, 1, 16)"),
        ((X, X[:, :3], X), {}, ValueError, "k.shape=(2, 3, 1, 16): must equal q.shape"),
        ((X, X, X.half()), {}, TypeError, "v.dtype=torch.float16: must equal q.dtype"),
        ((X.int(),) * 3, {}, TypeError, "q.dtype=torch.int32: must be one of"),
        ((X[..., :8],) * 3, {}, ValueError, "head_dim=8: must be one of 16, 32, 64, 80, 96, 128"),
        ((X, X, X), {"phi": "gelu"}, ValueError, "phi='gelu': must be one of elu, 1+elu, relu, identity"),
        ((X, X, X), {"norm": "layer"}, ValueError, "norm='layer': must be one of"),
        ((X, X, X), {"eps_placement": "around"}, ValueError, "eps_placement='around': must be one of inside, outside"),
        ((X, X, X), {"eps": math.nan}, ValueError, "eps=nan: must be a positive finite number"),
        ((X, X, X), {"eps": math.inf}, ValueError, "eps=inf"),
        ((X, X, X), {"eps": 0.0}, ValueError, "eps=0.0"),
        ((X, X, X), {"eps": True}, ValueError, "eps=True"),
        ((X, X, X), {"denominator_floor": -1.0}, ValueError, "denominator_floor=-1.0: must be a positive finite"),
        ((X, X, X), {"key_padding_mask": X[:, 0, 0].bool()}, ValueError, "key_padding_mask is (2, 16)"),
        ((X, X, X), {"key_padding_mask": torch.zeros(2, 4)}, TypeError, "key_padding_mask.dtype=torch.float32"),
        ((X, X, X), {"cu_seqlens": OFFSETS}, ValueError, "q.shape=(2, 4, 1, 16): packed sequences"),
        ((X[:1],) * 3, {"cu_seqlens": OFFSETS.long()}, ValueError, "cu_seqlens is torch.int64 (2,): must be int32"),
        ((X[:1],) * 3, {"cu_seqlens": OFFSETS[:1]}, ValueError, "cu_seqlens is torch.int32 (1,)"),
        ((X[:1],) * 3, {"cu_seqlens": OFFSETS, "max_seqlen": 0}, ValueError, "max_seqlen=0: must be a whole number"),
        ((X, X, X), {"segments": 0}, ValueError, "segments=0: must be a whole number of at least 1"),
        ((X, X, X), {"position": -1}, ValueError, "position=-1: must be a whole number of at least 0"),
        ((X, X, X), {"position": 1.0}, ValueError, "position=1.0"),
        ((X, X, X), {"initial_state": {}}, ValueError, "initial_state=[]: must hold kv with norm='embedding'"),
        ((X, X, X), {"initial_state": {"kv": KV}, "norm": "denominator"}, ValueError, "initial_state=['kv']"),
        ((X, X, X), {"initial_state": {"kv": KV[:1]}}, ValueError, "initial_state['kv'] is torch.float32 (1, "),
        ((X, X, X), {"initial_state": {"kv": KV.half()}}, ValueError, "initial_state['kv'] is torch.float16"),
        ((X, X, X), {"theta": torch.zeros(16)}, ValueError, "theta is (16,)"),
        ((X, X, X), {"theta": torch.zeros(8).half()}, TypeError, "theta.dtype=torch.float16"),
        ((X, X, X), {"reflection": torch.ones(16)}, ValueError, "reflection without theta"),
        ((X, X, X), {"theta": torch.zeros(8), "reflection": torch.ones(8)}, ValueError, "reflection is (8,)"),
        ((WIDE,) * 3, {"norm": "denominator", "theta": torch.zeros(40), "reflection": torch.ones(80)}, ValueError,
         "norm='denominator' with a rotation: head_dim=80 must be at most 64"),
    ],
    ids=lambda x: x.replace(" ", "_") if isinstance(x, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(arguments, options, error, message):
    def move(x):
        return x.to(DEVICE) if isinstance(x, Tensor) else x

    moved = {n: {m: move(y) for m, y in x.items()} if isinstance(x, dict) else move(x) for n, x in options.items()}
    with pytest.raises(error) as caught:
        norm_attention(*map(move, arguments), **moved)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@ON_CPU
def test_a_dtype_that_the_interpreter_gets_wrong_and_mixed_devices_are_refused():
    with pytest.raises(TypeError, match="bfloat16: Triton's interpreter computes it wrongly"):
        norm_attention(X.bfloat16(), X.bfloat16(), X.bfloat16())
    with pytest.raises(ValueError, match=r"k\.device=meta: must equal q\.device=cpu"):
        norm_attention(X, X.to("meta"), X)
    with pytest.raises(ValueError, match=r"cu_seqlens\.device=meta: must equal q\.device=cpu"):
        norm_attention(X[:1], X[:1], X[:1], cu_seqlens=OFFSETS.to("meta"))
    with pytest.raises(ValueError, match=r"key_padding_mask is \(2, 4\) on meta"):
        norm_attention(X, X, X, key_padding_mask=torch.zeros(2, 4, dtype=torch.bool, device="meta"))
