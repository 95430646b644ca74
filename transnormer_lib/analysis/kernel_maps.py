"""The kernels φ of Eq. 6, with the derivative φ′ and the inverse φ⁻¹ that the proofs need.

φ near zero decides whether the gradient of linear attention explodes on its way to q and k: `1+elu` has φ′ ≤ φ
everywhere, but `relu` and `elu` have φ′ = 1 while φ → 0⁺. The φ themselves come from `attention.feature_maps`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.attention.feature_maps import feature_map
from transnormer_lib.checks import check_choice


@dataclass(frozen=True)
class KernelMap:
    """An element-wise kernel φ; the functions take tensors of any shape."""

    name: str
    phi: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]  # φ′
    inverse: Callable[[Tensor], Tensor]  # φ⁻¹ on (0, ∞), for Appendix C


def _slope_of_relu(x: Tensor) -> Tensor:
    return (x > 0).to(x.dtype)


def _slope_of_elu(x: Tensor) -> Tensor:
    return x.clamp(max=0).exp()


def _inverse_of_one_plus_elu(y: Tensor) -> Tensor:
    return torch.where(y > 1, y - 1, y.clamp(max=1).log())


KERNELS: dict[str, KernelMap] = {
    "1+elu": KernelMap("1+elu", feature_map("1+elu"), _slope_of_elu, _inverse_of_one_plus_elu),
    "relu": KernelMap("relu", feature_map("relu"), _slope_of_relu, lambda y: y),
    "elu": KernelMap("elu", feature_map("elu"), _slope_of_elu, lambda y: y),  # signed: footnote 1's f(s) ≥ 0 can fail
}

# Most implementations compute φ as 1 + elu(x); this library does not. The derivative stays exact, but φ rounds to a
# multiple of the machine epsilon, so φ′ ≤ φ fails below x ≈ −36 in float64 and −16 in float32.
ONE_PLUS_ELU_AS_COMPUTED = KernelMap(
    "1+elu as computed", lambda x: 1 + torch.nn.functional.elu(x), _slope_of_elu, _inverse_of_one_plus_elu
)

# Footnote 6 excludes this kernel: its values stay at least 1 away from zero.
ONE_PLUS_RELU = KernelMap("1+relu", lambda x: 1 + torch.relu(x), _slope_of_relu, lambda y: y - 1)


def kernel(name: str) -> KernelMap:
    """The kernel called `name`; raises ValueError unless it is one of `KERNELS`."""
    check_choice("phi", name, KERNELS)
    return KERNELS[name]
