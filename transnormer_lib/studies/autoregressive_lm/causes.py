"""What the norm and the denominator do: one mechanism in all layers of TransNormer's backbone, one thing changed.

Per head, NormAttention is 1+elu attention with a norm after its denominator, because the norm cancels every positive
factor of a row (notebook 01). So the rows tell the denominator's gradient, the norm, and softmax apart.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transnormer_lib.analysis.seeds import mean, spread
from transnormer_lib.studies.autoregressive_lm.factors import Bits, row

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


def named(mechanism: str, rotation: str) -> str:
    """The row of a mechanism in all layers."""
    return row(f"{mechanism}/{mechanism}", rotation)


def table(bits: Bits, rotation: str) -> list[dict[str, Any]]:
    """One line per mechanism that was trained: what it changes, mean loss, range over seeds; lowest loss first."""
    trained = {mechanism: bits[name] for mechanism in _SAYS if (name := named(mechanism, rotation)) in bits}
    return [
        {"mechanism": mechanism, "which is": _SAYS[mechanism], "loss": mean(found), "range": spread(found, 4)}
        for mechanism, found in sorted(trained.items(), key=lambda item: mean(item[1]))
    ]


def comparisons(bits: Bits, rotation: str) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    """The losses of both sides, the favoured one first, by claim; only those of which both rows are in ``bits``."""
    end = "" if rotation == "none" else f"-{rotation}"
    sides = {claim: tuple(named(mechanism, rotation) for mechanism in pair) for claim, pair in CLAIMS.items()}
    return {f"{claim}{end}": (bits[a], bits[b]) for claim, (a, b) in sides.items() if a in bits and b in bits}
