"""FLASH and FLASH-quad against their equations token by token, and what sets them apart."""

import math

import pytest
import torch
import torch.nn.functional as F
from mechanism_cases import HEAD_DIM, HEADS, draw, holes, make
from torch import Tensor

from transnormer_lib.attention import AttentionBlock, build

DIM = HEADS * HEAD_DIM
both = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
OPTIONS = [
    ("flash", {}),
    ("flash", {"divide_by": "chunk"}),
    ("flash", {"position_bias": "rope"}),
    ("flash", {"position_bias": "none", "rope": False}),
    ("flash", {"token_shift": True}),
    ("flash", {"chunk_size": 100}),
    ("flash", {"chunk_size": 1}),
    ("flash-quad", {}),
    ("flash-quad", {"divide_by": "max_length"}),
    ("flash-quad", {"divide_by": "length"}),
    ("flash-quad", {"position_bias": "rope"}),
    ("flash-quad", {"position_bias": "none", "rope": False}),
    ("flash-quad", {"token_shift": True}),
]
each_option = pytest.mark.parametrize(
    ("name", "fields"), OPTIONS, ids=[" ".join([name, *(f"{k}={v}" for k, v in f.items())]) for name, f in OPTIONS]
)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def rotate(x: Tensor, position: int) -> Tensor:
    """RoPE of one vector [s], pair by pair."""
    rotated = x.clone()
    for m in range(len(x) // 2):
        angle = position * 10000.0 ** (-2 * m / len(x))
        a, b = x[2 * m], x[2 * m + 1]
        rotated[2 * m] = a * math.cos(angle) - b * math.sin(angle)
        rotated[2 * m + 1] = a * math.sin(angle) + b * math.cos(angle)
    return rotated


def by_the_equations(block: AttentionBlock, x: Tensor, mask: Tensor) -> Tensor:
    """One sequence [N, D], token by token: Sections 3 and 4 of Hua et al., with n, b and the chunks as configured."""
    config = block.config
    c, causal, by = getattr(config, "chunk_size", 0), config.causal, config.divide_by
    real = [i for i in range(len(x)) if not mask[i]]
    u, v, z = [], [], []
    for i in range(len(x)):
        token = x[i].clone()
        if config.token_shift:
            token[: DIM // 2] = x[i - 1, : DIM // 2] if i else 0.0
        t = F.silu(block.in_proj.weight @ token + block.in_proj.bias)
        u.append(t[: 2 * DIM])
        v.append(t[2 * DIM : 4 * DIM])
        z.append(t[4 * DIM :])

    def image(h: int, i: int) -> Tensor:
        t = block.gamma[h] * z[i] + block.beta[h]
        return rotate(t, i) if config.rope else t

    def b(i: int, j: int) -> Tensor | float:
        if config.position_bias == "table":
            return block.table[len(block.table) // 2 + j - i]
        if config.position_bias == "rope":
            return rotate(block.bias_vectors[0], i) @ rotate(block.bias_vectors[1], j)
        return 0.0

    rows = []
    for i in range(len(x)):
        seen = [j for j in real if j <= i or not causal]
        o = torch.zeros(2 * DIM, dtype=x.dtype)
        if block.name == "flash-quad":
            n = {"seen": len(seen), "length": len(real), "max_length": config.max_length}[by]
            for j in seen:
                o = o + (image(0, i) @ image(1, j) / n + b(i, j)).relu() ** 2 * v[j]
        else:
            for j in seen:
                if j // c == i // c:
                    o = o + (image(0, i) @ image(2, j) / c + b(i, j)).relu() ** 2 * v[j]
            across = [j for j in seen if j // c < i // c or not causal]
            for j in across:
                o = o + image(1, i) @ image(3, j) * v[j] / (c if by == "chunk" else len(across))
        rows.append(block.out_proj.weight @ (u[i] * o) + block.out_proj.bias)
    return torch.stack(rows)


@pytest.mark.slow
@both
@each_option
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_both_forms_compute_the_equations(name, fields, causal, impl):
    n = 21
    block, (x,), mask = make(name, 1, causal=causal, impl=impl, **fields), draw(name, 2, n, 1), holes(2, n, 1)
    with torch.no_grad():
        actual = block(x, mask)
        for row in range(2):
            expected = by_the_equations(block, x[row].masked_fill(mask[row, :, None], 0.0), mask[row])
            close(actual[row][~mask[row]], expected[~mask[row]])


@pytest.mark.parametrize(("name", "fields"), [option for option in OPTIONS if option[1].get("divide_by") != "length"])
def test_steps_compute_the_parallel_form_with_every_option(name, fields):
    block, (x,) = make(name, 2, causal=True, **fields), draw(name, 2, 20, 2)
    expected = block(x)
    for start in (0, 7, 8, 16):
        outputs, state = [], block.initial_state(2, torch.float64)
        if start:
            first, state = block.prefill(x[:, :start])
            outputs = list(first.unbind(1))
        for i in range(start, 20):
            y, state = block.step(x[:, i], state)
            outputs.append(y)
        close(torch.stack(outputs, dim=1), expected.detach())


@pytest.mark.parametrize(
    ("name", "divide_by", "invariant"),
    [
        ("flash", "seen", True),
        ("flash", "chunk", True),
        ("flash-quad", "seen", True),
        ("flash-quad", "max_length", True),
        ("flash-quad", "length", False),
    ],
)
def test_division_by_the_whole_length_alone_lets_the_number_of_later_tokens_through(name, divide_by, invariant):
    block, (x,) = make(name, 3, causal=True, divide_by=divide_by), draw(name, 1, 40, 3)
    assert torch.allclose(block(x[:, :20]), block(x)[:, :20], rtol=1e-9, atol=1e-9) is invariant


def test_flash_quad_divided_by_the_whole_length_has_no_recurrent_form():
    with pytest.raises(ValueError, match="divide_by='length': has no recurrent form"):
        make("flash-quad", causal=True, divide_by="length").initial_state(1)


def test_causal_flash_within_one_chunk_is_flash_quad_divided_by_the_chunk():
    c = 32
    flash, (x,) = make("flash", 4, causal=True, chunk_size=c, max_length=c), draw("flash", 2, c, 4)
    quad = make("flash-quad", 5, causal=True, max_length=c, divide_by="max_length")
    state = {name: value for name, value in flash.state_dict().items() if name not in ("gamma", "beta")}
    quad.load_state_dict({**state, "gamma": flash.gamma[[0, 2]], "beta": flash.beta[[0, 2]]})
    close(flash(x), quad(x))


def test_released_states_grow_with_the_length_and_the_default_ones_do_not():
    """A token repeated: the mean over earlier tokens stays, a sum divided by the chunk size grows with each chunk."""
    (x,) = draw("flash", 1, 1, 6)
    x = x.expand(1, 64, DIM)
    linear = {}
    for divide_by in ("seen", "chunk"):
        block = make("flash", 6, causal=True, divide_by=divide_by, rope=False, position_bias="none")
        with torch.no_grad():
            block.gamma[[0, 2]], block.beta[[0, 2]], block.out_proj.bias[:] = 0.0, 0.0, 0.0  # the linear part alone
        linear[divide_by] = block(x)[0, ::8]
    close(linear["seen"][2:], linear["seen"][1:2].expand(6, -1))
    assert not linear["seen"][0].any()
    for chunk in range(8):
        close(linear["chunk"][chunk], chunk * linear["chunk"][1])


def test_a_table_refuses_a_longer_sequence_in_flash_quad_and_not_in_flash():
    (x,) = draw("flash-quad", 1, 17, 7)
    message = "length=17: exceeds max_length=16"
    quad = make("flash-quad", 7, max_length=16, causal=True)
    with pytest.raises(ValueError, match=message):
        quad(x)
    _, state = quad.prefill(x[:, :16])
    with pytest.raises(ValueError, match=message):
        quad.step(x[:, 16], state)
    assert make("flash-quad", 7, max_length=16, position_bias="rope")(x).isfinite().all()
    assert make("flash", 7, max_length=16)(x).isfinite().all()


def test_an_odd_width_cannot_be_rotated():
    with pytest.raises(ValueError, match="s=7: must be even with rope=True"):
        build("flash-quad", {"dim": DIM, "s": 7})
