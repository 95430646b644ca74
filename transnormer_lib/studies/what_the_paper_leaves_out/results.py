"""Effects of the trained choices: the loss with the other choice minus the loss with ours, paired by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.analysis import seeds
from transnormer_lib.papers import discrepancies
from transnormer_lib.progress import tracked
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.what_the_paper_leaves_out.runs import Parameters, chosen, rows, runs
from transnormer_lib.training.store import RunStore


@dataclass(frozen=True)
class Trained:
    """One comparison: bits per selected token of both rows, one value per seed, infinite for a run that diverged."""

    name: str
    ours: str
    other: str
    bits: Mapping[str, Sequence[float]]

    @property
    def change(self) -> seeds.PairedDifference | None:
        """Loss with the other choice minus ours; None with fewer than two seeds or a diverged run."""
        values = [*self.bits[self.ours], *self.bits[self.other]]
        if len(values) < 4 or not all(map(math.isfinite, values)):
            return None
        return seeds.paired_difference(self.bits[self.ours], self.bits[self.other], higher_is_better=False)

    @property
    def distinguishable(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.change is not None and not self.change.low <= 0.0 <= self.change.high

    def sentence(self) -> str:
        """The difference with its interval, in words."""
        return row_losses.compared(self.other, self.ours, self.bits)


def measure(parameters: Parameters, store: RunStore) -> dict[str, Trained]:
    """Train or load every run; returns the comparisons by name."""
    bits: dict[str, list[float]] = {}
    places = language_models.grid(rows(parameters), parameters.seeds)
    for (row, _), config in tracked(zip(places, runs(parameters), strict=True), "run"):
        bits.setdefault(row, []).append(language_models.final_bits(store.get(config, weights=False)))
    found = {}
    for name, pair in chosen(parameters).items():
        found[name] = Trained(name, *pair, {row: bits[row] for row in pair})
    return found


def bits(trained: Mapping[str, Trained]) -> dict[str, Sequence[float]]:
    """The losses of every row, also of one that several comparisons share, by its name."""
    return {row: values for comparison in trained.values() for row, values in comparison.bits.items()}


def table(trained: Mapping[str, Trained]) -> list[dict[str, Any]]:
    """One line per comparison: the paired difference with its interval, and both means."""
    lines = []
    for name, comparison in trained.items():
        change = comparison.change
        lines.append(
            {
                "choice": name,
                "difference": None if change is None else round(change.mean, 3),
                "95% of it": None if change is None else f"{change.low:+.3f} to {change.high:+.3f}",
                "distinguishable": comparison.distinguishable,
                "ours": seeds.mean(comparison.bits[comparison.ours]),
                "other": seeds.mean(comparison.bits[comparison.other]),
            }
        )
    return lines


def trained_rows(trained: Mapping[str, Trained]) -> list[dict[str, Any]]:
    """One line per comparison: its entry, the difference, whether it is told from zero, and both losses."""
    named = {entry.trained: entry.id for entry in discrepancies.by_id("transnormer").values() if entry.trained}
    lines = []
    for line in table(trained):
        choice = line.pop("choice")
        lines.append({"entry": named.get(choice, f"the whole {choice}"), **line})
    return lines
