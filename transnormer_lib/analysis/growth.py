"""How gradients grow as scores go to zero: Proposition 3.1 followed from s back to q and k.

Along φ(q) = √ε·u, φ(k_j) = √ε·w_j with fixed positive unit vectors u, w_j, every score shrinks like ε while
the attention weights stay what they are. Appendix C takes all w_j equal; then no weight depends on q at all,
so the keys differ here. The largest entry of each gradient is measured by autograd, and its growth is the
slope of log(gradient) against log(ε): −1 is the explosion of Eq. 50, 0 means that nothing explodes.

Shapes: E values of ε, N keys, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.kernel_maps import KernelMap


@dataclass(frozen=True)
class Growth:
    """Largest |∂L/∂s|, |∂L/∂q|, |∂L/∂k| (c₁c₂ = 1) and, with a denominator, |∂p/∂s|; each curve [E]."""

    kernel: str
    mechanism: str
    epsilon: Tensor
    curves: dict[str, Tensor]

    def slope(self, curve: str) -> float:
        """Least-squares slope of log10(curve) over log10(ε)."""
        if curve not in self.curves:
            raise ValueError(f"curve={curve!r}: must be one of {', '.join(self.curves)}")
        x, y = self.epsilon.log10(), self.curves[curve].log10()
        x = x - x.mean()
        return float((x * (y - y.mean())).sum() / x.square().sum())


def positive_directions(rows: int, d: int, generator: Generator) -> Tensor:
    """Unit vectors with positive entries, [rows, D]."""
    drawn = torch.rand(rows, d, generator=generator, dtype=torch.float64) + 0.05
    return drawn / drawn.norm(dim=-1, keepdim=True)


def growth(
    kernel: KernelMap,
    epsilons: Sequence[float],
    *,
    n: int,
    d: int,
    generator: Generator,
    norm: Norm | None = None,
    norm_eps: float = 1e-8,
) -> Growth:
    """Gradients along the path to zero, for linear attention, or for NormAttention where `norm` is given.

    L = g·o with a fixed g of norm 1, values of largest norm 1, so that c₁c₂ = 1. Raises ValueError for fewer
    than two positive `epsilons`.
    """
    if len(epsilons) < 2 or min(epsilons) <= 0:
        raise ValueError(f"epsilons={list(epsilons)}: needs at least two positive values")
    epsilon_E = torch.tensor(list(epsilons), dtype=torch.float64)
    directions = positive_directions(n + 1, d, generator)
    v_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    v_ND = v_ND / v_ND.norm(dim=-1).max()
    g_D = torch.randn(d, generator=generator, dtype=torch.float64)
    g_D = g_D / g_D.norm()

    root_E11 = epsilon_E.sqrt()[:, None, None]
    q_ED = kernel.inverse(root_E11 * directions[:1])[:, 0].detach().requires_grad_()
    k_END = kernel.inverse(root_E11 * directions[1:]).detach().requires_grad_()
    s_EN = gradients.scores(q_ED, k_END, kernel)
    o_ED = gradients.linear_weights(s_EN) @ v_ND if norm is None else gradients.normalise(s_EN @ v_ND, norm, norm_eps)
    # Each ε has its own row, so the sum's gradient holds every row's own.
    found = torch.autograd.grad((o_ED @ g_D).sum(), (s_EN, q_ED, k_END))
    curves = {name: tensor.abs().flatten(1).amax(1) for name, tensor in zip("sqk", found, strict=True)}
    if norm is None:
        curves["p by s"] = _largest_weight_derivative(s_EN.detach())
    return Growth(kernel.name, "linear" if norm is None else norm, epsilon_E, curves)


def _largest_weight_derivative(s_EN: Tensor) -> Tensor:
    jacobian_ENN = torch.func.vmap(torch.func.jacrev(gradients.linear_weights))(s_EN)
    return jacobian_ENN.abs().flatten(1).amax(1)
