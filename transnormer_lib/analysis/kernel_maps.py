"""The kernels φ of Eq. 6 with what a proof needs and a forward pass does not: derivative and inverse.

What each one does near zero decides whether the gradient of linear attention that reaches q and k explodes:
`1+elu` has φ′ ≤ φ everywhere; `relu` and `elu` have φ′ = 1 while φ → 0⁺. The maps themselves are those of
`attention.feature_maps`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.attention.feature_maps import feature_map


@dataclass(frozen=True)
class KernelMap:
    """An element-wise kernel φ.

    `phi` and `slope` (φ′) act element-wise on any shape; `inverse` is φ⁻¹ on (0, ∞), which is what
    Appendix C needs. `signed` says that φ takes negative values, so that footnote 1's f(s) ≥ 0 can fail.
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    signed: bool


def _slope_of_elu(x: Tensor) -> Tensor:
    return x.clamp(max=0).exp()


def _inverse_of_one_plus_elu(y: Tensor) -> Tensor:
    return torch.where(y > 1, y - 1, y.clamp(max=1).log())


KERNELS: dict[str, KernelMap] = {
    kernel.name: kernel
    for kernel in (
        KernelMap(
            name="1+elu",
            phi=feature_map("1+elu"),
            slope=_slope_of_elu,
            inverse=_inverse_of_one_plus_elu,
            signed=False,
        ),
        KernelMap(
            name="relu",
            phi=feature_map("relu"),
            slope=lambda x: (x > 0).to(x.dtype),
            inverse=lambda y: y,
            signed=False,
        ),
        KernelMap(
            name="elu",
            phi=feature_map("elu"),
            slope=_slope_of_elu,
            inverse=lambda y: y,
            signed=True,
        ),
    )
}

# φ as most implementations evaluate it, and this library does not: 1 + elu(x). Its derivative stays exact while φ
# itself rounds to a multiple of the machine epsilon, so φ′ ≤ φ fails below x ≈ −36 in float64, −16 in float32.
ONE_PLUS_ELU_AS_COMPUTED = KernelMap(
    name="1+elu as computed",
    phi=lambda x: 1 + torch.nn.functional.elu(x),
    slope=_slope_of_elu,
    inverse=_inverse_of_one_plus_elu,
    signed=False,
)

# A kernel that footnote 6 excludes: its image keeps a distance of 1 from zero.
ONE_PLUS_RELU = KernelMap(
    name="1+relu",
    phi=lambda x: 1 + torch.relu(x),
    slope=lambda x: (x > 0).to(x.dtype),
    inverse=lambda y: y - 1,
    signed=False,
)


def kernel(name: str) -> KernelMap:
    """The kernel called `name`; raises ValueError for a name that is not one of `KERNELS`."""
    if name not in KERNELS:
        raise ValueError(f"phi={name!r}: must be one of {', '.join(KERNELS)}")
    return KERNELS[name]
