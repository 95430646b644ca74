"""Section 3.1 and Appendix D by construction: formulas against autograd, and the points a proof names.

`bound_search` looks for counter-examples; this file builds them: the points of Appendix C that make ∂p/∂s exceed
any M, the values for which Eq. 50's limit fails, the misprinted terms of Eq. 53 and Eq. 55. Every number comes
from automatic differentiation of the plain definition in float64 (`rounded_query_gradient` takes a dtype) and checks
the closed forms of `attention_gradients`.

The paper's symbols are those of `attention_gradients`, and: ε the size of the scores, `epsilon` (`eps` is that of the
norms); M the threshold to exceed; x₀ = φ(q) = φ(k_j) the features of Eq. 23; c₁, c₂, c₃ of Eq. 40; h(X) the
largest row norm. Shapes: N keys, D features, one query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import Generator, Tensor
from torch.autograd.functional import jacobian as autograd_jacobian  # [*output, *input]

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.bound_search import filled
from transnormer_lib.analysis.bounds_matrix import h, upstream_gradient
from transnormer_lib.analysis.kernel_maps import KERNELS, ONE_PLUS_ELU_AS_COMPUTED, KernelMap
from transnormer_lib.checks import check_count, check_positive


def formula_errors(trials: int, n: int, d: int, eps: float, generator: Generator) -> dict[str, float]:
    """Largest error of each closed form against autograd over `trials` random cases.

    Errors are relative to the largest entry of the Jacobian or gradient. Scores of linear attention are positive
    here, because Eq. 10 divides by them.
    """
    check_count("trials", trials)
    worst: dict[str, float] = {}
    for _ in range(trials):
        s, t, g = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (n, d, d))
        v = torch.randn(n, d, generator=generator, dtype=torch.float64)
        for name, exact, automatic in [*_weight_pairs(s, v, g), *_norm_pairs(s, v, g, t, eps)]:
            error = float((exact - automatic).abs().max() / automatic.abs().max().clamp(min=1e-300))
            worst[name] = max(worst.get(name, 0.0), error)
    return worst


def _weight_pairs(s: Tensor, v: Tensor, g: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, closed form, autograd) for softmax on scores s and for linear attention on e^s."""
    automatic = autograd_jacobian(lambda x: x.softmax(-1), s)
    yield "Eq. 7, softmax", gradients.jacobian_as_printed(s[None], torch.exp, torch.exp)[0], automatic
    yield "Eq. 8", gradients.jacobian_softmax(s[None])[0], automatic
    automatic = autograd_jacobian(lambda x: x.softmax(-1) @ v @ g, s)
    yield "Eq. 47, softmax", gradients.score_gradient_softmax(s[None], v[None], g[None])[0], automatic
    s = s.exp()
    automatic = autograd_jacobian(gradients.linear_weights, s)
    yield "Eq. 7 and 10, linear", _linear_as_printed(s), automatic
    yield "Eq. 10 without the division", gradients.jacobian_linear(s[None])[0], automatic
    automatic = autograd_jacobian(lambda x: gradients.linear_weights(x) @ v @ g, s)
    yield "Eq. 47, linear", gradients.score_gradient_linear(s[None], v[None], g[None])[0], automatic


def _linear_as_printed(s: Tensor) -> Tensor:
    return gradients.jacobian_as_printed(s[None], lambda x: x, torch.ones_like)[0]


def _norm_pairs(s: Tensor, v: Tensor, g: Tensor, t: Tensor, eps: float) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, closed form, autograd) for each normalisation, on a row t and through scores s."""
    for norm in get_args(Norm):
        apply = partial(gradients.normalise, norm=norm, eps=eps)
        yield f"Eq. 52, {norm}", gradients.jacobian_norm(t[None], norm, eps)[0], autograd_jacobian(apply, t)
        exact = gradients.score_gradient_norm(s[None], v[None], g[None], norm, eps)[0]
        yield f"Eq. 58, {norm}", exact, torch.func.grad(lambda x, apply=apply: apply(x @ v) @ g)(s)


@dataclass(frozen=True)
class ZeroScore:
    """∂p_ij/∂s_ik in the column of a zero score, three ways; each [N] over j."""

    scores: Tensor
    printed: Tensor
    division_free: Tensor
    automatic: Tensor


def zero_score(scores: Sequence[float]) -> ZeroScore:
    """Eq. 10 at the first zero among non-negative `scores`, which φ = relu produces often.

    Raises ValueError without a zero or a positive sum.
    """
    s = torch.tensor(list(scores), dtype=torch.float64)
    if 0 not in scores or sum(scores) <= 0:
        raise ValueError(f"scores={list(scores)}: needs a zero score and a positive sum")
    k = list(scores).index(0)
    automatic = autograd_jacobian(gradients.linear_weights, s)
    return ZeroScore(s, *(x[:, k] for x in (_linear_as_printed(s), gradients.jacobian_linear(s[None])[0], automatic)))


@dataclass(frozen=True)
class AppendixC:
    """Appendix C's construction at one ε: q = k_j = φ⁻¹(x₀) with ‖x₀‖² = ε.

    `jacobian` is ∂p_ij/∂s_ik [N, N] by autograd; `promised` the lower bounds of Eq. 27, same shape;
    `query_gradient` the largest |∂p_ij/∂q_ia| by autograd at the same point.
    """

    epsilon: float
    scores: Tensor
    weights: Tensor
    jacobian: Tensor
    promised: Tensor
    query_gradient: float

    @property
    def smallest(self) -> float:
        """Smallest |∂p_ij/∂s_ik|. Proposition 3.1 asks that one entry exceed M; here all do."""
        return float(self.jacobian.abs().min())

    @property
    def keeps_promise(self) -> bool:
        """Whether Eq. 25 (s in (0, ε]), Eq. 26 (p = 1/n) and Eq. 27 hold, up to rounding."""
        n = len(self.scores)
        in_range = bool((self.scores > 0).all() and (self.scores <= self.epsilon * (1 + 1e-9)).all())
        uniform = bool((self.weights - 1 / n).abs().max() < 1e-9)
        return in_range and uniform and bool((self.jacobian.abs() >= self.promised * (1 - 1e-9)).all())


def _weights(q: Tensor, keys: Tensor, kernel: KernelMap) -> Tensor:
    """p_ij of linear attention for one query [D] and keys [N, D], [N]."""
    return gradients.linear_weights(gradients.scores(q[None], keys[None], kernel))[0]


def appendix_c(kernel: KernelMap, epsilon: float, n: int, d: int) -> AppendixC:
    """Build Eq. 23's point with x₀ = √(ε/d)·1 and differentiate there. Raises ValueError unless ε > 0."""
    check_positive("epsilon", epsilon)
    q = kernel.inverse(filled(math.sqrt(epsilon / d), d))
    keys = q.expand(n, d)
    s = gradients.scores(q[None], keys[None], kernel)[0]
    promised = filled(1 / (epsilon * n**2), n, n)
    promised.fill_diagonal_((1 - 1 / n) / (epsilon * n))
    return AppendixC(
        epsilon=epsilon,
        scores=s,
        weights=gradients.linear_weights(s),
        jacobian=autograd_jacobian(gradients.linear_weights, s),
        promised=promised,
        query_gradient=float(autograd_jacobian(lambda x: _weights(x, keys, kernel), q).abs().max()),
    )


@dataclass(frozen=True)
class Exceeded:
    """One M of a statement "exceeds any M": the ε chosen for it and the gradient measured there."""

    threshold: float
    epsilon: float
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the measured gradient exceeds the threshold."""
        return self.measured > self.threshold


def exceed(kernel: KernelMap, thresholds: Sequence[float], n: int, d: int) -> list[Exceeded]:
    """Proposition 3.1 for each M in `thresholds`: at ε = 1/(2n²M) the smallest |∂p_ij/∂s_ik| exceeds M."""
    if n < 2:
        raise ValueError(f"n={n}: must be at least 2; a single key has p = 1, so every derivative is 0")
    points = [(m, 1 / (2 * n**2 * m)) for m in thresholds]
    return [Exceeded(m, epsilon, appendix_c(kernel, epsilon, n, d).smallest) for m, epsilon in points]


def loss_at_appendix_c(kernel: KernelMap, epsilon: float, v_ND: Tensor, g_D: Tensor) -> float:
    """Largest |∂L/∂s_ij| by autograd at Appendix C's point, for L = g·o (the left side of Eq. 50)."""
    s = appendix_c(kernel, epsilon, *v_ND.shape).scores
    return float(autograd_jacobian(lambda x: gradients.linear_weights(x) @ v_ND @ g_D, s).abs().max())


def cancelling_scores(threshold: float) -> Exceeded:
    """φ = elu with two scores of about ±1/2: |∂L/∂s_ij| c₃/(c₁c₂) by autograd exceeds `threshold` (against Eq. 48).

    `epsilon` of the result is the sum of the two scores, 1/√(4·threshold). Raises ValueError for a threshold below 1.
    """
    if not threshold >= 1:
        raise ValueError(f"threshold={threshold}: must be at least 1")
    total = 1 / math.sqrt(4 * threshold)
    # elu is the identity above zero, and elu(log 1/2) = −1/2.
    keys = torch.tensor([[0.5 + total], [math.log(0.5)]], dtype=torch.float64)
    s = gradients.scores(filled(1.0, 1, 1), keys[None], KERNELS["elu"])[0]
    v = torch.tensor([1.0, -1.0], dtype=torch.float64)  # c₁ = c₂ = 1
    gradient = autograd_jacobian(lambda x: gradients.linear_weights(x) @ v, s)
    return Exceeded(threshold, float(s.sum()), float(gradient.abs().max() * s.abs().min()))


@dataclass(frozen=True)
class QueryGradients:
    """Largest |∂L/∂q_ia| by autograd at one point, for 1+elu with a denominator and for NormAttention."""

    key_size: float
    linear: float
    normalised: float


def cancelling_query_gradients(key_size: float, kernel: KernelMap, eps: float) -> QueryGradients:
    """|∂L/∂q| where two keys of size φ(k) = key_size carry opposite values, so that T_i = 0 (c₁ = c₂ = 1).

    NormAttention passes key_size/√ε on to q, which has no bound in the keys. With a denominator both weights are
    1/2 and at most 1/2 reaches q.
    """
    tiny = 1e-12
    features = torch.tensor([[key_size, tiny], [tiny, key_size]], dtype=torch.float64)
    keys, q = kernel.inverse(features), kernel.inverse(filled(1.0, 2))
    v, g = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), filled(1.0, 1)

    def normalised(x: Tensor) -> Tensor:
        return gradients.normalise(gradients.scores(x[None], keys[None], kernel)[0] @ v, "rms", eps) @ g

    forms = (lambda x: _weights(x, keys, kernel) @ v @ g, normalised)
    return QueryGradients(key_size, *(float(autograd_jacobian(form, q).abs().max()) for form in forms))


def rounded_query_gradient(dtype: torch.dtype) -> float:
    """Largest |∂p_ij/∂q_ia| by autograd where 1 + elu(x) rounds to zero but its derivative does not.

    The first feature of q is so negative that 1 + elu is 0 in `dtype` while e^x is not, and the first key lives in
    that feature. The exact φ bounds the result by 1/4.
    """
    resolution = math.log(torch.finfo(dtype).eps)
    q = torch.tensor([resolution - 2, resolution + 1], dtype=dtype)
    keys = torch.full((2, 2), resolution + 1, dtype=dtype)
    keys[0, 0] = 0
    return float(autograd_jacobian(lambda x: _weights(x, keys, ONE_PLUS_ELU_AS_COMPUTED), q).abs().max())


@dataclass(frozen=True)
class SecondLine:
    """Eq. 53 at one entry: |∂o_ij/∂t_ik| by autograd, the printed second line, and the final bound."""

    derivative: float
    second_line: float
    final: float


def eq_53_second_line(t: Sequence[float], eps: float) -> SecondLine:
    """The second line of Eq. 53 at j = 1, k = 2, where the sign before t_ij t_ik flips and |·| disappears."""
    row = torch.tensor(list(t), dtype=torch.float64)
    if len(row) < 2:
        raise ValueError(f"t={list(t)}: an off-diagonal entry needs at least two features")
    root = float((row.square().mean() + eps).sqrt())
    jacobian = autograd_jacobian(lambda x: gradients.normalise(x, "rms", eps), row)
    second_line = float(row[0] * row[1] / (row.square().sum() + len(row) * eps)) / root
    return SecondLine(float(jacobian[0, 1].abs()), second_line, 1.5 / root)


def eq_55_error(terms: int, d: int, eps: float, generator: Generator) -> float:
    """Relative error against autograd of Eq. 55 summed over the first ``terms`` of d numbers (0: exact).

    It prints n terms; all d are needed.
    """
    if not 0 < terms <= d:
        raise ValueError(f"terms={terms}, d={d}: must satisfy 0 < terms <= d")
    t, g = torch.randn(2, d, generator=generator, dtype=torch.float64)
    automatic = autograd_jacobian(lambda x: gradients.normalise(x, "rms", eps) @ g, t)
    printed = g[:terms] @ gradients.jacobian_norm(t[None], "rms", eps)[0, :terms]
    return float((printed - automatic).norm() / automatic.norm())


def upstream_for_weights(weight: float) -> float:
    """h(∇_{X₁}L) of D.5's model by autograd if every weight of W₁ and W₂ is `weight`: grows as its square.

    The inputs are so large that the wrong class wins by a wide margin, so the loss gradient is √2 (Eq. 63).
    """
    check_positive("weight", weight)
    w1, w2 = filled(weight, 4, 8), filled(weight, 8, 4)
    w3 = torch.tensor([[-1.0, 1.0]], dtype=torch.float64).expand(4, 2)
    x1 = filled(800 / weight**2, 1, 4).requires_grad_()
    logits = torch.relu(torch.relu(x1 @ w1) @ w2) @ w3
    label = torch.zeros(1, dtype=torch.long)
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, label, reduction="sum"), x1)
    if not torch.allclose(gradient, upstream_gradient(x1.detach(), w1, w2, w3)):
        raise RuntimeError("the backward pass of Appendix D.3 disagrees with autograd")
    return float(h(gradient))
