"""norm_attention and its step compiled for a GPU: configurations, races, long sequences, graphs, compilations."""

import itertools

import pytest
import torch
from error_budget import assert_within_budget
from kernel_data import inputs, padding, rotation
from linear_cases import assert_case_within_budget, initial_state, kernel, results, specification
from transnormer_kernels import linear_backward, linear_forward, norm_attention, rows
from transnormer_kernels import rotation as tables
from transnormer_kernels.checks import HEAD_DIMS
from transnormer_kernels.step import norm_attention_step, normalise_token, step

pytestmark = pytest.mark.gpu
NORMS = pytest.mark.parametrize("norm", ["embedding", "head", "none", "denominator"])
CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def turns(head_dim: int, norm: str) -> dict[str, torch.Tensor]:
    """A rotation with a reflection, unless a denominator with wide heads refuses it."""
    return {} if norm == "denominator" and head_dim > 64 else rotation(head_dim, F32)


@CAUSAL
@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rotated"])
@NORMS
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=lambda x: str(x)[6:])
def test_every_configuration_stays_within_twice_the_eager_error(dtype, head_dim, norm, rotated, causal):
    """Two segments of saved states and a ragged end; with the rotation also padding and an initial state."""
    options = {"norm": norm, "causal": causal}
    if rotated:
        state = initial_state(2, 3, head_dim, norm, F32)
        options |= {"initial_state": state, "key_padding_mask": padding(2, 333), "position": 5, **turns(head_dim, norm)}
    assert_case_within_budget(*inputs(2, 333, 3, head_dim, dtype), **options)


@pytest.mark.parametrize("norm", ["embedding", "denominator"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_same_call_gives_the_same_numbers(head_dim, norm):
    data = inputs(2, 3000, 4, head_dim, BF16)
    options = {"norm": norm, **turns(head_dim, norm)}
    first = results(kernel, *data, **options)
    for _ in range(3):
        for name, x in results(kernel, *data, **options).items():
            assert torch.equal(x, first[name]), name


def piecewise(q, k, v, *, position=0, initial_state=None, **options):
    """``specification`` on 1024 tokens at a time, each piece from the state of the pieces before."""
    pieces, state = [], initial_state
    for first in range(0, q.shape[1], 1024):
        own = (x[:, first : first + 1024] for x in (q, k, v))
        o, state = specification(*own, position=position + first, initial_state=state, **options)
        pieces.append(o)
    return torch.cat(pieces, 1), state


@pytest.mark.parametrize("segments", [None, 1])
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
def test_65536_tokens_stay_within_twice_the_eager_error(norm, segments):
    """Causal, so that the specification can run in pieces; it sums its state in the dtype, the kernels do not."""
    data = inputs(1, 65536, 1, 64, BF16)
    options = {"norm": norm, "theta": rotation(64, F32)["theta"]}
    exact = results(piecewise, *(x.double() for x in data), **options)
    eager = results(piecewise, *data, **options)
    found = results(kernel, *data, segments=segments, **options)
    assert_within_budget(found, eager, exact, 65536 + 64)


def captured(f) -> tuple[torch.cuda.CUDAGraph, object]:
    """A CUDA graph of ``f``, captured after one call that compiles it, and its result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        f()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = f()
    return graph, made


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@NORMS
def test_a_captured_graph_replays_the_forward_and_backward_pass(norm, packed):
    data = inputs(1, 600, 2, 64, BF16)
    options = {"norm": norm, **rotation(64, F32)}
    if packed:
        offsets = torch.tensor([0, 100, 600], dtype=torch.int32, device="cuda")
        options |= {"cu_seqlens": offsets, "max_seqlen": 500}
    data_now = [x.clone() for x in data]

    def both():
        leaves = [x.detach().requires_grad_() for x in data_now[:3]]
        o = norm_attention(*leaves, **options)
        return [o.detach(), *torch.autograd.grad(o, leaves, data_now[3])]

    graph, found = captured(both)
    for x, other in zip(data_now, inputs(2, 600, 2, 64, BF16), strict=True):
        x.copy_(other[:1])  # what the graph reads has changed since
    graph.replay()
    torch.cuda.synchronize()
    again = [x.clone() for x in found]
    for x, expected in zip(again, both(), strict=True):
        assert torch.equal(x, expected)


@NORMS
def test_a_captured_graph_replays_steps_with_a_position_that_moves(norm):
    q, k, v, _ = inputs(2, 6, 4, 64, BF16)
    options = {"norm": norm, **rotation(64, F32)}
    now = [x[:, 0].clone() for x in (q, k, v)]
    position = torch.zeros((), dtype=torch.int64, device="cuda")
    state, wanted = (initial_state(2, 4, 64, norm, F32) for _ in range(2))
    graph, o = captured(lambda: norm_attention_step(*now, state, position=position, **options))
    for name, x in wanted.items():
        state[name].copy_(x)  # the call before the capture moved it
    for n in range(6):
        for x, new in zip(now, (q, k, v), strict=True):
            x.copy_(new[:, n])
        position.fill_(n)
        graph.replay()
        expected = norm_attention_step(q[:, n], k[:, n], v[:, n], wanted, position=n, **options)
        torch.testing.assert_close(o, expected)
        torch.testing.assert_close(state, wanted)


def compiled() -> int:
    """The number of compiled kernel variants on this device."""
    device = torch.cuda.current_device()
    modules = (linear_forward, linear_backward, rows, tables)
    kernels = [x for module in modules for x in vars(module).values() if hasattr(x, "device_caches")]
    kernels += [step, normalise_token]
    return sum(len(x.device_caches[device][0]) for x in {id(x): x for x in kernels}.values())


@CAUSAL
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
def test_nothing_is_recompiled_when_length_batch_or_position_change(norm, causal):
    def call(batch, length, position):
        data = inputs(batch, length, 2, 64, BF16)
        options = {"norm": norm, "causal": causal, "position": position, **rotation(64, F32)}
        mask = padding(batch, length)
        results(kernel, *data, segments=2, key_padding_mask=mask, **options)
        state = initial_state(batch, 2, 64, norm, F32)
        norm_attention_step(*(x[:, 0] for x in data[:3]), state, norm=norm, position=position, **rotation(64, F32))

    call(2, 600, 3)
    before = compiled()
    assert before > 0
    for batch, length, position in itertools.product((1, 2, 3), (513, 1000, 4096), (0, 1, 16)):
        call(batch, length, position)
    assert compiled() == before


def test_autocast_to_bfloat16_gives_the_kernels_its_dtype():
    data = inputs(1, 100, 2, 64, F32)
    with torch.autocast("cuda", dtype=BF16):
        found = results(kernel, *data[:3], data[3].bfloat16())
    assert found["o"].dtype == BF16
    assert found["dq"].dtype == found["kv"].dtype == F32
    assert torch.equal(found["o"], norm_attention(*(x.bfloat16() for x in data[:3])))


def test_float64_is_refused():
    q, k, v, _ = inputs(1, 4, 1, 16, torch.float64)
    with pytest.raises(TypeError, match=r"q\.dtype=torch\.float64: runs only under TRITON_INTERPRET=1"):
        norm_attention(q, k, v)
