"""Feature maps φ of kernel-based linear attention: elementwise functions on queries and keys.

The similarity of Eq. 6 of "The Devil in Linear Transformer" is s_ij = φ(q_i)·φ(k_j). Configs name φ ``elu``
(TransNormer T1, signed), ``1+elu`` (TransNormer T2 and the 1+elu baseline, positive), ``relu`` or ``identity``.
:func:`degree_two` is not elementwise; the mechanism ``polynomial`` uses it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.checks import check_choice

FeatureMap = Callable[[Tensor], Tensor]


class _OnePlusElu(torch.autograd.Function):
    """Keeps one tensor for the backward pass instead of three: φ' = min(φ, 1)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0.0).exp_().add_(x.clamp(min=0.0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        return grads[0] * phi.clamp(max=1.0)  # differentiable in turn, since phi is this function's own output

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (phi,) = ctx.saved_tensors
        return tangents[0] * phi.clamp(max=1.0)


def one_plus_elu(x: Tensor) -> Tensor:
    """x + 1 where x > 0, exp(x) elsewhere: values in (0, ∞).

    Not computed as elu(x) + 1: in float32 that rounds to 0 below x ≈ -17 while its derivative does not, and
    φ' ≤ φ, which keeps the gradient of scaled linear attention in q and k bounded, would fail there.
    """
    # Without a recorded gradient, as in decoding, a Function costs more than what it computes.
    return _OnePlusElu.apply(x) if torch.is_grad_enabled() else _OnePlusElu.forward(x)


def degree_two(x: Tensor) -> Tensor:
    """All products x_a x_b with a ≤ b, those with a < b times √2: [..., D] to [..., D(D + 1)/2].

    Exact features of the polynomial kernel of degree 2: degree_two(q) · degree_two(k) = (q · k)².
    """
    a, b = torch.triu_indices(x.shape[-1], x.shape[-1], device=x.device)
    twice = torch.where(a == b, x.new_ones(()), x.new_full((), math.sqrt(2.0)))
    return x[..., a] * x[..., b] * twice


FEATURE_MAPS: dict[str, FeatureMap] = {"elu": F.elu, "1+elu": one_plus_elu, "relu": F.relu, "identity": lambda x: x}


def write_features(name: str, x: Tensor, out: Tensor) -> None:
    """φ(x) into ``out`` for the feature map called ``name``, without a gradient, in few operations."""
    if name == "1+elu":
        torch.clamp(x, max=0.0, out=out).exp_().add_(x.relu())
    else:
        out.copy_(FEATURE_MAPS[name](x))


def slope(name: str, phi_x: Tensor) -> Tensor | None:
    """φ'(x) of the feature map called ``name``, from φ(x) alone; None if it is one everywhere."""
    if name == "identity":
        return None
    if name == "relu":
        return (phi_x > 0).to(phi_x.dtype)
    return phi_x.clamp(max=1.0) if name == "1+elu" else phi_x.clamp(max=0.0).add_(1.0)


def feature_map(name: str) -> FeatureMap:
    """The feature map called ``name``; ValueError if there is none."""
    check_choice("phi", name, FEATURE_MAPS)
    return FEATURE_MAPS[name]
