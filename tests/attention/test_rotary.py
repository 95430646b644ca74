"""Rotary positions: scores see distances alone, and every form of every mechanism turns alike.

Shapes: B batch, H heads, N length, D head_dim.
"""

import copy
import math

import pytest
import torch
from attention_cases import NAMES, VARIANTS, draw_mask, draw_qkv, make_tame
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import MultiHeadAttention, Rotary, build, feature_map, masked_softmax

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
each_rotary = pytest.mark.parametrize("rotary", ["rope", "lrpe"])
each_learned = pytest.mark.parametrize("learned", [False, True], ids=["rope", "lrpe"])
sizes = {
    "n": st.integers(1, 23),
    "d": st.integers(1, 3).map(lambda x: 2 * x),
    "chunk": st.integers(1, 9),
    "causal": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
}


def rotary(d: int, learned: bool, seed: int = 0) -> Rotary:
    """In float64, with angles that are not the initial ones."""
    module = Rotary(d, learned, torch.Generator().manual_seed(seed)).double()
    if learned:
        with torch.no_grad():
            module.theta += torch.linspace(0.1, 0.7, d // 2)
    return module


def explicit(module: Rotary, x: torch.Tensor, positions: list[int]) -> torch.Tensor:
    """x [..., N, D] times a D × D matrix per position: the reflection, then a block of four numbers per pair."""
    d = x.shape[-1]
    reflection = torch.eye(d, dtype=x.dtype)
    theta = [10000.0 ** (-2 * m / d) for m in range(d // 2)]
    if module.learned:
        u = module.reflection_D / module.reflection_D.norm()  # it was drawn in float32
        reflection -= 2 * torch.outer(u, u)
        theta = module.theta.tolist()
    matrices_NDD = torch.zeros(len(positions), d, d, dtype=x.dtype)
    for i, position in enumerate(positions):
        for m, angle in enumerate(theta):
            c, s = math.cos(position * angle), math.sin(position * angle)
            matrices_NDD[i, 2 * m : 2 * m + 2, 2 * m : 2 * m + 2] = torch.tensor([[c, -s], [s, c]], dtype=x.dtype)
    return torch.einsum("nde,...ne->...nd", matrices_NDD @ reflection, x)


@each_learned
@settings(deadline=None, max_examples=15)
@given(n=st.integers(1, 9), d=sizes["d"], start=st.integers(0, 50), period=st.integers(0, 5))
def test_turning_is_a_product_with_one_matrix_per_position(learned, n, d, start, period):
    module = rotary(d, learned)
    x, y, _ = draw_qkv(1, 2, n, d, seed=n)
    positions = [p % period if period else p for p in range(start, start + n)]
    for rotated, plain in zip(module(x, y, start=start, period=period), (x, y), strict=True):
        torch.testing.assert_close(rotated, explicit(module, plain, positions), atol=1e-12, rtol=0)


@each_learned
@settings(deadline=None, max_examples=20)
@given(start=st.integers(0, 100_000), n=st.integers(1, 9), d=sizes["d"], seed=sizes["seed"])
def test_scores_depend_on_the_distance_alone(learned, start, n, d, seed):
    module = rotary(d, learned, seed)
    q, k, _ = draw_qkv(1, 1, n, d, seed)
    (q_0, k_0), (q_s, k_s) = module(q, k), module(q, k, start=start)
    # an angle of position·θ is itself rounded: 1e5 radians to about 1e-11
    torch.testing.assert_close(q_s @ k_s.mT, q_0 @ k_0.mT, atol=1e-9, rtol=0)


@each_learned
def test_scores_do_depend_on_the_distance(learned):
    module = rotary(4, learned)
    q, k, _ = draw_qkv(1, 1, 3, 4, seed=0)
    (q_0, _), (_, k_1) = module(q, k), module(q, k, start=1)
    assert not torch.allclose(q_0 @ k_1.mT, q @ k.mT, atol=1e-3)


@settings(deadline=None, max_examples=15)
@given(d=sizes["d"], seed=sizes["seed"])
def test_the_reflection_is_orthogonal_symmetric_and_no_rotation(d, seed):
    module = rotary(d, learned=True, seed=seed)
    assert abs(module.reflection_D.norm().item() - 1) < 1e-6
    (matrix,) = module(torch.eye(d, dtype=torch.float64)[:, None])  # every row alone, at position 0
    matrix = matrix[:, 0]
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(d, dtype=torch.float64), atol=1e-14, rtol=0)
    torch.testing.assert_close(matrix, matrix.mT, atol=1e-14, rtol=0)
    assert torch.det(matrix).item() == pytest.approx(-1)


def test_the_reflection_follows_from_the_generator_and_is_saved_but_not_learned():
    one, two, other = (Rotary(6, True, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.reflection_D, two.reflection_D)
    assert not torch.equal(one.reflection_D, other.reflection_D)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.reflection_D, other.reflection_D)
    assert {name for name, _ in one.named_parameters()} == {"theta"}
    one.reset_parameters(torch.Generator().manual_seed(2))
    assert not torch.equal(one.reflection_D, two.reflection_D)


def test_learned_angles_start_as_the_fixed_ones_and_fixed_ones_are_no_parameter():
    learned, fixed = Rotary(8, learned=True), Rotary(8, learned=False)
    with torch.no_grad():
        learned.reflection_D.copy_(torch.eye(8)[0])
    assert not fixed.state_dict()
    x = draw_qkv(1, 1, 5, 8, seed=0)[0]
    x[..., 0] = 0.0  # orthogonal to the reflection's vector: only the rotation is left
    torch.testing.assert_close(learned.double()(x)[0], fixed(x)[0], atol=1e-6, rtol=0)


def test_the_gradient_of_the_angles_equals_finite_differences():
    module = rotary(4, learned=True)
    q, k, _ = draw_qkv(1, 2, 4, 4, seed=1)

    def rotated(q, k, theta):
        return torch.func.functional_call(module, {"theta": theta}, (q, k), {"start": 3})

    inputs = [x.detach().clone().requires_grad_() for x in (q, k, module.theta)]
    assert torch.autograd.gradcheck(rotated, inputs)
    assert torch.autograd.gradgradcheck(rotated, inputs)


@each_learned
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("start", [0, 1000, 99_960])
def test_a_cast_of_the_module_costs_the_rounding_of_its_output_and_no_angle(learned, dtype, start):
    module = rotary(8, learned).float()  # as it is learned
    x = draw_qkv(1, 2, 40, 8, seed=2)[0].to(dtype)
    (exact,) = copy.deepcopy(module).double()(x.double(), start=start)
    (rotated,) = module.to(dtype)(x, start=start)
    assert rotated.dtype == dtype
    # computed in float32 by a dozen operations on numbers below x's length, then rounded to the dtype
    length = x.double().norm(dim=-1, keepdim=True)
    budget = torch.finfo(dtype).eps * exact.abs() + 16 * torch.finfo(torch.float32).eps * length
    assert ((rotated.double() - exact).abs() <= budget).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_angles_and_reflection_outlive_a_cast_to_a_half_dtype_and_back(dtype):
    module = rotary(8, learned=True).float()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    module(draw_qkv(1, 1, 3, 8, seed=0)[0].float())[0].sum().backward()
    module.to(dtype)
    assert module.theta.grad.dtype == module.theta.dtype  # an optimiser may go on
    module.float()
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())


@each_learned
def test_the_layout_in_memory_does_not_matter(learned):
    module, x = rotary(4, learned), draw_qkv(1, 2, 5, 4, seed=3)[0]
    (expected,) = module(x)
    odd = torch.zeros(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)
    padded = torch.zeros(1, 2, 5, 7, dtype=x.dtype)[..., 1:5].copy_(x)
    for other in (odd, padded, x.transpose(1, 2).contiguous().transpose(1, 2), x.mT.contiguous().mT):
        torch.testing.assert_close(module(other)[0], expected, atol=1e-14, rtol=0)


@each_variant
@each_impl
@each_rotary
@settings(deadline=None, max_examples=3)
@given(**sizes, masked=st.booleans())
def test_each_form_is_the_formula_on_explicitly_rotated_features(
    variant, impl, rotary, n, d, chunk, causal, seed, masked
):
    attention = make_tame(variant, 2, d, chunk, causal=causal, impl=impl, rotary=rotary)
    q, k, v = draw_qkv(2, 2, n, d, seed)
    mask = draw_mask(2, n, seed) if masked else None
    if mask is not None:  # what stands at padded queries means nothing
        q = q.masked_fill(mask[:, None, :, None], 0.0)
    allowed = attention.allowed(n, mask, q.device)
    see = torch.ones(n, n, dtype=torch.bool) if allowed is None else allowed
    c = attention.config
    if attention.name in ("softmax", "diag"):
        positions = [i % c.block_size if attention.name == "diag" else i for i in range(n)]
        s = explicit(attention.rotary, q, positions) @ explicit(attention.rotary, k, positions).mT * d**-0.5
        softmax = getattr(c, "scores", "softmax") == "softmax"
        matrix = masked_softmax(s, see) if softmax else (s * see).relu()
    else:
        phi_q, phi_k = (feature_map(c.phi)(x) for x in (q, k))
        matrix = (
            explicit(attention.rotary, phi_q, [*range(n)]) @ explicit(attention.rotary, phi_k, [*range(n)]).mT
        ) * see
        if attention.name == "linear":
            matrix = matrix / ((phi_q @ phi_k.mT) * see).sum(-1, keepdim=True).clamp(min=c.denominator_floor)
    expected = attention.finish(matrix @ v)
    actual = attention(q, k, v, mask)
    torch.testing.assert_close(actual, expected, atol=1e-9 * max(1.0, expected.abs().max().item()), rtol=0)


@each_variant
@each_rotary
@settings(deadline=None, max_examples=3)
@given(**sizes, where=st.floats(0.01, 1), extra=st.integers(1, 9))
def test_neither_the_future_nor_appended_padding_changes_anything(
    variant, rotary, n, d, chunk, causal, seed, where, extra
):
    attention = make_tame(variant, 2, d, chunk, causal=causal, rotary=rotary)
    longer = draw_qkv(2, 2, n + extra, d, seed)
    qkv = [x[:, :, :n] for x in longer]
    whole = attention(*qkv)
    bound = 1e-9 * max(1.0, whole.abs().max().item())
    padding = (torch.arange(n + extra) >= n).expand(2, -1)
    torch.testing.assert_close(attention(*longer, padding)[:, :, :n], whole, atol=bound, rtol=0)
    if causal:
        cut = max(1, round(where * n))
        prefix = attention(*(x[:, :, :cut] for x in qkv))
        torch.testing.assert_close(prefix, whole[:, :, :cut], atol=bound, rtol=0)


@pytest.mark.parametrize("variant", ["softmax", "linear-1+elu", "unscaled-elu", "norm-elu", "diag-softmax"])
@each_impl
def test_the_angles_of_a_mechanism_get_their_gradient_in_every_form(variant, impl):
    attention = make_tame(variant, 2, 4, chunk=3, causal=True, impl=impl, rotary="lrpe")
    q, k, v = draw_qkv(1, 2, 7, 4, seed=4)
    theta = attention.rotary.theta.detach().clone().requires_grad_()

    def output(theta):
        return torch.func.functional_call(attention, {"rotary.theta": theta}, (q, k, v))

    assert torch.autograd.gradcheck(output, [theta])


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_learns_its_angles_and_casts_like_any_other(name):
    layer = MultiHeadAttention(8, build(name, {"heads": 2, "head_dim": 4, "causal": True, "rotary": "lrpe"}))
    layer(torch.linspace(-1, 1, 48).view(1, 6, 8)).square().sum().backward()
    assert layer.attention.rotary.theta.grad.abs().min() > 0
    x = torch.linspace(-1, 1, 48, dtype=torch.bfloat16).view(1, 6, 8)
    assert layer.bfloat16()(x).dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_rotated_is_refused_in_one_line(name):
    with pytest.raises(
        ValueError, match=r"^head_dim=3: must be even with rotary='lrpe', which rotates pairs of features$"
    ):
        build(name, {"heads": 1, "head_dim": 3, "rotary": "lrpe"})
    with pytest.raises(ValueError, match=r"^rotary='alibi': must be one of 'none', 'rope', 'lrpe'$"):
        build(name, {"heads": 1, "head_dim": 4, "rotary": "alibi"})
    with pytest.raises(ValueError, match="head_dim=3: must be even with rotary='rope'"):
        Rotary(3, learned=False)
