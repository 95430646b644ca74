"""The two remedies as two factors: what attends in the early layers, and what in the late ones.

The paper changes both at once. Here every early mechanism meets every late one in TransNormer's backbone, everything
else equal. Three pairs have names in Table 4's rows: ``diag/norm`` is ``transnormer-t2``, ``linear/linear`` and
``softmax/softmax`` are its controls.

The effect of a factor is a paired difference: with each seed, the mean loss over the other factor's values with the one
value, minus that with the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transnormer_lib.choices import Rotary

# Loss in bits per token by row: one value per seed, in the seeds' order.
Bits = Mapping[str, Sequence[float]]

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


def rows(factors: Factors) -> dict[str, tuple[str, Rotary]]:
    """Architecture and rotation by row: every early mechanism with every late one, then the further pairs."""
    crossed = [f"{early}/{late}" for early in factors.early for late in factors.late]
    every = dict.fromkeys([*crossed, *factors.pairs])
    return {row(pair, rotation): (_NAMES.get(pair, pair), rotation) for rotation in factors.rotations for pair in every}


def over_late(bits: Bits, early: str, factors: Factors, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of an early mechanism over all late ones."""
    return _means([bits[row(f"{early}/{late}", rotation)] for late in factors.late])


def over_early(bits: Bits, late: str, factors: Factors, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of a late mechanism over all early ones."""
    return _means([bits[row(f"{early}/{late}", rotation)] for early in factors.early])


def _means(columns: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*columns, strict=True)]
