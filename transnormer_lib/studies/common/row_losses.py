"""What the studies of language models say about their losses: per row and seed, lower is better, inf where diverged."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from transnormer_lib.analysis import seeds as paired

if TYPE_CHECKING:
    import pandas as pd

    from transnormer_lib.training.store import Run


class OfARow(Protocol):
    """What was measured of one run, its losses among it."""

    @property
    def row(self) -> str:
        """Its model, by the name that the study has for it."""

    @property
    def seed(self) -> int: ...


class OfARun(OfARow, Protocol):
    """What was measured of one run, with the run itself."""

    @property
    def run(self) -> "Run": ...


def by_row(measured: Sequence[OfARow], field: str = "validation") -> dict[str, list[float]]:
    """The loss of every row, one number per seed in the order of the seeds: what a paired ordering needs."""
    rows: dict[str, list[float]] = {}
    for m in sorted(measured, key=lambda m: m.seed):
        rows.setdefault(m.row, []).append(getattr(m, field))
    return {row: rows[row] for row in dict.fromkeys(m.row for m in measured)}


def finished_mean(bits: Sequence[float]) -> float:
    """Mean over the runs that did not diverge; infinite where all did, so that the row comes last."""
    finite = [value for value in bits if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.inf


def spread(bits: Sequence[float]) -> str:
    """The range of the runs that did not diverge, and how many did."""
    finite = [value for value in bits if math.isfinite(value)]
    parts = [f"{min(finite):.3f}–{max(finite):.3f}"] if finite else []
    return ", ".join(parts + ([f"{len(bits) - len(finite)} diverged"] if len(finite) < len(bits) else []))


def untrained(rows: Sequence[str], scale: str) -> str:
    """Why rows that were not trained were not: quick trains the headline rows alone."""
    reason = f"the parameters ask for no run of {' and '.join(rows)}"
    return f"decided at night: {reason}" if scale == "quick" else reason


def ranked(bits: Mapping[str, Sequence[float]]) -> list[str]:
    """The rows of which a run finished, lowest mean first."""
    return sorted((row for row in bits if min(bits[row]) < math.inf), key=lambda row: finished_mean(bits[row]))


def summary(bits: Mapping[str, Sequence[float]], bigram: float) -> list[str]:
    """The means in order, the runs that diverged and those that are no better than the bigram, in sentences."""
    lines = []
    if rows := ranked(bits):
        means = ", ".join(f"{row} {finished_mean(bits[row]):.3f}" for row in rows)
        lines.append(f"Mean loss in bits, lowest first: {means}.")
    diverged = {row: sum(map(math.isinf, values)) for row, values in bits.items()}
    behind = {row: sum(bigram <= value < math.inf for value in values) for row, values in bits.items()}
    for counts, what in ((diverged, "diverged"), (behind, f"do not beat the bigram ({bigram:.3f})")):
        if any(counts.values()):
            named = ", ".join(f"{row} {count} of {len(bits[row])}" for row, count in counts.items() if count)
            lines.append(f"Runs that {what}: {named}.")
    return lines


def order(bits: Mapping[str, Sequence[float]], published: Callable[[str], float | None], where: str) -> list[str]:
    """Whether the means stand in the published order, in a sentence; none where fewer than two rows are published."""
    printed = {row: value for row in ranked(bits) if (value := published(row)) is not None}
    if len(printed) < 2:
        return []
    ours, theirs = list(printed), sorted(printed, key=lambda row: printed[row])
    verb = "is" if ours == theirs else "is not"
    return [f"The order of the means, {' < '.join(ours)}, {verb} that of {where}, {' < '.join(theirs)}."]


def compared(row: str, other: str, bits: Mapping[str, Sequence[float]]) -> str:
    """How far ``row`` is from ``other``, with the interval of the paired difference."""
    words = ("lower loss", "higher loss")
    return paired.compared(row, other, bits, higher_is_better=False, words=words, unit="bits", digits=3)


def curves(measured: Sequence[OfARun]) -> "pd.DataFrame":
    """Validation loss at the waypoints and at the end as a tidy frame: row, seed, step, bits per counted token.

    A run that diverged has infinite bits where it did not arrive.
    """
    import pandas as pd

    lines = []
    for m in measured:
        reached = {point["step"]: point["bits_per_token"] for point in m.run.record["validation"]}
        planned = sorted({*m.run.config.waypoints, m.run.config.steps})
        lines += [{"row": m.row, "seed": m.seed, "step": s, "bits": reached.get(s, math.inf)} for s in planned]
    return pd.DataFrame(lines)
