"""diag_attention is DiagAttention: its kernels agree with an eager float64 specification, forward and backward."""

import itertools
import math
from functools import partial

import pytest
import torch
from error_budget import assert_exact, assert_within_budget
from kernel_data import DEVICE, ON_CPU, inputs, padding, rotation
from torch import Tensor
from transnormer_kernels import diag_attention
from transnormer_kernels.checks import HEAD_DIMS

T1 = {"scores": "rela", "norm": "embedding"}
T2 = {"scores": "softmax"}
VARIANTS = [pytest.param(T1, id="T1"), pytest.param(T2, id="T2")]


def turned(x: Tensor, theta: Tensor, reflection: Tensor | None, w: int) -> Tensor:
    """x [B, N, H, D] reflected, its neighbouring pairs rotated by (position mod w) · θ; rounded once, at the end."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if reflection is not None:
        u = (reflection / reflection.norm()).to(wide.dtype)
        wide = wide - 2 * (wide @ u)[..., None] * u
    angles = (torch.arange(x.shape[1], device=x.device) % w).double()[:, None] * theta.double()
    cos, sin = (t.to(wide.dtype)[:, None] for t in (angles.cos(), angles.sin()))
    even, odd = wide[..., 0::2], wide[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


def specification(
    q: Tensor, k: Tensor, v: Tensor, *, block_size: int = 64, scores: str = "softmax", causal: bool = False,
    norm: str = "none", eps: float = 1e-8, eps_placement: str = "inside", key_padding_mask: Tensor | None = None,
    theta: Tensor | None = None, reflection: Tensor | None = None, rounded: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Section 4.3 of the paper by whole N × N matrices, in the dtype of its inputs, the norm at least in float32.

    ``rounded``: the dtype that holds the rotated rows. A ReLU's gradient jumps where a score is zero, and which scores
    are positive must not depend on it.
    """
    _, n, _, d = q.shape
    place = torch.arange(n, device=q.device)
    allowed = (place[:, None] // block_size == place // block_size)[None, None]
    if causal:
        allowed = allowed & (place <= place[:, None])
    if key_padding_mask is not None:
        allowed = allowed & ~key_padding_mask[:, None, None, :]
        k, v = (x.masked_fill(key_padding_mask[:, :, None, None], 0.0) for x in (k, v))
    if theta is not None:
        q, k = (turned(x, theta, reflection, block_size) for x in (q, k))
        if rounded is not None:
            q, k = (x + (x.to(rounded).to(x.dtype) - x).detach() for x in (q, k))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * d**-0.5
    if scores == "softmax":
        p = s.masked_fill(~allowed, torch.finfo(s.dtype).min).softmax(-1).masked_fill(~allowed, 0.0)
    else:
        p = s.masked_fill(~allowed, 0.0).relu()
    t = torch.einsum("bhij,bjhe->bihe", p, v)
    if norm == "none":
        return t
    flat = t.flatten(2).to(torch.promote_types(t.dtype, torch.float32))  # 1e-8 is zero in float16
    if eps_placement == "inside":
        y = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    else:
        y = flat / (torch.linalg.vector_norm(flat, dim=-1, keepdim=True) * flat.shape[-1] ** -0.5 + eps)
    return y.reshape(t.shape).to(t.dtype)


def results(f, q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options) -> dict[str, Tensor]:
    """The output of ``f`` and its gradients, θ's too where it is given."""
    leaves = {"q": q, "k": k, "v": v} | {name: options[name] for name in ("theta",) if name in options}
    leaves = {name: x.detach().requires_grad_() for name, x in leaves.items()}
    o = f(leaves["q"], leaves["k"], leaves["v"], **(options | {x: leaves[x] for x in leaves if x == "theta"}))
    gradients = torch.autograd.grad(o, list(leaves.values()), g)
    return {"o": o.detach()} | {f"d{name}": x for name, x in zip(leaves, gradients, strict=True)}


def assert_exact_case(q, k, v, g, **options) -> None:
    """The kernels agree with the specification in float64."""
    expected = results(specification, q, k, v, g, **options)
    assert_exact(results(diag_attention, q, k, v, g, **options), expected, (q, k, v, g))


def assert_case_within_budget(q, k, v, g, **options) -> None:
    """The kernels stay within the budget that the specification in the same dtype sets."""
    wide = {name: x.double() if name in ("theta", "reflection") else x for name, x in options.items()}
    exactly = partial(specification, rounded=q.dtype)
    if options.get("norm") == "embedding":
        # Gradients are 1/size of t. Without this the token of the smallest t would decide alone, by its roundings.
        t = exactly(*(x.double() for x in (q, k, v)), **wide | {"norm": "none"})
        g = (g.double() * t.square().mean((2, 3), keepdim=True).sqrt()).to(g.dtype)
    exact = results(exactly, *(x.double() for x in (q, k, v, g)), **wide)
    eager = results(specification, q, k, v, g, **options)
    found = results(diag_attention, q, k, v, g, **options)
    assert_within_budget(found, eager, exact, options["block_size"] + q.shape[-1])


# ---------------------------------------------------------------------------------------------- what is computed


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [1, 7, 32, 48, 64, 65, 100, 128])
def test_every_block_size_agrees_with_the_specification_in_float64(block_size, variant):
    causal = block_size in (7, 32, 65)
    assert_exact_case(*inputs(1, 150, 2, 16, torch.float64), block_size=block_size, causal=causal, **variant)


@ON_CPU
@pytest.mark.parametrize("n", [1, 31, 64, 129])
@pytest.mark.parametrize(("variant", "causal"), [(T1, True), (T2, False), (T2, True)], ids=["T1-c", "T2", "T2-c"])
def test_any_length_agrees_also_below_one_block_and_with_a_ragged_last_one(n, variant, causal):
    assert_exact_case(*inputs(2, n, 1, 32, torch.float64), block_size=64, causal=causal, **variant)


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_head_dimension_agrees_with_rotation_and_padding(head_dim, variant):
    """The rotation restarts in each block; θ's gradient is checked with the others."""
    mask = {"key_padding_mask": padding(2, 70), "causal": head_dim % 32 == 0}
    data = inputs(2, 70, 1, head_dim, torch.float64)
    assert_exact_case(*data, block_size=32, **variant, **rotation(head_dim), **mask)


@ON_CPU
@pytest.mark.parametrize("options", [{}, {"theta": 1}, {"reflection": 1, "theta": 1}], ids=["none", "rope", "lrpe"])
@pytest.mark.parametrize(
    ("scores", "norm", "placement"),
    [("softmax", "none", "inside"), ("softmax", "embedding", "inside"), ("rela", "none", "inside"),
     ("rela", "embedding", "outside")],
    ids=lambda x: x,
)  # fmt: skip
def test_every_option_agrees_with_the_specification_in_float64(scores, norm, placement, options):
    chosen = {name: x for name, x in rotation(16).items() if name in options}
    data = inputs(2, 70, 3, 16, torch.float64)
    assert_exact_case(*data, block_size=20, scores=scores, norm=norm, eps=1e-3, eps_placement=placement, **chosen)


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [16, 80])
def test_gradcheck_of_the_kernels(block_size, variant):
    q, k, v, _ = (x.requires_grad_() for x in inputs(1, 90, 1, 16, torch.float64))
    turns = rotation(16)
    theta = turns["theta"].requires_grad_()
    options = {"block_size": block_size, "causal": True, "key_padding_mask": padding(1, 90)}

    def f(q, k, v, theta):
        return diag_attention(q, k, v, theta=theta, reflection=turns["reflection"], eps=1e-2, **options, **variant)

    assert torch.autograd.gradcheck(f, (q, k, v, theta), fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("head_dim", "block_size"), [(64, 64), (128, 32), (64, 128), (16, 48)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_low_precision_stays_within_twice_the_eager_error(dtype, head_dim, block_size, variant):
    data = inputs(2, 150, 2, head_dim, dtype)
    assert_case_within_budget(
        *data, block_size=block_size, causal=head_dim == 64, key_padding_mask=padding(2, 150), **variant
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_low_precision_stays_within_twice_the_eager_error_with_a_rotation(variant, dtype):
    data = inputs(1, 70, 2, 64, dtype)
    assert_case_within_budget(*data, block_size=32, **rotation(64, torch.float32), **variant)


def test_large_float16_numbers_do_not_overflow_before_the_norm():
    """Σ_j p_ij v_j reaches a million, its norm is of size one; p, t and y are each rounded by half an eps."""
    q, k, v = inputs(1, 64, 2, 16, torch.float16, 3)
    o = diag_attention(q * 30, k * 30, v * 60, **T1)
    expected = specification(*(x.double() for x in (q * 30, k * 30, v * 60)), **T1)
    error = (o.double() - expected).abs().max().item()
    assert error <= 1.5 * torch.finfo(torch.float16).eps * expected.abs().max().item()


@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_rows_of_zeros_give_zeros_and_finite_gradients(dtype, placement):
    q, k, v, g = inputs(1, 40, 2, 16, dtype)
    v[:, 8:] = 0  # blocks whose t is zero, where 1/(σ + ε) is 1e8
    options = T1 | {"eps_placement": placement, "block_size": 8}
    found = results(diag_attention, q, k.abs() + 1, v, g, **options)
    assert not found["o"][:, 8:].any()
    assert all(x.isfinite().all() for name, x in found.items() if name != "dv")
    negative = results(diag_attention, q.abs(), -k.abs(), v, g, **options)  # no score is positive
    assert not any(x.any() for x in negative.values())


# ------------------------------------------------------------------------------------------ what must not matter


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("content", [1e4, math.inf, math.nan], ids=["large", "infinite", "nan"])
def test_the_content_of_padding_is_irrelevant_and_its_gradient_zero(content, variant):
    q, k, v, g = inputs(2, 50, 1, 16, torch.float32)
    mask = padding(2, 50)
    options = {"block_size": 16, "key_padding_mask": mask, **variant, **rotation(16, torch.float32)}
    clean = results(diag_attention, q, k, v, g, **options)
    spoiled = (x.masked_fill(mask[:, :, None, None], content) for x in (k, v))
    dirty = results(diag_attention, q, *spoiled, g, **options)
    for name in clean:
        assert torch.equal(clean[name], dirty[name]), name
    assert not clean["dk"][mask].any()
    assert not clean["dv"][mask].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_query_without_a_key_gets_zeros(variant):
    q, k, v, g = inputs(2, 50, 1, 16, torch.float32)
    mask = torch.zeros(2, 50, dtype=torch.bool, device=DEVICE)
    mask[0, 16:32] = mask[1, 32:35] = True  # a whole block; the first keys of another
    found = results(diag_attention, q, k, v, g, block_size=16, causal=True, key_padding_mask=mask, **variant)
    for x in (found["o"], found["dq"]):
        assert not x[0, 16:32].any()
        assert not x[1, 32:35].any()
        assert x.isfinite().all()
        assert x[1, 36:].any()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [16, 100])
def test_the_future_does_not_reach_a_causal_output(block_size, variant):
    q, k, v, _ = inputs(1, 130, 2, 16, torch.float32)
    whole = diag_attention(q, k, v, block_size=block_size, causal=True, **variant)
    for n in (1, 37, 101):
        changed = (torch.cat([x[:, :n], -3 * x[:, n:]], 1) for x in (q, k, v))
        assert torch.equal(diag_attention(*changed, block_size=block_size, causal=True, **variant)[:, :n], whole[:, :n])


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [16, 48])
def test_a_changed_block_changes_no_other_forward_or_backward(block_size, variant):
    q, k, v, g = inputs(1, 130, 2, 16, torch.float32)
    before = results(diag_attention, q, k, v, g, block_size=block_size, **variant)
    here = slice(block_size, 2 * block_size)
    for x in (q, k, v, g):
        x[:, here] *= -2
    after = results(diag_attention, q, k, v, g, block_size=block_size, **variant)
    for name, x in before.items():
        same = (x == after[name]).flatten(2).all(-1)[0]
        assert same[:block_size].all(), name
        assert same[2 * block_size :].all(), name
        assert not same[here].any(), name


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_strides_do_not_matter(variant):
    data = inputs(2, 70, 2, 16, torch.float32)
    options = {"block_size": 32, **variant, **rotation(16, torch.float32)}
    expected = results(diag_attention, *data, **options)
    views = {
        "heads first": [x.transpose(1, 2).contiguous().transpose(1, 2) for x in data],
        "last dimension apart": [x.mT.contiguous().mT for x in data],
        "odd offset": [torch.cat([x[..., :3], x], -1)[..., 3:] for x in data],
        "batch expanded": [x[:1].expand(2, -1, -1, -1) for x in data],
    }
    for name, view in views.items():
        wanted = expected
        if name == "batch expanded":
            wanted = results(diag_attention, *(x.contiguous() for x in view), **options)
        for key, x in results(diag_attention, *view, **options).items():
            assert torch.equal(x, wanted[key]), (name, key)


# -------------------------------------------------------------------------------------- as an operator of PyTorch


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_opcheck(variant):
    q, k, v, _ = (x.requires_grad_() for x in inputs(1, 20, 2, 16, torch.float32))
    theta, reflection = rotation(16, torch.float32).values()
    norm = variant.get("norm", "none")
    arguments = (q, k, v, 8, variant["scores"], True, norm, 1e-8, "inside", padding(1, 20))
    operator = torch.ops.transnormer.diag_attention.default
    torch.library.opcheck(operator, (*arguments, None, None))
    torch.library.opcheck(operator, (*arguments, theta.requires_grad_(), reflection))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_compiles_as_one_graph_with_its_gradient(variant):
    data = inputs(1, 40, 2, 16, torch.float32)
    options = {"block_size": 16, "causal": True, **variant, **rotation(16, torch.float32)}
    compiled = torch.compile(diag_attention, fullgraph=True, backend="aot_eager")
    expected = results(diag_attention, *data, **options)
    for name, x in results(compiled, *data, **options).items():
        assert torch.equal(x, expected[name]), name


def test_autocast_gives_the_kernels_its_dtype():
    data = inputs(1, 40, 2, 16, torch.float32)
    with torch.autocast(DEVICE, dtype=torch.float16):
        found = results(diag_attention, *data[:3], data[3].half())
    assert found["o"].dtype == torch.float16
    assert found["dq"].dtype == torch.float32
    assert torch.equal(found["o"], diag_attention(*(x.half() for x in data[:3])))


def test_a_vanishing_gradient_flag_saves_the_work_for_theta():
    q, k, v, g = inputs(1, 20, 1, 16, torch.float32)
    turns = rotation(16, torch.float32)
    o = diag_attention(q.requires_grad_(), k, v, **turns)
    (dq,) = torch.autograd.grad(o, q, g)
    assert torch.equal(dq, results(diag_attention, q, k, v, g, **turns)["dq"])


# ------------------------------------------------------------------------------------------------- what is refused

X = torch.zeros(2, 4, 1, 16)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X[0], X[0], X[0]), {}, ValueError, "q.shape=(4, 1, 16): must be [B, N, H, D]"),
        ((X[:, :0],) * 3, {}, ValueError, "q.shape=(2, 0, 1, 16)"),
        ((X, X[:, :3], X), {}, ValueError, "k.shape=(2, 3, 1, 16): must equal q.shape"),
        ((X, X, X.half()), {}, TypeError, "v.dtype=torch.float16: must equal q.dtype"),
        ((X.int(),) * 3, {}, TypeError, "q.dtype=torch.int32"),
        ((X[..., :8],) * 3, {}, ValueError, "head_dim=8: must be one of 16, 32, 64, 80, 96, 128"),
        ((X, X, X), {"block_size": 129}, ValueError, "block_size=129: must be a whole number from 1 to 128"),
        ((X, X, X), {"block_size": 0}, ValueError, "block_size=0"),
        ((X, X, X), {"block_size": 2.0}, ValueError, "block_size=2.0"),
        ((X, X, X), {"scores": "relu"}, ValueError, "scores='relu': must be one of softmax, rela"),
        ((X, X, X), {"norm": "head"}, ValueError, "norm='head'"),
        ((X, X, X), {"eps_placement": "around"}, ValueError, "eps_placement='around'"),
        ((X, X, X), {"eps": math.nan}, ValueError, "eps=nan: must be a positive finite number"),
        ((X, X, X), {"eps": math.inf}, ValueError, "eps=inf"),
        ((X, X, X), {"key_padding_mask": torch.zeros(4, 2, dtype=torch.bool)}, ValueError, "must be [B, N] = (2, 4)"),
        ((X, X, X), {"key_padding_mask": torch.zeros(2, 4)}, TypeError, "key_padding_mask.dtype=torch.float32"),
        ((X, X, X), {"theta": torch.zeros(16)}, ValueError, "theta is (16,)"),
        ((X, X, X), {"theta": torch.zeros(8).half()}, TypeError, "theta.dtype=torch.float16"),
        ((X, X, X), {"reflection": torch.ones(16)}, ValueError, "reflection without theta"),
    ],
    ids=lambda x: x.replace(" ", "_") if isinstance(x, str) else "",
)
def test_what_does_not_fit_is_refused_in_one_line(arguments, options, error, message):
    moved = [x.to(DEVICE) for x in arguments]
    options = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in options.items()}
    with pytest.raises(error) as caught:
        diag_attention(*moved, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@ON_CPU
def test_a_dtype_that_the_interpreter_gets_wrong_and_mixed_devices_are_refused():
    with pytest.raises(TypeError, match="bfloat16: Triton's interpreter computes it wrongly"):
        diag_attention(X.bfloat16(), X.bfloat16(), X.bfloat16())
    with pytest.raises(ValueError, match=r"k\.device=meta: must equal q\.device=cpu"):
        diag_attention(X, X.to("meta"), X)


# ------------------------------------------------------------------------------------------------------ on a GPU

GPU_CASES = list(itertools.product((64, 80, 128), (32, 64, 128)))


@pytest.mark.gpu
@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rotated"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("head_dim", "block_size"), GPU_CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=lambda x: str(x)[6:])
def test_every_configuration_stays_within_twice_the_eager_error(dtype, head_dim, block_size, variant, rotated):
    options = rotation(head_dim, torch.float32) if rotated else {}
    data = inputs(2, 333, 3, head_dim, dtype)
    if dtype == torch.float32 and head_dim > 64 and block_size > 64:
        with pytest.raises(ValueError, match="block_size=128: at most 64 in float32"):
            diag_attention(*data[:3], block_size=block_size)
        return
    assert_case_within_budget(*data, block_size=block_size, key_padding_mask=padding(2, 333), **options, **variant)
    assert_case_within_budget(*data, block_size=block_size, causal=True, **options, **variant)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [32, 64, 128])
def test_the_same_call_gives_the_same_numbers(block_size, variant):
    data = inputs(4, 2048, 8, 64, torch.bfloat16)
    options = {"block_size": block_size, **rotation(64, torch.float32), **variant}
    first = results(diag_attention, *data, **options)
    for _ in range(3):
        for name, x in results(diag_attention, *data, **options).items():
            assert torch.equal(x, first[name]), name


@pytest.mark.gpu
def test_batches_beyond_a_grid_dimension_and_offsets_beyond_int32_are_right():
    q, k, v = inputs(1, 64, 2, 64, torch.bfloat16, 3)
    many = [x.repeat(270_000, 1, 1, 1) for x in (q, k, v)]  # 2^31 numbers each, 540,000 tiles
    with torch.no_grad():
        o, one = diag_attention(*many), diag_attention(q, k, v)
    assert torch.equal(o[-1:], one)
    assert torch.equal(o[135_000:135_001], one)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_captured_graph_replays_the_forward_and_backward_pass(variant):
    data = inputs(2, 256, 2, 64, torch.bfloat16)
    expected = results(diag_attention, *data, **variant)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        results(diag_attention, *data, **variant)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = results(diag_attention, *data, **variant)
    graph.replay()
    for name, x in found.items():
        assert torch.equal(x, expected[name]), name
