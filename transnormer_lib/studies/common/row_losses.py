"""Sentences about the losses of a study: per row and seed in bits, lower is better, infinite where a run diverged."""

import math
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from transnormer_lib.analysis import seeds
from transnormer_lib.choices import VARIANTS
from transnormer_lib.studies.common import findings
from transnormer_lib.studies.common.language_models import Floor, released
from transnormer_lib.studies.common.measured import Measured


def untrained(rows: Sequence[str], scale: str) -> str:
    """Why there are no runs of these rows: quick trains the headline rows only."""
    reason = f"the parameters do not train {' and '.join(rows)}"
    return f"{reason}; a larger preset does" if scale == "quick" else reason


def ranked(bits: Mapping[str, Sequence[float]]) -> list[str]:
    """The rows with a finished run, lowest mean first."""
    return sorted((row for row in bits if seeds.finished(bits[row])), key=lambda row: seeds.mean(bits[row]))


def summary(bits: Mapping[str, Sequence[float]], floor: Floor) -> list[str]:
    """The means in order, then the runs that diverged and those that do not beat the floor, in sentences."""
    lines = []
    if rows := ranked(bits):
        means = ", ".join(f"{row} {seeds.mean(bits[row]):.3f}" for row in rows)
        lines.append(f"Mean loss in bits, lowest first: {means}.")
    diverged = {row: sum(map(math.isinf, values)) for row, values in bits.items()}
    behind = {row: sum(floor.bits <= value < math.inf for value in values) for row, values in bits.items()}
    below = f"do not beat the {floor.name} ({floor.bits:.3f})"
    for counts, what in ((diverged, "diverged"), (behind, below)):
        if any(counts.values()):
            named = ", ".join(f"{row} {count} of {len(bits[row])}" for row, count in counts.items() if count)
            lines.append(f"Runs that {what}: {named}.")
    return lines


def finding(bits: Mapping[str, Sequence[float]], floor: Floor, digits: int = 3) -> str:
    """What a figure of the losses shows: the lowest mean and its lead, and the runs that do not beat the floor."""
    lead = findings.lead(bits, what="loss", unit=" bits", digits=digits)
    return f"{lead} {findings.behind(bits, f'the {floor.name}', floor.bits, digits=digits)}"


def last_change(curves: pd.DataFrame) -> str:
    """How far the mean losses still change between the last two waypoints, in a sentence; ``curves`` of :func:`curves`.

    Rows with a run that did not reach them are left out.
    """
    steps = sorted(curves.step.unique())
    if len(steps) < 2:
        return "There is one waypoint."
    before, end = steps[-2:]
    means = curves.groupby(["step", "row"], sort=False).bits.mean()
    changes = {row: means[end, row] - means[before, row] for row in curves.row.unique()}
    shown = [f"{row} {findings.signed(one, 3)}" for row, one in changes.items() if math.isfinite(one)]
    return f"Change of the mean from step {before:,} to {end:,}: {', '.join(shown) or 'no row has one'}."


def order(bits: Mapping[str, Sequence[float]], published: Callable[[str], float | None], where: str) -> list[str]:
    """Whether the means have the published order, in a sentence; none where fewer than two rows are published."""
    printed = {row: value for row in ranked(bits) if (value := published(row)) is not None}
    if len(printed) < 2:
        return []
    ours, theirs = list(printed), sorted(printed, key=lambda row: printed[row])
    verb = "is" if ours == theirs else "is not"
    return [f"The order of the means, {' < '.join(ours)}, {verb} that of {where}, {' < '.join(theirs)}."]


def compared(row: str, other: str, bits: Mapping[str, Sequence[float]]) -> str:
    """How far ``row`` is from ``other``, with the interval of the paired difference."""
    words = ("lower loss", "higher loss")
    return seeds.compared(row, other, bits, higher_is_better=False, words=words, unit="bits", digits=3)


def against_baselines(bits: Mapping[str, Sequence[float]]) -> list[str]:
    """:func:`compared` for T1 and T2 and each trained baseline: published, matched, and both as released."""
    baselines = ("linear", "linear-matched", "vanilla", "vanilla-matched")
    pairs = [(row, other) for row in VARIANTS for other in baselines]
    pairs += [(released(row), released(f"{name}-matched")) for row in VARIANTS for name in ("linear", "vanilla")]
    return [compared(row, other, bits) for row, other in pairs if row in bits and other in bits]


def curves(measured: Sequence[Measured]) -> pd.DataFrame:
    """Validation loss at the waypoints and at the end as a tidy frame: row, seed, step, bits per counted token.

    A run that diverged has infinite bits at the steps that it did not reach.
    """
    lines = []
    for m in measured:
        reached = {point["step"]: point["bits_per_token"] for point in m.run.record["validation"]}
        planned = sorted({*m.run.config.waypoints, m.run.config.steps})
        lines += [{"row": m.row, "seed": m.seed, "step": s, "bits": reached.get(s, math.inf)} for s in planned]
    return pd.DataFrame(lines)
