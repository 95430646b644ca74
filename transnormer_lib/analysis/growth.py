"""How gradients grow as the scores go to zero: Proposition 3.1 followed from s back to q and k.

The paper's symbols: s, q, k, v, p, φ and g as in `attention_gradients`; c₁ = |g| and c₂ = max_j |v_j| of Eq. 40.

The path is φ(q) = √ε·u, φ(k_j) = √ε·w_j with fixed positive unit vectors u, w_j, so every score shrinks like ε
and the attention weights stay the same. Appendix C takes all w_j equal, but then no weight depends on q, so the
keys differ here. Autograd measures the largest entry of each gradient. Its growth is the slope of log(gradient)
against log(ε): −1 is the explosion of Eq. 50, and 0 means that nothing explodes.

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
from transnormer_lib.checks import check_choice


@dataclass(frozen=True)
class Growth:
    """Curves [E] of the largest |∂L/∂s|, |∂L/∂q|, |∂L/∂k| (c₁c₂ = 1) and, with a denominator, |∂p/∂s|."""

    epsilon: Tensor
    curves: dict[str, Tensor]

    def slope(self, curve: str) -> float:
        """Least-squares slope of log10(curve) over log10(ε)."""
        check_choice("curve", curve, self.curves)
        x, y = self.epsilon.log10(), self.curves[curve].log10()
        x = x - x.mean()
        return float((x * (y - y.mean())).sum() / x.square().sum())


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
    """Gradients along the path for linear attention, or for NormAttention (Eq. 14) if `norm` is given.

    The loss is L = g·o with c₁ = c₂ = 1. Raises ValueError for fewer than two positive `epsilons`.
    """
    if len(epsilons) < 2 or min(epsilons) <= 0:
        raise ValueError(f"epsilons={list(epsilons)}: needs at least two positive values")
    epsilon_E = torch.tensor(list(epsilons), dtype=torch.float64)
    directions = torch.rand(n + 1, d, generator=generator, dtype=torch.float64) + 0.05  # u, then w_1 ... w_n
    directions = directions / directions.norm(dim=-1, keepdim=True)
    v_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    v_ND = v_ND / v_ND.norm(dim=-1).max()
    g_D = torch.randn(d, generator=generator, dtype=torch.float64)
    g_D = g_D / g_D.norm()

    root_E11 = epsilon_E.sqrt()[:, None, None]
    q_ED = kernel.inverse(root_E11 * directions[:1])[:, 0].detach().requires_grad_()
    k_END = kernel.inverse(root_E11 * directions[1:]).detach().requires_grad_()
    s_EN = gradients.scores(q_ED, k_END, kernel)
    o_ED = gradients.linear_weights(s_EN) @ v_ND if norm is None else gradients.normalise(s_EN @ v_ND, norm, norm_eps)
    # Rows do not interact, so the gradient of the sum holds the gradient of every row.
    found = torch.autograd.grad((o_ED @ g_D).sum(), (s_EN, q_ED, k_END))
    curves = {name: tensor.abs().flatten(1).amax(1) for name, tensor in zip("sqk", found, strict=True)}
    if norm is None:
        jacobian_ENN = torch.func.vmap(torch.func.jacrev(gradients.linear_weights))(s_EN.detach())
        curves["p by s"] = jacobian_ENN.abs().flatten(1).amax(1)
    return Growth(epsilon_E, curves)
