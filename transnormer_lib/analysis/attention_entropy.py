"""Entropy of rows of attention weights: how it grows with the number of keys, and what a factor log n does to it.

Section 3.3 of the GAU-based model's paper, after Su (2021): softmax_plus multiplies the scores by log n / log 512, so
that the entropy of a row depends less on n. Entropies are in nats. Shapes: B batch, n keys.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from transnormer_lib.analysis.bound_search import Bound, Inputs

REFERENCE = 512  # the length at which softmax_plus is softmax


def factor(n: int, reference: int = REFERENCE) -> float:
    """log n / log reference: what softmax_plus multiplies the scores by."""
    return math.log(n) / math.log(reference)


def entropy(p: Tensor) -> Tensor:
    """−Σ p log p over the last dimension [..., n] of weights that sum to one there; zero weights add nothing."""
    return torch.special.entr(p).sum(-1)


def row_entropy(scores: Tensor, times: float = 1.0) -> Tensor:
    """The entropy of softmax(times · scores) over the last dimension; exact where weights underflow."""
    log_p = (times * scores).log_softmax(-1)
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)


def at_most_log_n() -> Bound:
    """h ≤ log n."""

    def ratio(inputs: Inputs) -> Tensor:
        a = inputs["a"]
        return row_entropy(a) / math.log(a.shape[-1])

    return Bound("entropy over log n", {"a": "n"}, ratio)


def grows_without_the_factor() -> Bound:
    """softmax: h ≥ log n − (max a − min a), so bounded scores have an entropy that grows as log n."""

    def ratio(inputs: Inputs) -> Tensor:
        a = inputs["a"]
        spread = a.amax(-1) - a.amin(-1)
        return (math.log(a.shape[-1]) - row_entropy(a)) / spread.clamp(min=1e-6)

    return Bound("what entropy lacks of log n, over the scores' range", {"a": "n"}, ratio)


def gap_bound(n: float, c: float) -> float:
    """The most that a row's entropy is under softmax_plus if one key leads all others by c log 512, c ≥ 1.

    (n − 1) n^−c (1 + c log n). For c > 1 it tends to zero, but it rises first: until 1 + c log n is about c / (c − 1).
    """
    return (1 - 1 / n) * n ** (1 - c) * (1 + c * math.log(n))


def bounded_with_the_factor(c: float) -> Bound:
    """softmax_plus: where one score leads the others by at least c log 512, h ≤ (n − 1) n^−c (1 + c log n).

    The inputs are how much further behind than that each of the others is. Holds for n ≥ 3; see :func:`gap_bound`.
    """

    def ratio(inputs: Inputs) -> Tensor:
        x = inputs["x"].abs()
        n = x.shape[-1]
        behind = -(c * math.log(REFERENCE) + x)
        scores = torch.cat([torch.zeros_like(behind[..., :1]), behind[..., 1:]], -1)
        return row_entropy(scores, factor(n)) / gap_bound(n, c)

    return Bound(f"softmax_plus's entropy over its bound, gap {c} log 512", {"x": "n"}, ratio)


def flatter_below_the_reference() -> Bound:
    """h of softmax ≤ h of softmax_plus for n ≤ 512: more weight on what leads lowers the entropy."""

    def ratio(inputs: Inputs) -> Tensor:
        a = inputs["a"]
        return row_entropy(a) / row_entropy(a, factor(a.shape[-1])).clamp(min=1e-300)

    return Bound("softmax's entropy over softmax_plus's", {"a": "n"}, ratio)


def scores(kind: str, n: int, size: float, generator: Generator) -> Tensor:
    """One row [n] of artificial scores in float64.

    All ``equal``; ``normal`` with standard deviation ``size``; or with a ``gap``, one key ahead of the others, which
    are alike, by ``size``.
    """
    if kind == "equal":
        return torch.zeros(n, dtype=torch.float64)
    if kind == "normal":
        return size * torch.randn(n, generator=generator, dtype=torch.float64)
    row = torch.full((n,), -size, dtype=torch.float64)
    row[0] = 0.0
    return row


def by_length(
    kind: str, lengths: Sequence[int], size: float, *, plus: bool, rows: int, generator: Generator
) -> dict[int, float]:
    """Mean entropy over ``rows`` artificial rows at every length, with softmax_plus's factor or without it."""
    found = {}
    for n in lengths:
        drawn = torch.stack([scores(kind, n, size, generator) for _ in range(rows)])
        found[n] = float(row_entropy(drawn, factor(n) if plus else 1.0).mean())
    return found
