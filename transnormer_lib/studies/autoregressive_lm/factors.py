"""The two remedies as two factors: what attends in the early layers, and what in the late ones.

The paper changes both at once. Here every early mechanism meets every late one in TransNormer's backbone, everything
else equal. Three pairs have names in Table 4's rows: ``diag/norm`` is ``transnormer-t2``, ``linear/linear`` and
``softmax/softmax`` are its controls.

The effect of a factor is a paired difference: with each seed, the mean loss over the other factor's values with the one
value, minus that with the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.analysis.seeds import mean
from transnormer_lib.choices import Rotary

# Loss in bits per token by row: one value per seed, in the seeds' order.
Bits = Mapping[str, Sequence[float]]
# The values of both sides of a comparison, the favoured one first, by claim.
Compared = dict[str, tuple[Sequence[float], Sequence[float]]]

# The comparisons, each a claim; with LRPE its name ends with "-lrpe".
CLAIMS = (
    "remedy-norm-after-diag",
    "remedy-norm",
    "remedy-locality",
    "locality-alone-over-norm-alone",
    "late-layers-needed",
    "late-norm-comparable-to-softmax",
    "t2-comparable-to-softmax",
    "t2-over-linear",
)

_NAMES: Mapping[str, str] = {
    "diag/norm": "transnormer-t2",
    "linear/linear": "linear-matched",
    "softmax/softmax": "vanilla-matched",
}


@dataclass(frozen=True)
class Factors:
    """Which pairs are trained."""

    early: tuple[str, ...]  # mechanisms of the first half of the layers, each with every one of late
    late: tuple[str, ...]  # mechanisms of the second half
    pairs: tuple[str, ...]  # further pairs, EARLY/LATE
    rotations: tuple[Rotary, ...]  # of queries and keys; every pair with each


def row(pair: str, rotation: str = "none") -> str:
    """The row of a pair: Table 4's where it has one, with ``+ROTATION`` at its end if queries and keys are rotated."""
    name = _NAMES.get(pair, pair)
    return name if rotation == "none" else f"{name}+{rotation}"


def architecture_of(pair: str) -> str:
    """The name under which ``models.architectures`` has a pair."""
    return _NAMES.get(pair, pair)


def rows(factors: Factors) -> dict[str, tuple[str, Rotary]]:
    """Architecture and rotation by row: every early mechanism with every late one, then the further pairs."""
    crossed = [f"{early}/{late}" for early in factors.early for late in factors.late]
    every = dict.fromkeys([*crossed, *factors.pairs])
    return {row(pair, rotation): (architecture_of(pair), rotation) for rotation in factors.rotations for pair in every}


def table(bits: Bits, factors: Factors, rotation: str) -> list[dict[str, Any]]:
    """The mean loss of every early mechanism with every late one, a line per early mechanism."""
    return [
        {"early": early} | {f"late: {late}": mean(bits[row(f"{early}/{late}", rotation)]) for late in factors.late}
        for early in factors.early
    ]


def over_late(bits: Bits, early: str, factors: Factors, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of an early mechanism over all late ones."""
    return _means([bits[row(f"{early}/{late}", rotation)] for late in factors.late])


def over_early(bits: Bits, late: str, factors: Factors, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of a late mechanism over all early ones."""
    return _means([bits[row(f"{early}/{late}", rotation)] for early in factors.early])


def ending(rotation: str) -> str:
    """The end of a claim's name under a rotation."""
    return "" if rotation == "none" else f"-{rotation}"


def compared(values: Bits, pairs: Mapping[str, tuple[str, str]], rotation: str, start: str = "") -> Compared:
    """The values of both sides by claim, START + CLAIM + ending; only those of which both rows are in ``values``."""
    rows = {claim: (row(a, rotation), row(b, rotation)) for claim, (a, b) in pairs.items()}
    return {
        f"{start}{claim}{ending(rotation)}": (values[a], values[b])
        for claim, (a, b) in rows.items()
        if a in values and b in values
    }


def ranked(values: Bits, pairs: Mapping[str, str], rotation: str) -> list[tuple[str, Sequence[float]]]:
    """What is trained of ``pairs``, name → pair, with its values: lowest mean first."""
    trained = {name: values[own] for name, pair in pairs.items() if (own := row(pair, rotation)) in values}
    return sorted(trained.items(), key=lambda item: mean(item[1]))


def comparisons(bits: Bits, factors: Factors, rotation: str = "none") -> Compared:
    """The losses of both sides, the favoured one first, by claim; only those of which all rows are in ``bits``."""
    pairs = {
        "remedy-norm-after-diag": ("diag/norm", "diag/linear"),
        "locality-alone-over-norm-alone": ("diag/linear", "linear/norm"),
        "late-layers-needed": ("diag/norm", "diag/diag"),
        "late-norm-comparable-to-softmax": ("diag/norm", "diag/softmax"),
        "t2-comparable-to-softmax": ("diag/norm", "softmax/softmax"),
        "t2-over-linear": ("diag/norm", "linear/linear"),
    }
    found = compared(bits, pairs, rotation)
    crossed = [row(f"{early}/{late}", rotation) for early in factors.early for late in factors.late]
    if (
        {"diag", "linear"} <= set(factors.early)
        and {"norm", "linear"} <= set(factors.late)
        and set(crossed) <= set(bits)
    ):
        by_late = (over_early(bits, late, factors, rotation) for late in ("norm", "linear"))
        by_early = (over_late(bits, early, factors, rotation) for early in ("diag", "linear"))
        end = ending(rotation)
        found |= {f"remedy-norm{end}": tuple(by_late), f"remedy-locality{end}": tuple(by_early)}  # type: ignore[dict-item]
    return found


def _means(columns: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*columns, strict=True)]
