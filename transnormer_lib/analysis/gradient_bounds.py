"""Section 3.1 and Appendix D by construction: formulas against autograd, and the points a proof names.

Where `bound_search` looks for counter-examples, this file builds them: the points of Appendix C that make
∂p/∂s exceed any M, the values for which Eq. 50's limit fails, the terms that Eq. 53 and Eq. 55 misprint.
Every number here comes from automatic differentiation of the plain definition in float64 (float32 where the
name says so); the closed forms of `attention_gradients` are what it is compared with.

Shapes: N keys, D features; one query unless a name says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import Generator, Tensor

from transnormer_lib.analysis import attention_gradients as gradients
from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.bounds_matrix import h, upstream_gradient
from transnormer_lib.analysis.kernel_maps import KERNELS, ONE_PLUS_ELU_AS_COMPUTED, KernelMap

Map = Callable[[Tensor], Tensor]


def autograd_jacobian(function: Map, x: Tensor) -> Tensor:
    """∂function(x)/∂x by reverse mode, shape [*output, *input]."""
    return torch.autograd.functional.jacobian(function, x)


def _softmax(s: Tensor) -> Tensor:
    return s.softmax(-1)


# --- closed forms against autograd -------------------------------------------------------------------------


def formula_errors(trials: int, n: int, d: int, eps: float, generator: Generator) -> dict[str, float]:
    """Largest error of each closed form against autograd over `trials` random cases.

    Relative to the largest entry of the Jacobian or gradient it belongs to. Scores of linear attention are
    positive here, as Eq. 10 divides by them; `eps` is that of the norms.
    """
    if trials < 1:
        raise ValueError(f"trials={trials}: must be at least 1")
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
    automatic = autograd_jacobian(_softmax, s)
    yield "Eq. 7, softmax", gradients.jacobian_as_printed(s[None], torch.exp, torch.exp)[0], automatic
    yield "Eq. 8", gradients.jacobian_softmax(s[None])[0], automatic
    automatic = autograd_jacobian(lambda x: _softmax(x) @ v @ g, s)
    yield "Eq. 47, softmax", gradients.score_gradient_softmax(s[None], v[None], g[None])[0], automatic
    s = s.exp()
    automatic = autograd_jacobian(gradients.linear_weights, s)
    printed = gradients.jacobian_as_printed(s[None], lambda x: x, torch.ones_like)[0]
    yield "Eq. 7 and 10, linear", printed, automatic
    yield "Eq. 10 without the division", gradients.jacobian_linear(s[None])[0], automatic
    automatic = autograd_jacobian(lambda x: gradients.linear_weights(x) @ v @ g, s)
    yield "Eq. 47, linear", gradients.score_gradient_linear(s[None], v[None], g[None])[0], automatic


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
    """Eq. 10 at the first zero among non-negative `scores` (φ = relu makes such scores often)."""
    s = torch.tensor(list(scores), dtype=torch.float64)
    zeros = (s == 0).nonzero().flatten()
    if len(zeros) == 0 or float(s.sum()) <= 0:
        raise ValueError(f"scores={list(scores)}: needs a zero score and a positive sum")
    k = int(zeros[0])
    printed = gradients.jacobian_as_printed(s[None], lambda x: x, torch.ones_like)[0, :, k]
    exact = gradients.jacobian_linear(s[None])[0, :, k]
    return ZeroScore(s, printed, exact, autograd_jacobian(gradients.linear_weights, s)[:, k])


# --- Proposition 3.1 and Appendix C ------------------------------------------------------------------------


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
        """Smallest |∂p_ij/∂s_ik|: Proposition 3.1 asks that even one entry exceed M; here all do."""
        return float(self.jacobian.abs().min())

    @property
    def keeps_promise(self) -> bool:
        """Whether Eq. 25 (s in (0, ε]), Eq. 26 (p = 1/n) and Eq. 27 hold, up to rounding."""
        n = len(self.scores)
        in_range = bool((self.scores > 0).all() and (self.scores <= self.epsilon * (1 + 1e-9)).all())
        uniform = bool((self.weights - 1 / n).abs().max() < 1e-9)
        return in_range and uniform and bool((self.jacobian.abs() >= self.promised * (1 - 1e-9)).all())


def appendix_c(kernel: KernelMap, epsilon: float, n: int, d: int) -> AppendixC:
    """Build Eq. 23's point with x₀ = √(ε/d)·1 and differentiate there. Raises ValueError unless ε > 0."""
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon}: must be positive")
    q = kernel.inverse(torch.full((d,), math.sqrt(epsilon / d), dtype=torch.float64))
    keys = q.expand(n, d)
    s = gradients.scores(q[None], keys[None], kernel)[0]

    def weights_of_query(x: Tensor) -> Tensor:
        return gradients.linear_weights(gradients.scores(x[None], keys[None], kernel))[0]

    promised = torch.full((n, n), 1 / (epsilon * n**2), dtype=torch.float64)
    promised.fill_diagonal_((1 - 1 / n) / (epsilon * n))
    return AppendixC(
        epsilon=epsilon,
        scores=s,
        weights=gradients.linear_weights(s),
        jacobian=autograd_jacobian(gradients.linear_weights, s),
        promised=promised,
        query_gradient=float(autograd_jacobian(weights_of_query, q).abs().max()),
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
        raise ValueError(f"n={n}: one key has p = 1 whatever its score, so every derivative is 0; needs n ≥ 2")
    points = [(m, 1 / (2 * n**2 * m)) for m in thresholds]
    return [Exceeded(m, epsilon, appendix_c(kernel, epsilon, n, d).smallest) for m, epsilon in points]


def loss_at_appendix_c(kernel: KernelMap, epsilon: float, v_ND: Tensor, g_D: Tensor) -> float:
    """Largest |∂L/∂s_ij| by autograd at Appendix C's point, for L = g·o (the left side of Eq. 50)."""
    n, d = v_ND.shape
    s = appendix_c(kernel, epsilon, n, d).scores
    return float(autograd_jacobian(lambda x: gradients.linear_weights(x) @ v_ND @ g_D, s).abs().max())


def cancelling_scores(threshold: float) -> Exceeded:
    """φ = elu with two scores of about ±1/2: |∂L/∂s_ij| c₃/(c₁c₂) by autograd exceeds `threshold`.

    `epsilon` of the result is the sum of the two scores, 1/√(4·threshold). Raises ValueError unless the
    threshold is at least 1.
    """
    if not threshold >= 1:
        raise ValueError(f"threshold={threshold}: must be at least 1")
    total = 1 / math.sqrt(4 * threshold)
    # elu is the identity above zero, and elu(log 1/2) = −1/2.
    keys = torch.tensor([[0.5 + total], [math.log(0.5)]], dtype=torch.float64)
    phi = KERNELS["elu"]
    s = gradients.scores(torch.ones(1, 1, dtype=torch.float64), keys[None], phi)[0]
    v = torch.tensor([1.0, -1.0], dtype=torch.float64)  # c₁ = c₂ = 1
    gradient = autograd_jacobian(lambda x: gradients.linear_weights(x) @ v, s)
    return Exceeded(threshold, float(s.sum()), float(gradient.abs().max() * s.abs().min()))


def softmax_query_gradient(key_size: float, d: int) -> float:
    """Largest |∂p_ij/∂q_ia| by autograd for softmax with q = 0 and keys ±key_size·e₁: key_size/(2√d)."""
    keys = torch.zeros(2, d, dtype=torch.float64)
    keys[0, 0], keys[1, 0] = key_size, -key_size
    q = torch.zeros(d, dtype=torch.float64)
    return float(autograd_jacobian(lambda x: (keys @ x / math.sqrt(d)).softmax(-1), q).abs().max())


@dataclass(frozen=True)
class QueryGradients:
    """Largest |∂L/∂q_ia| by autograd at one point, for 1+elu with a denominator and for NormAttention."""

    key_size: float
    linear: float
    normalised: float


def cancelling_query_gradients(key_size: float, kernel: KernelMap, eps: float) -> QueryGradients:
    """|∂L/∂q| where two keys of size φ(k) = key_size carry opposite values, so that T_i = 0 (c₁ = c₂ = 1).

    NormAttention passes key_size/√ε on to q, without bound in the keys; with a denominator the weights are
    1/2 each and at most 1/2 arrives.
    """
    tiny = 1e-12
    features = torch.tensor([[key_size, tiny], [tiny, key_size]], dtype=torch.float64)
    keys, q = kernel.inverse(features), kernel.inverse(torch.ones(2, dtype=torch.float64))
    v, g = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def linear(x: Tensor) -> Tensor:
        return gradients.linear_weights(gradients.scores(x[None], keys[None], kernel))[0] @ v @ g

    def normalised(x: Tensor) -> Tensor:
        return gradients.normalise(gradients.scores(x[None], keys[None], kernel)[0] @ v, "rms", eps) @ g

    found = [float(autograd_jacobian(f, q).abs().max()) for f in (linear, normalised)]
    return QueryGradients(key_size, *found)


def rounded_query_gradient(dtype: torch.dtype) -> float:
    """Largest |∂p_ij/∂q_ia| by autograd where 1 + elu(x) rounds to zero but its derivative does not.

    The first feature of q is so negative that 1 + elu is 0 in `dtype` while e^x is not; the first key lives
    in that feature. With the exact φ the result could not exceed 1/4.
    """
    resolution = math.log(torch.finfo(dtype).eps)
    q = torch.tensor([resolution - 2, resolution + 1], dtype=dtype)
    keys = torch.full((2, 2), resolution + 1, dtype=dtype)
    keys[0, 0] = 0

    def weights(x: Tensor) -> Tensor:
        s = gradients.scores(x[None], keys[None], ONE_PLUS_ELU_AS_COMPUTED)
        return gradients.linear_weights(s)[0]

    return float(autograd_jacobian(weights, q).abs().max())


# --- Appendix D, the steps that are misprinted -------------------------------------------------------------


@dataclass(frozen=True)
class SecondLine:
    """Eq. 53 at one entry: |∂o_ij/∂t_ik| by autograd, the printed second line, and the final bound."""

    t: Tensor
    derivative: float
    second_line: float
    final: float


def eq_53_second_line(t: Sequence[float], eps: float) -> SecondLine:
    """The second line of Eq. 53 at j = 1, k = 2, where the sign before t_ij t_ik flips and |·| is gone."""
    row = torch.tensor(list(t), dtype=torch.float64)
    if len(row) < 2:
        raise ValueError(f"t={list(t)}: an off-diagonal entry needs at least two features")
    root = float((row.square().mean() + eps).sqrt())
    jacobian = autograd_jacobian(lambda x: gradients.normalise(x, "rms", eps), row)
    second_line = float(row[0] * row[1] / (row.square().sum() + len(row) * eps)) / root
    return SecondLine(row, float(jacobian[0, 1].abs()), second_line, 1.5 / root)


def eq_55_error(n: int, d: int, eps: float, generator: Generator) -> float:
    """Relative error against autograd of Eq. 55 with its printed upper limit n, for n < d (0: exact)."""
    if not 0 < n < d:
        raise ValueError(f"n={n}, d={d}: the printed sum is defined and truncated only for 0 < n < d")
    t, g = torch.randn(2, d, generator=generator, dtype=torch.float64)
    automatic = autograd_jacobian(lambda x: gradients.normalise(x, "rms", eps) @ g, t)
    printed = g[:n] @ gradients.jacobian_norm(t[None], "rms", eps)[0, :n]
    return float((printed - automatic).norm() / automatic.norm())


def upstream_for_weights(weight: float, d: int = 4, hidden: int = 8) -> float:
    """h(∇_{X₁}L) of D.5's model by autograd when every weight of W₁ and W₂ is `weight`: grows as its square.

    The inputs are large enough for the wrong class to win by a wide margin, so the loss gradient is √2.
    """
    if not weight > 0:
        raise ValueError(f"weight={weight}: must be positive")
    w1 = torch.full((d, hidden), weight, dtype=torch.float64)
    w2 = torch.full((hidden, d), weight, dtype=torch.float64)
    w3 = torch.tensor([[-1.0, 1.0]], dtype=torch.float64).expand(d, 2)
    x1 = torch.full((1, d), 800 / weight**2, dtype=torch.float64, requires_grad=True)
    logits = torch.relu(torch.relu(x1 @ w1) @ w2) @ w3
    label = torch.zeros(1, dtype=torch.long)
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, label, reduction="sum"), x1)
    if not torch.allclose(gradient, upstream_gradient(x1.detach(), w1, w2, w3)):
        raise RuntimeError("the backward pass of Appendix D.3 disagrees with autograd")
    return float(h(gradient))
