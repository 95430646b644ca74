"""Feature maps φ of kernel-based linear attention: elementwise functions on queries and keys.

The similarity of Eq. 6 of "The Devil in Linear Transformer" is s_ij = φ(q_i)·φ(k_j). The names are those that
configs carry: ``elu`` (TransNormer T1, signed), ``1+elu`` (TransNormer T2 and the 1+elu baseline, positive),
``relu`` (not negative) and ``identity``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FeatureMap = Callable[[Tensor], Tensor]


def elu(x: Tensor) -> Tensor:
    """x where x > 0, exp(x) − 1 elsewhere: values in (−1, ∞)."""
    return F.elu(x)


class _OnePlusElu(torch.autograd.Function):
    """One tensor kept for the backward pass instead of three: φ' = min(φ, 1)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0.0).exp_().add_(x.clamp(min=0.0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        return grads[0] * phi.clamp(max=1.0)  # differentiable in turn, since phi is this function's own output


def one_plus_elu(x: Tensor) -> Tensor:
    """x + 1 where x > 0, exp(x) elsewhere: values in (0, ∞).

    Not computed as elu(x) + 1: in float32 that rounds to 0 below x ≈ -17 while its derivative does not, and
    φ' ≤ φ, which keeps the gradient of scaled linear attention in q and k bounded, would fail there.
    """
    # Where no gradient is recorded, as in decoding, a Function costs more than what it computes.
    return _OnePlusElu.apply(x) if torch.is_grad_enabled() else _OnePlusElu.forward(x)


def relu(x: Tensor) -> Tensor:
    """max(x, 0): values in [0, ∞)."""
    return F.relu(x)


def identity(x: Tensor) -> Tensor:
    """x itself: Eq. 13 as printed."""
    return x


_FEATURE_MAPS: dict[str, FeatureMap] = {"elu": elu, "1+elu": one_plus_elu, "relu": relu, "identity": identity}


def feature_map_names() -> tuple[str, ...]:
    """The names that ``feature_map`` knows."""
    return tuple(_FEATURE_MAPS)


def slope(name: str, phi_x: Tensor) -> Tensor | None:
    """φ'(x) of the feature map called ``name``, from φ(x) alone; None where it is one everywhere."""
    if name == "identity":
        return None
    if name == "relu":
        return (phi_x > 0).to(phi_x.dtype)
    return phi_x.clamp(max=1.0) if name == "1+elu" else phi_x.clamp(max=0.0).add_(1.0)


def feature_map(name: str) -> FeatureMap:
    """The feature map called ``name``; ValueError naming the nearest one where there is none."""
    if name not in _FEATURE_MAPS:
        near = difflib.get_close_matches(str(name), _FEATURE_MAPS, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"phi={name!r}: must be one of {', '.join(_FEATURE_MAPS)}{hint}")
    return _FEATURE_MAPS[name]
