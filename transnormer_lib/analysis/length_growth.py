"""How a cost grows with the length: exponents with intervals, and the length from which one cost is below another.

Both are fitted in log-log coordinates, where a power of the length is a straight line.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from transnormer_lib.analysis.seeds import CONFIDENCE
from transnormer_lib.checks import check_positive


@dataclass(frozen=True)
class Exponent:
    """The slope of log cost against log length, with its two-sided 95% interval (Student's t, n - 2 degrees).

    Two points leave no degree of freedom, so their interval is infinite.
    """

    value: float
    low: float
    high: float
    lengths: tuple[int, ...]  # the points


def exponent(costs: Mapping[int, float], from_length: int = 0) -> Exponent | None:
    """Least squares over the costs by length, starting at ``from_length``; None for fewer than two points.

    Raises ValueError for a length or cost that is not positive.
    """
    for length, cost in costs.items():
        check_positive("length", length)
        check_positive(f"costs[{length!r}]", cost)
    lengths = sorted(length for length in costs if length >= from_length)
    n = len(lengths)
    if n < 2:
        return None
    x, y = [math.log(length) for length in lengths], [math.log(costs[length]) for length in lengths]
    mean_x, mean_y = math.fsum(x) / n, math.fsum(y) / n
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    half = math.inf
    if n > 2:
        squares = math.fsum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
        half = float(stdtrit(n - 2, 0.5 + CONFIDENCE / 2)) * math.sqrt(squares / (n - 2) / spread)
    return Exponent(slope, slope - half, slope + half, tuple(lengths))


@dataclass(frozen=True)
class Crossover:
    """The length from which one cost is below another.

    ``length`` is None if the cost is not below at the longest length, and the shortest length if it always is.
    """

    length: float | None
    from_start: bool = False


def crossover(cost: Mapping[int, float], other: Mapping[int, float]) -> Crossover:
    """Where ``cost`` falls below ``other`` for good, interpolated between their common lengths.

    Raises ValueError if they have no common length.
    """
    lengths = sorted(set(cost) & set(other))
    if not lengths:
        raise ValueError(f"cost, other: no length in common, {sorted(cost)} and {sorted(other)}")
    gaps = [math.log(cost[n] / other[n]) for n in lengths]
    if gaps[-1] >= 0:
        return Crossover(None)
    if max(gaps) < 0:
        return Crossover(float(lengths[0]), from_start=True)
    at = max(at for at, gap in enumerate(gaps) if gap >= 0)
    share = gaps[at] / (gaps[at] - gaps[at + 1])
    near, far = math.log(lengths[at]), math.log(lengths[at + 1])
    return Crossover(math.exp(near + share * (far - near)))


def crossover_per_round(cost: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]]) -> list[Crossover]:
    """:func:`crossover` of each round's values, for the rounds that both have at every common length."""
    lengths = sorted(set(cost) & set(other))
    rounds = min((len(side[n]) for side in (cost, other) for n in lengths), default=0)
    return [crossover(*({n: side[n][r] for n in lengths} for side in (cost, other))) for r in range(rounds)]
