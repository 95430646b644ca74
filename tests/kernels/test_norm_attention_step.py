"""norm_attention_step is norm_attention, one token at a time."""

import pytest
import torch
from error_budget import assert_exact, assert_within_budget
from kernel_data import DEVICE, ON_CPU, inputs, rotation
from linear_cases import initial_state, specification
from transnormer_kernels import norm_attention
from transnormer_kernels.checks import HEAD_DIMS
from transnormer_kernels.step import norm_attention_step
from transnormer_kernels.tiles import PHI

NORMS = pytest.mark.parametrize("norm", ["embedding", "head", "none", "denominator"])
F64, F32, F16 = torch.float64, torch.float32, torch.float16


def stepped(q, k, v, state, position=0, **options) -> dict:
    """o of every token and the state after the last, from a copy of ``state``; positions as int and tensor in turn."""
    state = {name: x.clone() for name, x in state.items()}
    rows = []
    for n in range(q.shape[1]):
        place = position + n
        place = torch.tensor(place, device=q.device) if n % 2 else place
        rows.append(norm_attention_step(q[:, n], k[:, n], v[:, n], state, position=place, **options))
    return {"o": torch.stack(rows, 1), **state}


def whole(q, k, v, state, **options) -> dict:
    """The same, from the specification."""
    o, after = specification(q, k, v, initial_state=state, **options)
    return {"o": o, **after}


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("rotated", [(), ("theta",), ("theta", "reflection")], ids=["plain", "rope", "lrpe"])
@NORMS
def test_every_norm_and_rotation_agrees_token_by_token(norm, rotated):
    """Heads of 80 numbers leave columns of a tile empty. A reflection works here even with a denominator."""
    q, k, v, _ = inputs(2, 4, 2, 80, F64)
    turns = {name: x for name, x in rotation(80).items() if name in rotated}
    state = initial_state(2, 2, 80, norm, F64)
    options = {"norm": norm, "position": 7, **turns}
    assert_exact(stepped(q, k, v, state, **options), whole(q, k, v, state, **options), (q, k, v))


@pytest.mark.slow
@ON_CPU
@NORMS
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dimension_continues_from_the_state_of_the_parallel_form(head_dim, norm):
    q, k, v, _ = inputs(1, 6, 2, head_dim, F64)
    o, end = norm_attention(q, k, v, norm=norm, output_final_state=True)
    _, state = norm_attention(q[:, :4], k[:, :4], v[:, :4], norm=norm, output_final_state=True)
    found = stepped(q[:, 4:], k[:, 4:], v[:, 4:], state, norm=norm)
    assert_exact(found, {"o": o[:, 4:], **end}, (q, k, v))


@ON_CPU
@pytest.mark.parametrize("placement", ["inside", "outside"])
@pytest.mark.parametrize("phi", PHI)
def test_every_feature_map_and_epsilon_agrees(phi, placement):
    q, k, v, _ = inputs(1, 3, 2, 16, F64)
    for norm in ("embedding", "head", "denominator"):
        state = initial_state(1, 2, 16, norm, F64)
        options = {"phi": phi, "norm": norm, "eps": 10.0, "eps_placement": placement, "denominator_floor": 0.5}
        assert_exact(stepped(q, k, v, state, **options), whole(q, k, v, state, **options), (q, k, v))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F32, F16], ids=["float32", "float16"])
@NORMS
def test_low_precision_stays_within_twice_the_eager_error(norm, dtype):
    q, k, v, _ = inputs(1, 6, 2, 64, dtype)
    state = initial_state(1, 2, 64, norm, F32)
    options = {"norm": norm, **rotation(64, F32)}
    exact = whole(*(x.double() for x in (q, k, v)), {name: x.double() for name, x in state.items()}, **options)
    eager = whole(q, k, v, state, **options)
    assert_within_budget(stepped(q, k, v, state, **options), eager, exact, 6 + 64)


@NORMS
def test_the_state_is_updated_in_place_and_nothing_else_is(norm):
    q, k, v, _ = (x[:, 0] for x in inputs(2, 1, 2, 16, F32))
    state = initial_state(2, 2, 16, norm, F32)
    data, before = [x.clone() for x in (q, k, v)], {name: (x.data_ptr(), x.clone()) for name, x in state.items()}
    o = norm_attention_step(q.requires_grad_(), k, v, state, norm=norm)
    assert not o.requires_grad
    for name, (place, x) in before.items():
        assert state[name].data_ptr() == place
        assert not torch.equal(state[name], x)
    assert all(torch.equal(x, y) for x, y in zip(data, (q, k, v), strict=True))


def test_views_of_one_projection_give_the_same():
    q, k, v, _ = (x[:, 0] for x in inputs(2, 1, 2, 16, F32))
    states = [initial_state(2, 2, 16, "embedding", F32) for _ in range(3)]
    expected = norm_attention_step(q, k, v, states[0])
    assert torch.equal(norm_attention_step(*torch.cat([q, k, v], -1).split(16, -1), states[1]), expected)
    assert torch.equal(norm_attention_step(q.mT.contiguous().mT, k, v, states[2]), expected)
    assert torch.equal(states[0]["kv"], states[1]["kv"])
    assert torch.equal(states[0]["kv"], states[2]["kv"])


@NORMS
def test_a_token_without_positive_features_gets_zeros(norm):
    q, k, v, _ = (x[:, 0] for x in inputs(1, 1, 2, 16, F16))
    state = initial_state(1, 2, 16, norm, F32)
    before = {name: x.clone() for name, x in state.items()}
    for placement in ("inside", "outside"):
        o = norm_attention_step(-q.abs(), -k.abs(), v, state, phi="relu", norm=norm, eps_placement=placement)
        assert not o.any()
    assert all(torch.equal(x, before[name]) for name, x in state.items())


@pytest.mark.parametrize("norm", ["embedding", "denominator"])
@pytest.mark.parametrize("counted", [False, True], ids=["int", "tensor"])
def test_opcheck(norm, counted):
    q, k, v, _ = (x[:, 0] for x in inputs(1, 1, 2, 16, F32))
    theta, reflection = rotation(16, F32).values()
    state = initial_state(1, 2, 16, norm, F32)
    z = state.get("z", q.new_empty(0))
    place = (0, torch.tensor(3, device=DEVICE)) if counted else (3, None)
    options = ("1+elu", norm, 1e-8, "inside", 1e-6)
    operator = torch.ops.transnormer.linear_attention_step.default
    torch.library.opcheck(operator, (q, k, v, state["kv"], z, *options, theta, reflection, *place))


def test_it_compiles_as_one_graph():
    q, k, v, _ = (x[:, 0] for x in inputs(1, 1, 2, 16, F32))
    states = [initial_state(1, 2, 16, "denominator", F32) for _ in range(2)]
    options = {"norm": "denominator", "position": torch.tensor(3, device=DEVICE), **rotation(16, F32)}
    compiled = torch.compile(norm_attention_step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, states[0], **options), norm_attention_step(q, k, v, states[1], **options))
    for name, x in states[0].items():
        assert torch.equal(x, states[1][name]), name


# ------------------------------------------------------------------------------------------------- what is refused

X = torch.zeros(2, 1, 16, device=DEVICE)
KV = torch.zeros(2, 1, 16, 16, device=DEVICE)


@pytest.mark.parametrize(
    ("x", "state", "options", "error", "message"),
    [
        (X[0], {"kv": KV}, {}, ValueError, "q.shape=(1, 16): must be [B, H, D]"),
        (X[..., :8], {"kv": KV}, {}, ValueError, "head_dim=8: must be one of"),
        (X.int(), {"kv": KV}, {}, TypeError, "q.dtype=torch.int32"),
        (X, {}, {}, ValueError, "state=[]: must hold kv"),
        (X, {"kv": KV, "z": X}, {}, ValueError, "state=['kv', 'z']: must hold kv with norm='embedding'"),
        (X, {"kv": KV}, {"norm": "denominator"}, ValueError, "state=['kv']: must hold kv, z"),
        (X, {"kv": KV[:1]}, {}, ValueError, "state['kv'] is torch.float32 (1, 1, 16, 16)"),
        (X, {"kv": KV, "z": X[..., :8]}, {"norm": "denominator"}, ValueError, "state['z'] is torch.float32 (2, 1, 8)"),
        (X, {"kv": KV.half()}, {}, ValueError, "state['kv'] is torch.float16"),
        (X.half(), {"kv": KV.half()}, {}, ValueError, "state['kv'] is torch.float16"),
        (X, {"kv": KV.to("meta")}, {}, ValueError, "state['kv'] is torch.float32 (2, 1, 16, 16) on meta"),
        (X, {"kv": torch.zeros(2, 1, 16, 32, device=DEVICE)[..., ::2]}, {}, ValueError, "state: its tensors must be"),
        (X, {"kv": KV}, {"phi": "gelu"}, ValueError, "phi='gelu'"),
        (X, {"kv": KV}, {"norm": "layer"}, ValueError, "norm='layer'"),
        (X, {"kv": KV}, {"eps": 0.0}, ValueError, "eps=0.0: must be a positive finite number"),
        (X, {"kv": KV}, {"eps_placement": "around"}, ValueError, "eps_placement='around'"),
        (X, {"kv": KV}, {"denominator_floor": 0.0}, ValueError, "denominator_floor=0.0"),
        (X, {"kv": KV}, {"position": -1}, ValueError, "position=-1: must be a whole number of at least 0"),
        (X, {"kv": KV}, {"position": torch.tensor(1.0)}, ValueError, "position is torch.float32"),
        (X, {"kv": KV}, {"theta": torch.zeros(4, device=DEVICE)}, ValueError, "theta is (4,)"),
        (X, {"kv": KV}, {"reflection": torch.ones(16, device=DEVICE)}, ValueError, "reflection without theta"),
    ],
    ids=lambda x: x.replace(" ", "_") if isinstance(x, str) else "",
)
def test_what_does_not_fit_is_refused_in_one_line(x, state, options, error, message):
    with pytest.raises(error) as caught:
        norm_attention_step(x, x, x, state, **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
