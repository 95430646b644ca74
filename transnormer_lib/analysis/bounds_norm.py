"""The bounds on NormAttention: as published (Eq. 53, 57, 61) and sharp, for every placement of ε.

The paper's symbols: scores s [n] (any sign, as φ = elu gives), values v [n, d], upstream gradient g [d], and
c₁c₂ of Eq. 40; t = T_i [d] is the row to normalise, σ² the mean of its squares, ρ = √(σ²+ε), and R = ∂o/∂t.

- ε inside the root: R = (I − ttᵀ/(dρ²))/ρ has eigenvalues 1/ρ across t and ε/ρ³ along t. So ‖R‖₂ ≤ 1/√ε, attained
  at t = 0, and |∂L/∂s_ij| ≤ c₁c₂/√ε is sharp.
- ε outside the root: the eigenvalues are 1/(σ+ε) and ε/(σ+ε)², so the constant becomes c₁c₂/ε.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.bound_search import Bound, Inputs, Sizes, filled, one_apart
from transnormer_lib.analysis.bounds_attention import c1_c2, largest
from transnormer_lib.checks import check_choice

Form = Literal["published", "sharp"]
Measure = Literal["entry", "frobenius", "spectral"]


def published_constant(d: int, eps: float) -> float:
    """3d/(2√ε) of Eq. 15 and 61, to be multiplied by c₁c₂."""
    return 3 * d / (2 * math.sqrt(eps))


def sharp_constant(norm: Norm, eps: float) -> float:
    """The smallest constant that bounds |∂L/∂s_ij| / (c₁c₂): 1/√ε, or 1/ε with ε outside the root."""
    gradients.check_norm(norm, eps)
    return 1 / eps if norm == "rms-outside" else 1 / math.sqrt(eps)


def norm_jacobian(measure: Measure, form: Form, eps: float) -> Bound:
    """Eq. 53 and 57 for RMSNorm with ε inside the root.

    `entry` compares |∂o_ij/∂t_ik| with 3/2 (published) or 1 (sharp) times 1/√(σ²+ε). `frobenius` and `spectral`
    compare that norm of R with 3d/(2√ε) (published), or with √(d/ε) and 1/√ε (sharp).
    """
    check_choice("form", form, Form)
    check_choice("measure", measure, Measure)
    gradients.check_norm("rms", eps)

    def ratio(x: Inputs) -> Tensor:
        t_BD = x["t"]
        d = t_BD.shape[-1]
        jacobian_BDD = gradients.jacobian_norm(t_BD, "rms", eps)
        if measure == "entry":
            constant = 1.5 if form == "published" else 1.0
            return largest(jacobian_BDD) * (t_BD.square().mean(-1) + eps).sqrt() / constant
        if measure == "frobenius":
            size_B, sharp = jacobian_BDD.flatten(1).norm(dim=-1), math.sqrt(d / eps)
        else:
            size_B, sharp = torch.linalg.matrix_norm(jacobian_BDD, 2), sharp_constant("rms", eps)
        return size_B / (published_constant(d, eps) if form == "published" else sharp)

    return Bound(f"norm-{measure}-{form}", {"t": "d"}, ratio, lambda sizes: {"t": filled(0.0, sizes["d"])})


def norm_score(norm: Norm, form: Form, eps: float, gain: bool = False) -> Bound:
    """Eq. 61: |∂L/∂s_ij| ≤ 3c₁c₂d/(2√ε); sharp: c₁c₂ times `sharp_constant`.

    `gain` adds a learned gain γ [d] after the norm. The published form ignores γ; the sharp form includes max|γ|.
    """
    check_choice("form", form, Form)
    gradients.check_norm(norm, eps)

    def ratio(x: Inputs) -> Tensor:
        upstream_BD = x["g"] * x["gain"] if gain else x["g"]
        gradient_BN = gradients.score_gradient_norm(x["s"], x["v"], upstream_BD, norm, eps)
        if form == "published":
            return largest(gradient_BN) / (published_constant(x["v"].shape[-1], eps) * c1_c2(x))
        weight_B = largest(x["gain"]) if gain else 1.0
        return largest(gradient_BN) / (sharp_constant(norm, eps) * weight_B * c1_c2(x))

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        # The values cancel, so t = 0 although every score is positive; n = 1 needs a zero score.
        n, d = sizes["n"], sizes["d"]
        direction = one_apart(d, 1.0, 0.0)
        if norm == "layer" and d > 1:
            direction[1] = -1
        inputs = {"s": one_apart(n, n - 1, 1.0), "v": one_apart(n, 1.0, -1.0)[:, None] * direction, "g": direction}
        return inputs | ({"gain": filled(3.0 * d, d)} if gain else {})

    shapes = {"s": "n", "v": "nd", "g": "d"} | ({"gain": "d"} if gain else {})
    return Bound(f"eq-61-{form} {norm} ε={eps:g}{' with gain' if gain else ''}", shapes, ratio, extremal)
