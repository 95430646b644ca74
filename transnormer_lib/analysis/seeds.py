"""Differences paired by seed, with their interval: how two models trained on the same batches are compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """Mean of differences paired by seed, and its two-sided 95% interval (Student's t, n - 1 degrees)."""

    mean: float
    low: float
    high: float


def paired_difference(better: Sequence[float], worse: Sequence[float], higher_is_better: bool) -> PairedDifference:
    """How far ``better`` is ahead of ``worse``: one finite number per seed each, at least two."""
    from scipy.special import stdtrit  # the quantile behind scipy.stats.t, at a third of its import time

    sign = 1.0 if higher_is_better else -1.0
    differences = [sign * (b - w) for b, w in zip(better, worse, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    half_width = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance / n)
    return PairedDifference(mean, mean - half_width, mean + half_width)


def compared(
    row: str,
    other: str,
    values: Mapping[str, Sequence[float]],
    *,
    higher_is_better: bool,
    words: tuple[str, str],
    unit: str,
    digits: int,
) -> str:
    """How far the values of ``row`` are from those of ``other``, in a sentence with the interval of the difference.

    ``words`` say that ``row`` is ahead, or behind; ``digits`` stand after the point.
    """
    if len(values[row]) < 2 or not all(map(math.isfinite, [*values[row], *values[other]])):
        return f"{row} against {other}: no interval, which takes two seeds and runs that all finished."
    ahead = paired_difference(values[row], values[other], higher_is_better)
    says = words[0] if ahead.low > 0 else words[1] if ahead.high < 0 else "not told apart"
    change = [ahead.mean, ahead.low, ahead.high] if higher_is_better else [-ahead.mean, -ahead.high, -ahead.low]
    mean, low, high = (f"{value:+.{digits}f}" for value in change)
    return f"{row} against {other}: {says}; {mean} {unit}, 95% in [{low}, {high}]."
