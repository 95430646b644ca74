"""What the norm and the denominator do: one mechanism in all layers of TransNormer's backbone, one thing changed.

Per head, NormAttention is 1+elu attention with a norm after its denominator, because the norm cancels every positive
factor of a row (notebook 01). So the rows tell the denominator's gradient, the norm, and softmax apart.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from transnormer_lib.analysis.seeds import mean, spread
from transnormer_lib.studies.autoregressive_lm.factors import Bits, Compared, compared, ranked

# By claim, the two mechanisms, the favoured one first. With LRPE a claim's name ends with "-lrpe".
CLAIMS: Mapping[str, tuple[str, str]] = {
    "denominator-gradient-hurts": ("linear-detached", "linear"),
    "norm-helps-linear": ("linear-normed", "linear"),
    "norm-helps-softmax": ("softmax-normed", "softmax"),
    "norm-attention-over-linear": ("norm", "linear"),
    "norm-attention-comparable-to-normed-linear": ("norm", "linear-normed"),
    "scaling-is-needed": ("linear", "linear-unscaled"),
}

_SAYS = {
    "linear": "1+elu attention, as published",
    "linear-detached": "no gradient through the denominator",
    "linear-normed": "a norm after the denominator, over the embedding",
    "linear-normed-per-head": "a norm after the denominator, per head",
    "linear-unscaled": "neither denominator nor norm",
    "norm": "NormAttention: a norm in place of the denominator, over the embedding",
    "norm-per-head": "NormAttention, per head",
    "softmax": "softmax attention",
    "softmax-normed": "softmax attention with the same norm",
}


def pair(mechanism: str) -> str:
    """A mechanism in all layers."""
    return f"{mechanism}/{mechanism}"


def table(bits: Bits, rotation: str) -> list[dict[str, Any]]:
    """One line per mechanism that was trained: what it changes, mean loss, range over seeds; lowest loss first."""
    return [
        {"mechanism": mechanism, "which is": _SAYS[mechanism], "loss": mean(found), "range": spread(found, 4)}
        for mechanism, found in ranked(bits, {mechanism: pair(mechanism) for mechanism in _SAYS}, rotation)
    ]


def from_median(losses: Sequence[float]) -> list[float]:
    """Each seed's distance from the median over the seeds (Brown and Forsythe, 1974); infinite if a run diverged."""
    finite = all(map(math.isfinite, losses))
    return [abs(loss - median(losses)) if finite else math.inf for loss in losses]


def convergence(bits: Bits, rotation: str) -> Compared:
    """How far NormAttention's runs and 1+elu attention's end from their median, by claim; {} without both."""
    apart = {name: from_median(losses) for name, losses in bits.items()}
    return compared(apart, {"section-1-consistent-convergence": (pair("norm"), pair("linear"))}, rotation)


def comparisons(bits: Bits, rotation: str) -> Compared:
    """The losses of both sides, the favoured one first, by claim; only those of which both rows are in ``bits``."""
    return compared(bits, {claim: (pair(a), pair(b)) for claim, (a, b) in CLAIMS.items()}, rotation)
