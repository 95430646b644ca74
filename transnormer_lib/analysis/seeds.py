"""Statistics over seeds: the mean and range of runs, and differences paired by seed with their interval.

A run that diverged has an infinite value: ``inf`` for a loss, ``-inf`` for a score.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_POWER = 0.8  # how often the smallest visible effect is found


def finished(values: Iterable[float]) -> list[float]:
    """The values of the runs that did not diverge."""
    return [value for value in values if math.isfinite(value)]


def mean(values: Sequence[float]) -> float:
    """Mean over the runs that did not diverge; infinite if all did, so that the row comes last."""
    kept = finished(values)
    return math.fsum(kept) / len(kept) if kept else next(iter(values), math.inf)


def spread(values: Sequence[float], digits: int) -> str:
    """Range of the runs that did not diverge, and how many did: ``2.71 to 2.80, 1 diverged``."""
    kept = finished(values)
    parts = [f"{min(kept):.{digits}f} to {max(kept):.{digits}f}".replace("-", "−")] if kept else []
    return ", ".join(parts + ([f"{len(values) - len(kept)} diverged"] if len(kept) < len(values) else []))


@dataclass(frozen=True)
class PairedDifference:
    """Mean of n differences paired by seed, and its two-sided 95% interval (Student's t, n - 1 degrees)."""

    mean: float
    low: float
    high: float
    error: float  # standard error of the mean
    n: int

    def p(self, hypothesis: float = 0.0) -> float:
        """The two-sided p-value of the hypothesis that the true difference is ``hypothesis``."""
        from scipy.special import stdtr

        if not self.error:
            return float(self.mean == hypothesis)
        return 2.0 * float(stdtr(self.n - 1, -abs(self.mean - hypothesis) / self.error))

    @property
    def visible(self) -> float:
        """The smallest true difference of either sign for which this test finds p < 0.05 in four of five tries."""
        from scipy.special import nctdtrinc, stdtrit

        critical = float(stdtrit(self.n - 1, 0.5 + CONFIDENCE / 2))
        return float(nctdtrinc(self.n - 1, 1.0 - _POWER, critical)) * self.error


def paired_difference(better: Sequence[float], worse: Sequence[float], higher_is_better: bool) -> PairedDifference:
    """How far ``better`` is ahead of ``worse``; each has one finite number per seed, at least two."""
    from scipy.special import stdtrit  # the quantile behind scipy.stats.t, at a third of its import time

    sign = 1.0 if higher_is_better else -1.0
    differences = [sign * (b - w) for b, w in zip(better, worse, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    error = math.sqrt(variance / n)
    half_width = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
    return PairedDifference(mean, mean - half_width, mean + half_width, error, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (Holm, 1979), in the order given; below 0.05, a test is significant among all."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


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
    """A sentence with the paired difference of ``row`` from ``other`` and its interval.

    ``words`` say that ``row`` is ahead or behind; ``digits`` is the number of decimals.
    """
    if len(values[row]) < 2 or not all(map(math.isfinite, [*values[row], *values[other]])):
        return f"{row} against {other}: no interval; it needs two seeds and finished runs."
    ahead = paired_difference(values[row], values[other], higher_is_better)
    says = words[0] if ahead.low > 0 else words[1] if ahead.high < 0 else "not distinguishable"
    change = [ahead.mean, ahead.low, ahead.high] if higher_is_better else [-ahead.mean, -ahead.high, -ahead.low]
    mean, low, high = (f"{value:+.{digits}f}".replace("-", "−") for value in change)
    return f"{row} against {other}: {says}; {mean} {unit}, 95% in [{low}, {high}]."
