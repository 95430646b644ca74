"""The speed of NormAttention under each norm, and what arithmetic and memory alone would make of it.

Section 4.2 of "The Devil in Linear Transformer" takes RMSNorm "as it is slightly faster than other options" and gives
no numbers. Here the norms take turns within every round, so that what else the machine does meets all of them alike;
a round's value is the median over its repetitions. Beside the times stand the operations and bytes that a norm cannot
do without: the floor under any implementation. Shapes: B batch, H heads, N length, D head_dim; d = H·D.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transnormer_lib.attention.norm import NormAttention

# The passes over the d numbers of a token, one operation per number each, and those over its gradient g. With
# y the normalised token, the gradients are r·(g − y·mean(g·y)) and, for LayerNorm, r·(g − mean(g) − y·mean(g·y)).
# What is done once per token, such as the root, is left out.
_FORWARD: Mapping[str, tuple[str, ...]] = {
    "rms": ("square", "sum", "scale"),
    "layer": ("sum", "centre", "square", "sum of squares", "scale"),
    "scale": ("square", "sum", "scale"),
}
_BACKWARD: Mapping[str, tuple[str, ...]] = {
    "rms": ("g · y", "sum", "times y", "subtract from g", "scale"),
    "layer": ("sum of g", "g · y", "sum", "times y", "subtract from g", "subtract the mean of g", "scale"),
    "scale": ("g · y", "sum", "times y", "subtract from g", "scale"),
}
_READ_OR_WRITTEN = 5  # forward: the token read, y written; backward: g and y read, the gradient written


@dataclass(frozen=True)
class Cost:
    """What one token costs, forward and backward: operations of the norm and of the attention, the norm's bytes."""

    norm_operations: int
    attention_operations: int
    norm_bytes: int


def cost(norm: str, *, heads: int, head_dim: int, length: int, itemsize: int = 4) -> Cost:
    """The floor of ``norm`` (``rms``, ``layer`` or ``scale``, without gain) over the d = H·D numbers of a token.

    The attention's operations are its matrix products, a multiply-add as two, the backward pass as two forward ones.
    Raises ValueError for another norm.
    """
    size = heads * head_dim
    attention = _attention(norm, heads, head_dim)
    return Cost(
        norm_operations=(len(_FORWARD[norm]) + len(_BACKWARD[norm])) * size,
        attention_operations=3 * attention.flops(length) // length,
        norm_bytes=_READ_OR_WRITTEN * size * itemsize,
    )


def seconds_per_round(
    norms: Sequence[str],
    *,
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    rounds: int,
    repeats: int,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """Seconds of NormAttention (bidirectional, φ = 1+elu) forward and backward: per norm one median for each round.

    Raises ValueError for an unknown norm, and where ``rounds`` or ``repeats`` is below 1.
    """
    modules = {norm: _attention(norm, heads, head_dim).to(device) for norm in norms}
    q, k, v, gradient = _inputs((batch, heads, length, head_dim), device, 4)
    passes = {norm: _forward_and_backward(module, (q, k, v), gradient) for norm, module in modules.items()}
    return interleaved(passes, rounds=rounds, repeats=repeats, wait=_waiting_for(device))


def norm_seconds_per_round(
    norms: Sequence[str],
    *,
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    rounds: int,
    repeats: int,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """The same for the norms alone, on tokens [B, N, H·D]: what of the attention's time is theirs."""
    modules = {norm: _attention(norm, heads, head_dim).norm.to(device) for norm in norms}
    x, gradient = _inputs((batch, length, heads * head_dim), device, 2)
    passes = {norm: _forward_and_backward(module, (x,), gradient) for norm, module in modules.items()}
    return interleaved(passes, rounds=rounds, repeats=repeats, wait=_waiting_for(device))


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    repeats: int,
    wait: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each call: the median of ``repeats`` per round, the calls taking turns.

    Who goes first moves on by one with every repetition. All are called once before the clock starts. ``wait`` returns
    when the work that a call has queued is done. Raises ValueError where ``rounds`` or ``repeats`` is below 1.
    """
    for argument, value in (("rounds", rounds), ("repeats", repeats)):
        if value < 1:
            raise ValueError(f"{argument}={value!r}: must be at least 1")
    names = list(calls)
    for call in calls.values():
        call()
    medians: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(repeats):
            first = repeat % len(names)
            for name in names[first:] + names[:first]:
                wait()
                start = time.perf_counter()
                calls[name]()
                wait()
                taken[name].append(time.perf_counter() - start)
        for name in names:
            medians[name].append(statistics.median(taken[name]))
    return medians


def _attention(norm: str, heads: int, head_dim: int) -> NormAttention:
    from transnormer_lib.attention import build

    if norm not in _FORWARD:
        raise ValueError(f"norm={norm!r}: must be one of {', '.join(_FORWARD)}")
    config = {"heads": heads, "head_dim": head_dim, "phi": "1+elu", "norm": norm}
    return cast("NormAttention", build("norm", config))


def _inputs(shape: tuple[int, ...], device: torch.device | str, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for _ in range(count)]


def _forward_and_backward(
    module: Callable[..., Tensor], inputs: tuple[Tensor, ...], gradient: Tensor
) -> Callable[[], object]:
    return lambda: torch.autograd.grad(module(*inputs), inputs, gradient.detach())


def _waiting_for(device: torch.device | str) -> Callable[[], object]:
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
