"""The bounds on softmax and linear attention: as published (Eq. 8-11, 46, 48, 59), repaired, and sharp.

The paper's symbols: scores s [n] for softmax; q [d] and k [n, d] behind a kernel φ for linear attention; values
v [n, d]; the upstream gradient g = ∇_{O_i}L [d]; p = p_ij the weights; c₁, c₂, c₃ the extremes of Eq. 40: the largest
|g| and |v_j|, and the smallest |s_ij|. One query is enough: a matrix whose rows all equal it attains the extremes.

Derivation of the sharp constants, with Σ = Σ_k s_ik and non-negative scores:

- softmax: ∂L/∂s_ij = p(1−p) g·(v_j − v̄), v̄ the mean of the others, so at most c₁c₂/2 for every n;
- linear: ∂L/∂s_ij = (1−p)/Σ · g·(v_j − v̄), so at most 2(n−1)/n² · c₁c₂/c₃;
- φ = 1+elu: ∂p_ij/∂q_ia = φ′/φ(q_ia) · (r_ja − p_j R_a), r_ja being feature a's share in key j's weight and
  R_a its sum over j. φ′ ≤ φ and |r − pR| ≤ 1/4, so at most 1/4 for all q, k, n and d. Likewise for k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.bound_search import Bound, Inputs, Sizes, by_form, filled, one_apart
from transnormer_lib.analysis.kernel_maps import KernelMap
from transnormer_lib.checks import check_choice, check_positive

Form = Literal["published", "repaired", "sharp"]
Of = Literal["weights", "loss"]

# φ(−40) = 4e-18 for 1+elu: numerically the closed end of φ's open image, where the suprema lie.
_CLOSED = -40.0


def largest(tensor: Tensor) -> Tensor:
    """Largest absolute entry of each case, [B]."""
    return tensor.abs().flatten(1).amax(1)


def c1_c2(inputs: Inputs) -> Tensor:
    """c₁c₂ of Eq. 40 for one query, [B]: the norm of g times the largest row norm of v."""
    return inputs["g"].norm(dim=-1) * inputs["v"].norm(dim=-1).amax(-1)


def _opposed_values(sizes: Sizes) -> dict[str, Tensor]:
    """v_1 = e, every other v = −e, g = e: the values that pull hardest on the first weight."""
    axis = one_apart(sizes["d"], 1.0, 0.0)
    return {"v": one_apart(sizes["n"], 1.0, -1.0)[:, None] * axis, "g": axis}


def _half_softmax(sizes: Sizes) -> dict[str, Tensor]:
    """Scores that give the first of n ≥ 2 keys the weight 1/2."""
    return {"s": one_apart(sizes["n"], math.log(max(sizes["n"] - 1, 1)), 0.0)}


def softmax_intervals() -> Bound:
    """Eq. 8: ∂p_ij/∂s_ik in [0, 1/4] for j = k and in [−1/4, 0] otherwise, as distance from the mid-point."""

    def ratio(x: Inputs) -> Tensor:
        jacobian = gradients.jacobian_softmax(x["s"])
        sign = 2 * torch.eye(jacobian.shape[-1], dtype=jacobian.dtype) - 1
        return largest(jacobian - sign / 8) * 8

    return Bound("eq-8", {"s": "n"}, ratio, _half_softmax)


def softmax_jacobian() -> Bound:
    """Eq. 9: |∂p_ij/∂s_ik| ≤ 1/4."""
    return Bound("eq-9", {"s": "n"}, lambda x: 4 * largest(gradients.jacobian_softmax(x["s"])), _half_softmax)


def softmax_row_norm(form: Form) -> Bound:
    """‖U_j‖₂ ≤ 1/4, the step inside Eq. 48; repaired: √2/4, since row j also holds every −p_j p_k."""
    constant = by_form(form, published=0.25, repaired=math.sqrt(2) / 4)

    def ratio(x: Inputs) -> Tensor:
        return gradients.jacobian_softmax(x["s"]).norm(dim=-1).amax(-1) / constant

    def two_keys(sizes: Sizes) -> dict[str, Tensor]:
        s = filled(-800.0, sizes["n"])
        s[:2] = 0
        return {"s": s}

    return Bound(f"eq-48-step-{form}", {"s": "n"}, ratio, two_keys)


def softmax_score(form: Form) -> Bound:
    """Eq. 59: |∂L/∂s_ij| ≤ √n c₁c₂/4; repaired step √(2n) c₁c₂/4; sharp c₁c₂/2."""
    check_choice("form", form, Form)

    def ratio(x: Inputs) -> Tensor:
        n = x["s"].shape[-1]
        constant = by_form(form, published=math.sqrt(n) / 4, repaired=math.sqrt(2 * n) / 4, sharp=0.5)
        return largest(gradients.score_gradient_softmax(x["s"], x["v"], x["g"])) / (constant * c1_c2(x))

    shapes = {"s": "n", "v": "nd", "g": "d"}
    return Bound(f"eq-59-{form}", shapes, ratio, lambda sizes: _half_softmax(sizes) | _opposed_values(sizes))


def softmax_query() -> Bound:
    """|∂p_ij/∂q_ia| ≤ max_l |k_la| / (2√d) for softmax attention: not bounded unless the keys are."""

    def ratio(x: Inputs) -> Tensor:
        by_query_BND = gradients.softmax_weights_by_query(x["q"], x["k"])
        return (by_query_BND.abs().amax(1) * 2 * math.sqrt(x["q"].shape[-1]) / x["k"].abs().amax(1)).amax(-1)

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        # The key +e has half of the weight; the keys at −e share the other half.
        q = one_apart(sizes["d"], math.log(max(sizes["n"] - 1, 1)) * math.sqrt(sizes["d"]) / 2, 0.0)
        return {"q": q, "k": _opposed_values(sizes)["v"] + 1e-300}

    return Bound("softmax-query", {"q": "d", "k": "nd"}, ratio, extremal)


def _scores(x: Inputs, kernel: KernelMap) -> Tensor:
    return gradients.scores(x["q"], x["k"], kernel)


def _from_features(kernel: KernelMap, sizes: Sizes, first: float) -> dict[str, Tensor]:
    """q with φ(q) = 1 and keys with φ(k) = 1, except that the features of the first key are `first`."""
    ones = filled(1.0, sizes["d"])
    return {"q": kernel.inverse(ones), "k": kernel.inverse(one_apart(sizes["n"], first, 1.0)[:, None] * ones)}


def linear_jacobian(kernel: KernelMap) -> Bound:
    """Eq. 11: |∂p_ij/∂s_ik| ≤ 1/(4|s_ik|), compared entry by entry; already sharp where φ ≥ 0."""

    def ratio(x: Inputs) -> Tensor:
        s_BN = _scores(x, kernel)
        return 4 * largest(gradients.jacobian_linear(s_BN) * s_BN[:, None])

    def half_of_the_weight(sizes: Sizes) -> dict[str, Tensor]:
        return _from_features(kernel, sizes, first=max(sizes["n"] - 1, 1))

    return Bound(f"eq-11 φ={kernel.name}", {"q": "d", "k": "nd"}, ratio, half_of_the_weight)


def linear_jacobian_by_sum() -> Bound:
    """Eq. 11 repaired: |∂p_ij/∂s_ik| ≤ (1 + max_j |p_ij|) / |Σ_k s_ik| for scores of any sign, or zero."""

    def ratio(x: Inputs) -> Tensor:
        p_BN, total_B = gradients.linear_weights(x["s"]), x["s"].sum(-1)
        return largest(gradients.jacobian_linear(x["s"])) * total_B.abs() / (1 + p_BN.abs().amax(-1))

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        # The first weight is −1 and, for n ≥ 3, no other is larger, so 1{j=k} and −p_ij add up.
        return {"s": one_apart(sizes["n"], -1.0, 2 / max(sizes["n"] - 1, 1))}

    return Bound("eq-11-any-sign", {"s": "n"}, ratio, extremal)


def linear_jacobian_c3(kernel: KernelMap, form: Literal["published", "sharp"]) -> Bound:
    """Eq. 46: |∂p_ik/∂s_ij| ≤ 1/(4c₃), c₃ the smallest |s|; sharp (φ ≥ 0, n ≥ 2): (n−1)/(n² c₃)."""
    check_choice("form", form, ("published", "sharp"))

    def ratio(x: Inputs) -> Tensor:
        s_BN = _scores(x, kernel)
        n = s_BN.shape[-1]
        constant = by_form(form, published=0.25, sharp=max(n - 1, 1) / n**2)
        return largest(gradients.jacobian_linear(s_BN)) * s_BN.abs().amin(-1) / constant

    name = f"eq-46-{form} φ={kernel.name}"
    return Bound(name, {"q": "d", "k": "nd"}, ratio, lambda sizes: _from_features(kernel, sizes, first=1.0))


def linear_jacobian_away_from_zero(kernel: KernelMap, floor: float) -> Bound:
    """|∂p_ij/∂s_ik| ≤ 1/(4 d floor²) for all q, k where φ ≥ floor > 0: Proposition 3.1 minus footnote 6."""
    check_positive("floor", floor)

    def ratio(x: Inputs) -> Tensor:
        return 4 * x["q"].shape[-1] * floor**2 * largest(gradients.jacobian_linear(_scores(x, kernel)))

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        n, d = sizes["n"], sizes["d"]
        return {"q": kernel.inverse(filled(floor, d)), "k": kernel.inverse(filled(floor, n, d))}

    return Bound(f"away-from-zero φ={kernel.name}", {"q": "d", "k": "nd"}, ratio, extremal)


def linear_jacobian_clamped(floor: float) -> Bound:
    """|∂p_ij/∂s_ik| ≤ 1/floor for non-negative scores whose sum is clamped from below at `floor`.

    The free variable is the logarithm of the scores in units of the floor.
    """
    return Bound(
        f"clamped at {floor:g}",
        {"log_s": "n"},
        lambda x: floor * largest(gradients.jacobian_clamped(floor * x["log_s"].exp(), floor)),
        lambda sizes: {"log_s": filled(-1 - math.log(sizes["n"]), sizes["n"])},
    )


def linear_score(kernel: KernelMap, form: Literal["published", "sharp"]) -> Bound:
    """Eq. 48 with t = c₃: |∂L/∂s_ij| ≤ √n c₁c₂/(4c₃); sharp (φ ≥ 0): 2(n−1)/n² · c₁c₂/c₃."""
    check_choice("form", form, ("published", "sharp"))

    def ratio(x: Inputs) -> Tensor:
        s_BN = _scores(x, kernel)
        n = s_BN.shape[-1]
        constant = by_form(form, published=math.sqrt(n) / 4, sharp=2 * max(n - 1, 1) / n**2)
        gradient_BN = gradients.score_gradient_linear(s_BN, x["v"], x["g"])
        return largest(gradient_BN) * s_BN.abs().amin(-1) / (constant * c1_c2(x))

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        return _from_features(kernel, sizes, first=1.0) | _opposed_values(sizes)

    shapes = {"q": "d", "k": "nd", "v": "nd", "g": "d"}
    return Bound(f"eq-48-linear-{form} φ={kernel.name}", shapes, ratio, extremal)


def linear_query(kernel: KernelMap, of: Of) -> Bound:
    """|∂p_ij/∂q_ia| ≤ 1/4 or |∂L/∂q_ia| ≤ c₁c₂/2; sharp for 1+elu with n, d ≥ 2, broken by relu, elu."""

    def two_features(q: Tensor, k: Tensor) -> None:
        """Two keys live in two different features, which are equally strong in q."""
        q[:2] = 0
        k[0, 0] = k[1, 1] = 0

    return _reaching("query", gradients.weights_by_query, kernel, of, two_features)


def linear_key(kernel: KernelMap, of: Of) -> Bound:
    """|∂p_ij/∂k_la| ≤ 1/4 or, from one query, |∂L/∂k_la| ≤ c₁c₂/2; sharp for φ = 1+elu with n ≥ 2."""

    def one_feature(q: Tensor, k: Tensor) -> None:
        """One live feature, in which the first key has half of the weight."""
        q[0] = 0
        k[:, 0] = -math.log(max(len(k) - 1, 1))
        k[0, 0] = 0

    return _reaching("key", gradients.weights_by_key, kernel, of, one_feature)


def _reaching(
    side: str,
    weights_by_side: Callable[[Tensor, Tensor, KernelMap], Tensor],
    kernel: KernelMap,
    of: Of,
    open_features: Callable[[Tensor, Tensor], None],
) -> Bound:
    """The bound on what reaches q or k; `open_features` makes q [d] and k [n, d] extremal for 1+elu."""
    check_choice("of", of, Of)

    def ratio(x: Inputs) -> Tensor:
        by_side = weights_by_side(x["q"], x["k"], kernel)
        if of == "weights":
            return 4 * largest(by_side)
        along_BN = torch.einsum("bnd,bd->bn", x["v"], x["g"])
        return 2 * largest(torch.einsum("bn,bn...->b...", along_BN, by_side)) / c1_c2(x)

    def extremal(sizes: Sizes) -> dict[str, Tensor]:
        q, k = filled(_CLOSED, sizes["d"]), filled(_CLOSED, sizes["n"], sizes["d"])
        open_features(q, k)
        return {"q": q, "k": k} | (_opposed_values(sizes) if of == "loss" else {})

    shapes = {"q": "d", "k": "nd"} | ({"v": "nd", "g": "d"} if of == "loss" else {})
    return Bound(f"{side}-{of} φ={kernel.name}", shapes, ratio, extremal if kernel.name == "1+elu" else None)
