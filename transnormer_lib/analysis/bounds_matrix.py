"""The matrix bounds of Appendix D: Propositions D.4 and D.6, and the chain of D.5 (Eq. 63-66).

The paper's symbols: h(X) is the largest row norm of X (Definition D.3), r the rows of Y, d₁ the hidden units and
m the classes; a₀ bounds ‖∇_O L‖ per row and a₃ bounds h(∇_{X₁}L). D.5's model is X₂ = f(X₁W₁), X₃ = f(X₂W₂),
O = X₃W₃ with f = ReLU and cross-entropy summed over rows. Every row has label 0, which loses no generality.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.analysis.bound_search import Bound, Inputs, Sizes, by_form, filled


def h(x: Tensor) -> Tensor:
    """Largest row norm over the last two axes (Definition D.3), [...]."""
    return x.norm(dim=-1).amax(-1)


def product_bound() -> Bound:
    """Proposition D.4: h(XYᵀ) ≤ √r h(X) h(Y), X [n, d], Y [r, d]; attained where all rows are parallel."""

    def ratio(x: Inputs) -> Tensor:
        r = x["y"].shape[-2]
        return h(x["x"] @ x["y"].mT) / (math.sqrt(r) * h(x["x"]) * h(x["y"]))

    def parallel_rows(sizes: Sizes) -> dict[str, Tensor]:
        return {"x": filled(1.0, sizes["n"], sizes["d"]), "y": filled(1.0, sizes["r"], sizes["d"])}

    return Bound("d-4", {"x": "nd", "y": "rd"}, ratio, parallel_rows)


def spectral_bound() -> Bound:
    """Proposition D.6: ‖X‖₂ ≤ √n h(X); attained where all rows are parallel and equally long."""

    def ratio(x: Inputs) -> Tensor:
        return torch.linalg.matrix_norm(x["x"], 2) / (math.sqrt(x["x"].shape[-2]) * h(x["x"]))

    return Bound("d-6", {"x": "nd"}, ratio, lambda sizes: {"x": filled(1.0, sizes["n"], sizes["d"])})


def cross_entropy_gradient(logits: Tensor) -> Tensor:
    """∇_O L = P − Y for label 0, same shape as `logits`."""
    label = torch.zeros_like(logits)
    label[..., 0] = 1
    return logits.softmax(-1) - label


def cross_entropy_bound(form: Literal["published", "sharp"]) -> Bound:
    """Eq. 63: ‖p − y‖₂ ≤ a₀. The printed maximum 2 is that of the squared norm; the norm itself has √2."""
    a0 = by_form(form, published=2.0, sharp=math.sqrt(2))

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        logits = filled(0.0, sizes["m"])
        logits[-1] = 800
        return {"o": logits}

    return Bound(f"eq-63-{form}", {"o": "m"}, lambda x: cross_entropy_gradient(x["o"]).norm(dim=-1) / a0, extremal)


def upstream_gradient(x1: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    """∇_{X₁}L of D.5's model (Eq. 64-66), [..., n, d], for weights [..., d, d₁], [..., d₁, d], [..., d, m]."""
    pre2 = x1 @ w1
    pre3 = torch.relu(pre2) @ w2
    gradient = cross_entropy_gradient(torch.relu(pre3) @ w3) @ w3.mT
    gradient = ((pre3 > 0) * gradient) @ w2.mT
    return ((pre2 > 0) * gradient) @ w1.mT


def upstream_bound(form: Literal["published", "repaired"]) -> Bound:
    """Eq. 66: h(∇_{X₁}L) ≤ a₃ = √d·√d₁·√d · a₀ h(W₃) h(W₂) h(W), [B].

    Published: W = W₂ again, as printed, and a₀ = 2. Repaired: W = W₁ and a₀ = √2, which is sharp.
    """
    last, a0 = by_form(form, published=("w2", 2.0), repaired=("w1", math.sqrt(2)))

    def ratio(x: Inputs) -> Tensor:
        d, d1 = x["w1"].shape[-2:]
        a3 = d * math.sqrt(d1) * a0 * h(x["w3"]) * h(x["w2"]) * h(x[last])
        return h(upstream_gradient(x["x1"], x["w1"], x["w2"], x["w3"])) / a3

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        # Every unit is active, all rows point one way, and the wrong class wins by a wide margin.
        n, d, d1, m = (sizes[letter] for letter in "ndhm")
        w3 = filled(0.0, d, m)
        w3[:, 0], w3[:, -1] = -1, 1
        return {"x1": filled(800.0, n, d), "w1": filled(1.0, d, d1), "w2": filled(1.0, d1, d), "w3": w3}

    return Bound(f"eq-66-{form}", {"x1": "nd", "w1": "dh", "w2": "hd", "w3": "dm"}, ratio, extremal)
