"""The speed of NormAttention under each norm, and the operations and bytes that any implementation needs.

Section 4.2 of "The Devil in Linear Transformer" takes RMSNorm "as it is slightly faster than other options" and gives
no numbers. Shapes: B batch, H heads, N length, D head_dim; d = H·D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.attention import build
from transnormer_lib.attention.norm import NormAttention
from transnormer_lib.attention.norms import RMSNorm
from transnormer_lib.checks import check_choice

# The passes over the d numbers of a token or of its gradient g, one operation per number each. With y the normalised
# token, the gradients are r·(g − y·mean(g·y)) and, for LayerNorm, r·(g − mean(g) − y·mean(g·y)). Work done once per
# token, such as the root, is left out.
_RMS = ("square", "sum", "scale", "g · y", "sum", "times y", "subtract from g", "scale")
_LAYER = (*_RMS, "sum", "centre", "sum of g", "subtract the mean of g")
# PyTorch computes "layer" in one fused kernel. "layer-written" is RMSNorm of the centred token: LayerNorm in the same
# operations as RMSNorm here, so that its centring is all that differs.
_PASSES: Mapping[str, tuple[str, ...]] = {"rms": _RMS, "layer": _LAYER, "layer-written": _LAYER, "scale": _RMS}
_BYTES = 5 * 4  # in float32; forward: the token read, y written; backward: g and y read, the gradient written


@dataclass(frozen=True)
class Cost:
    """The cost of one token, forward and backward."""

    norm_operations: int
    attention_operations: int
    norm_bytes: int


def cost(norm: str, *, heads: int, head_dim: int, length: int) -> Cost:
    """The floor of ``norm`` (``rms``, ``layer``, ``layer-written``, ``scale``; no gain) over a token's d = H·D numbers.

    The attention's operations are its matrix products: a multiply-add counts as two operations, the backward pass as
    two forward passes. Raises ValueError for another norm.
    """
    size = heads * head_dim
    attention = _attention(norm, heads, head_dim)
    return Cost(len(_PASSES[norm]) * size, 3 * attention.flops(length) // length, _BYTES * size)


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
    norm_only: bool = False,
) -> dict[str, list[float]]:
    """Seconds of NormAttention (bidirectional, φ = 1+elu) forward and backward: per norm one median for each round.

    ``norm_only`` times the norms alone, on tokens [B, N, H·D]. Raises ValueError for an unknown norm, and if
    ``rounds`` or ``repeats`` is below 1.
    """
    modules = {norm: _attention(norm, heads, head_dim).to(device) for norm in norms}
    shape = (batch, length, heads * head_dim) if norm_only else (batch, heads, length, head_dim)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator).to(device) for _ in range(2 if norm_only else 4)]
    calls = {
        norm: forward_and_backward(module.norm if norm_only else module, *drawn) for norm, module in modules.items()
    }
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    return interleaved(calls, rounds=rounds, repeats=repeats, wait=wait)


def forward_and_backward(module: Callable[..., Tensor], *inputs_and_gradient: Tensor) -> Callable[[], object]:
    """A call that runs ``module`` on the inputs, which come first, and its backward pass on the gradient."""
    *inputs, gradient = inputs_and_gradient
    for x in inputs:
        x.requires_grad_()
    return lambda: torch.autograd.grad(module(*inputs), inputs, gradient)


class Centred(nn.Module):
    """LayerNorm without gain: RMSNorm of x [..., size] minus its mean."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.norm = RMSNorm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.norm(x - x.mean(-1, keepdim=True)))


def _attention(norm: str, heads: int, head_dim: int) -> NormAttention:
    check_choice("norm", norm, _PASSES)
    config = {"heads": heads, "head_dim": head_dim, "phi": "1+elu", "norm": norm.removesuffix("-written")}
    attention = cast("NormAttention", build("norm", config))
    if norm == "layer-written":
        attention.norm = Centred(heads * head_dim, attention.config.eps)
    return attention
