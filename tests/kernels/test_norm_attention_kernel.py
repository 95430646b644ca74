"""norm_attention is NormAttention: its kernels agree with an eager float64 specification, forward and backward."""

import itertools
import math

import pytest
import torch
from kernel_data import DEVICE, ON_CPU, inputs, padding, rotation
from linear_cases import (
    assert_case_within_budget,
    assert_exact_case,
    initial_state,
    kernel,
    results,
    specification,
)
from transnormer_kernels import configurations, norm_attention
from transnormer_kernels.checks import HEAD_DIMS
from transnormer_kernels.tiles import PHI

NORMS = ("embedding", "head", "none", "denominator")
F64, F32, F16 = torch.float64, torch.float32, torch.float16
CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])


def everything(b, n, h, d, norm, dtype=F64) -> dict:
    """All options at once: padding, a rotation with a reflection, an initial state and position."""
    state = initial_state(b, h, d, norm, F64 if dtype == F64 else F32)
    turns = rotation(d, F64 if dtype == F64 else F32)
    return {"norm": norm, "key_padding_mask": padding(b, n), "initial_state": state, "position": 5, **turns}


# ---------------------------------------------------------------------------------------------- what is computed


@ON_CPU
@CAUSAL
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("phi", PHI)
def test_every_feature_map_and_norm_agrees_with_the_specification_in_float64(phi, norm, causal):
    """Signed features make denominators of either sign, which the floor catches."""
    placement = "inside" if causal else "outside"
    data = inputs(1, 67, 2 if norm == "embedding" else 1, 16, F64)
    options = {"eps": 1e-3, "eps_placement": placement, "denominator_floor": 0.5}
    assert_exact_case(*data, phi=phi, norm=norm, causal=causal, **options)


@pytest.mark.slow
@ON_CPU
@CAUSAL
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_agrees_with_padding_rotation_state_and_position(norm, causal):
    data = inputs(2, 67, 1, 16, F64)
    assert_exact_case(*data, causal=causal, **everything(2, 67, 1, 16, norm))


@ON_CPU
@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("eps", [1e-8, 10.0])
@pytest.mark.parametrize("norm", ["embedding", "head"])
def test_epsilon_is_on_the_requested_side_of_the_root(norm, eps, placement):
    data = inputs(1, 20, 2, 16, F64)
    assert_exact_case(*data, norm=norm, eps=eps, eps_placement=placement)


@ON_CPU
@pytest.mark.parametrize("n", [1, 2, 31, 63, 64, 65])
def test_any_length_agrees_also_with_a_ragged_last_tile(n):
    assert_exact_case(*inputs(1, n, 1, 32, F64), causal=n % 2 == 1)


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dimension_agrees_with_a_rotation(head_dim, norm):
    """Up to 64 the kernels rotate; beyond, PyTorch operations do, and a denominator takes no rotation."""
    turns = {} if norm == "denominator" and head_dim > 64 else rotation(head_dim)
    assert_exact_case(*inputs(1, 67, 1, head_dim, F64), norm=norm, causal=head_dim != 96, position=3, **turns)


@ON_CPU
@pytest.mark.parametrize(("norm", "head_dim"), [("embedding", 64), ("embedding", 80), ("denominator", 64)], ids=str)
def test_a_rotation_without_a_reflection_agrees(norm, head_dim):
    theta = rotation(head_dim)["theta"]
    assert_exact_case(*inputs(1, 67, 1, head_dim, F64), phi="elu", norm=norm, theta=theta, denominator_floor=0.5)


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize(("norm", "causal"), [("denominator", True), ("embedding", False)], ids=str)
def test_segments_agree_with_the_specification_and_with_each_other(norm, causal):
    """Beyond 256 tokens the backward pass starts from saved states, and the forward pass may use segments."""
    data = inputs(1, 530, 1, 16, F64)
    theta = rotation(16)["theta"]
    options = {"norm": norm, "causal": causal, "theta": theta, "initial_state": initial_state(1, 1, 16, norm, F64)}
    assert_exact_case(*data, segments=3, **options)
    o, state = kernel(*data[:3], segments=3, **options)
    for segments in (1, 2):
        torch.testing.assert_close(kernel(*data[:3], segments=segments, **options), (o, state))


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize(("norm", "causal"), [("embedding", True), ("denominator", False)], ids=str)
def test_gradcheck_of_the_kernels(norm, causal):
    n = 67 if causal else 20
    data = [x.requires_grad_() for x in inputs(1, n, 1, 16, F64, 3)]
    options = everything(1, n, 1, 16, norm) | {"key_padding_mask": padding(2, n)[:1]}
    theta = options.pop("theta").requires_grad_()
    state = {name: x.requires_grad_() for name, x in options.pop("initial_state").items()}

    def f(q, k, v, theta, *state_tensors):
        before = dict(zip(state, state_tensors, strict=True))
        o, after = kernel(q, k, v, causal=causal, eps=1e-2, theta=theta, initial_state=before, **options)
        return o, *after.values()

    assert torch.autograd.gradcheck(f, (*data, theta, *state.values()), fast_mode=True)


# ------------------------------------------------------------------------------------------------ in low precision


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [F32, F16], ids=["float32", "float16"])
def test_low_precision_stays_within_twice_the_eager_error(dtype, norm):
    data = inputs(1, 150, 1, 32, dtype)
    phi = "elu" if norm in ("embedding", "none") else "1+elu"
    assert_case_within_budget(*data, norm=norm, phi=phi)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [F32, F16], ids=["float32", "float16"])
def test_low_precision_stays_within_twice_the_eager_error_with_every_option(dtype, norm):
    data = inputs(2, 40, 1, 64, dtype)
    assert_case_within_budget(*data, causal=False, **everything(2, 40, 1, 64, norm, dtype))


@pytest.mark.parametrize("norm", ["embedding", "head"])
def test_float16_products_beyond_its_range_do_not_overflow_before_the_norm(norm):
    """Σ_j (φ_i·ψ_j) v_j reaches millions; s or S, t divided by its size, and y are rounded, each by half an eps."""
    q, k, v, g = inputs(1, 70, 2, 16, F16)
    data = (q.abs() * 8, k.abs() * 8, v.abs() * 100, g)
    found = results(kernel, *data, norm=norm)
    exact = results(specification, *(x.double() for x in data), norm=norm)
    assert specification(*(x.double() for x in data[:3]), norm="none")[0].abs().max() > 1e6
    error = (found["o"].double() - exact["o"]).abs().max().item()
    assert error <= 3 * 0.5 * torch.finfo(F16).eps * exact["o"].abs().max().item()
    assert all(x.isfinite().all() for x in found.values())


@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # the interpreter divides before it selects
def test_rows_of_zeros_give_zeros_and_finite_gradients(norm, placement):
    """If no feature is positive, t is zero, 1/(σ + ε) is 10^8 and 1/max(δ, floor) 10^6."""
    q, k, v, g = inputs(1, 40, 1, 16, F32)
    q[:, 8:20] = -q[:, 8:20].abs()
    found = results(kernel, q, k, v, g, phi="relu", norm=norm, eps_placement=placement)
    assert not found["o"][:, 8:20].any()
    assert found["o"][:, 20:].any(-1).all()
    for name, x in found.items():
        assert x.isfinite().all(), name
    nothing = results(kernel, -q.abs(), -k.abs(), v, g, phi="relu", norm=norm, eps_placement=placement)
    assert not nothing["o"].any()
    assert all(x.isfinite().all() for x in nothing.values())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_rows_of_zeros_are_no_worse_in_float16_than_by_the_eager_specification(norm):
    """∂L/∂t is up to 10^6 times ∂L/∂o there, beyond float16: neither form has finite gradients behind it."""
    q, k, v, g = inputs(1, 40, 1, 16, F16)
    q[:, 8:20] = -q[:, 8:20].abs()
    options = {"phi": "relu", "norm": norm}
    eager = results(specification, q, k, v, g, **options)
    for name, x in results(kernel, q, k, v, g, **options).items():
        assert x.isfinite().all() or not eager[name].isfinite().all(), name


# ------------------------------------------------------------------------------------------ packed sequences, states


def output_gradients(q, k, v, g, **options) -> dict:
    """o and the gradients of q, k and v by o alone."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = norm_attention(*leaves, **options)
    return {"o": o.detach()} | dict(zip(("dq", "dk", "dv"), torch.autograd.grad(o, leaves, g), strict=True))


@pytest.mark.slow
@CAUSAL
@pytest.mark.parametrize("norm", NORMS)
def test_packed_sequences_are_each_sequence_alone(norm, causal):
    """Values, gradients and states. Positions restart in each sequence; one has a single token, one has none."""
    lengths = (5, 1, 0, 40)
    data = inputs(1, sum(lengths), 1, 16, F32)
    offsets = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=DEVICE)
    mask = torch.rand(1, sum(lengths), generator=torch.Generator().manual_seed(0)).to(DEVICE) < 0.2
    state = initial_state(4, 1, 16, norm, F32)
    common = {"norm": norm, "causal": causal, "position": 2, **rotation(16, F32)}
    packed = {**common, "cu_seqlens": offsets, "initial_state": state, "key_padding_mask": mask}
    whole = output_gradients(*data, **packed)
    assert torch.equal(norm_attention(*data[:3], max_seqlen=40, **packed), whole["o"])
    _, final = kernel(*data[:3], **packed)
    for s, length in enumerate(lengths):
        before = {name: x[s : s + 1] for name, x in state.items()}
        after = before
        if length:
            own = slice(sum(lengths[:s]), sum(lengths[: s + 1]))
            alone = {**common, "initial_state": before, "key_padding_mask": mask[:, own]}
            for name, x in output_gradients(*(x[:, own] for x in data), **alone).items():
                assert torch.equal(x, whole[name][:, own]), (s, name)
            _, after = kernel(*(x[:, own] for x in data[:3]), **alone)
        for name, x in after.items():
            assert torch.equal(x, final[name][s : s + 1]), (s, name)


@ON_CPU
def test_packed_sequences_of_wide_heads_rotate_from_their_own_start():
    q, k, v, _ = inputs(1, 37, 1, 80, F64)
    offsets = torch.tensor([0, 20, 37], dtype=torch.int32)
    options = {"position": 2, **rotation(80)}
    o = norm_attention(q, k, v, cu_seqlens=offsets, **options)
    for own in (slice(0, 20), slice(20, 37)):
        torch.testing.assert_close(o[:, own], specification(*(x[:, own] for x in (q, k, v)), **options)[0])


@ON_CPU
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("cut", [1, 66])
def test_a_state_handed_over_continues_the_sequence(cut, norm):
    q, k, v, _ = inputs(1, 70, 1, 16, F64)
    options = {"norm": norm, **rotation(16)}
    whole, end = kernel(q, k, v, **options)
    first, state = kernel(*(x[:, :cut] for x in (q, k, v)), **options)
    rest, state = kernel(*(x[:, cut:] for x in (q, k, v)), initial_state=state, position=cut, **options)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole)
    torch.testing.assert_close(state, end)


# ------------------------------------------------------------------------------------------ what must not matter


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
@pytest.mark.parametrize("content", [math.inf, math.nan], ids=["infinite", "nan"])
@CAUSAL
def test_the_content_of_padding_is_irrelevant_and_its_gradient_zero(causal, content, norm):
    q, k, v, g = inputs(2, 40, 1, 16, F32)
    options = {"causal": causal, **everything(2, 40, 1, 16, norm, F32)}
    mask = options["key_padding_mask"]
    clean = results(kernel, q, k, v, g, **options)
    spoiled = (x.masked_fill(mask[:, :, None, None], content) for x in (k, v))
    dirty = results(kernel, q, *spoiled, g, **options)
    for name, x in clean.items():
        assert torch.equal(x, dirty[name]), name
    assert not clean["dk"][mask].any()
    assert not clean["dv"][mask].any()


@ON_CPU
@pytest.mark.parametrize("content", [math.inf, math.nan], ids=["infinite", "nan"])
def test_the_content_of_padding_is_irrelevant_with_the_features_of_wide_heads(content):
    q, k, v, g = inputs(1, 20, 1, 80, F64)
    mask = torch.arange(20)[None] >= 13
    options = {"key_padding_mask": mask, **rotation(80)}
    clean = results(kernel, q, k, v, g, **options)
    dirty = results(kernel, q, *(x.masked_fill(mask[:, :, None, None], content) for x in (k, v)), g, **options)
    for name, x in clean.items():
        assert torch.equal(x, dirty[name]), name


@pytest.mark.parametrize("norm", NORMS)
def test_the_future_does_not_reach_a_causal_output(norm):
    q, k, v, _ = inputs(1, 70, 1, 16, F32)
    whole = norm_attention(q, k, v, norm=norm)
    for n in (1, 37, 64):
        changed = (torch.cat([x[:, :n], -3 * x[:, n:]], 1) for x in (q, k, v))
        assert torch.equal(norm_attention(*changed, norm=norm)[:, :n], whole[:, :n])


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_a_sequence_is_computed_alike_alone_and_in_a_batch(norm):
    data = inputs(3, 20, 1, 16, F32)
    together = output_gradients(*data, norm=norm)
    for b in range(3):
        for name, x in output_gradients(*(x[b : b + 1] for x in data), norm=norm).items():
            assert torch.equal(x, together[name][b : b + 1]), name


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
def test_strides_do_not_matter(norm):
    data = inputs(2, 20, 2, 16, F32)
    options = {"norm": norm}
    expected = results(kernel, *data, **options)
    views = {
        "heads first": [x.transpose(1, 2).contiguous().transpose(1, 2) for x in data],
        "last dimension apart": [x.mT.contiguous().mT for x in data],
        "slices of one": list(torch.cat(data, -1).split(16, -1)),
        "q alone heads first": [data[0].transpose(1, 2).contiguous().transpose(1, 2), *data[1:]],
        "batch expanded": [x[:1].expand(2, -1, -1, -1) for x in data],
    }
    for name, view in views.items():
        wanted = expected
        if name == "batch expanded":
            wanted = results(kernel, *(x.contiguous() for x in view), **options)
        for key, x in results(kernel, *view, **options).items():
            assert torch.equal(x, wanted[key]), (name, key)


def test_every_kernel_has_a_configuration_for_each_width_and_size_of_a_number():
    table = configurations.entries()
    names = {key[0] for key in table}
    assert {"segment_states", "outputs", "segment_gradients", "gradients"} <= names
    assert {key[:3] for key in table} == set(itertools.product(names, (64, 128), (2, 4)))
    for dtype in (torch.bfloat16, F16, F32, F64):
        for name, head_dim, extras in itertools.product(names, HEAD_DIMS, range(8)):
            assert configurations.configuration(name, head_dim, dtype, extras) in table.values()


def test_the_entry_for_the_greatest_part_of_what_a_call_computes_counts(monkeypatch):
    entry = configurations.Configuration
    table = {
        ("outputs", 64, 2): entry(1, 1, 1),
        ("outputs", 64, 2, 1): entry(2, 1, 1),
        ("outputs", 64, 2, 4): entry(3, 1, 1),
    }
    monkeypatch.setattr(configurations, "_TABLE", table)
    found = [configurations.configuration("outputs", 64, F16, extras).rows for extras in range(8)]
    assert found == [1, 2, 1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("norm", ["embedding", "head", "none"])
@pytest.mark.parametrize("which", ["padded keys", "a ragged tile"])
def test_a_score_of_padding_beyond_float16_reaches_nothing(which, norm):
    """φ of padding is 1. Its score with large features is infinite in float16, and infinity times 0 is no number."""
    n = 16 if which == "padded keys" else 40
    q, k, v, g = inputs(1, n, 1, 64, F16)
    large, small = (q, k) if which == "padded keys" else (k, q)
    large.copy_(2000.0 + large), small.copy_(-6.0 + small)
    options = {"norm": norm}
    if which == "padded keys":
        options["key_padding_mask"] = torch.zeros(1, n, dtype=torch.bool, device=DEVICE)
        options["key_padding_mask"][:, 3:6] = True
    for name, x in results(kernel, q, k, v, g, **options).items():
        assert x.isfinite().all(), name
