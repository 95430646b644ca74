"""What an unsaid choice does to a trained encoder: an encoder of notebook 05, and the same with the other choice.

Four pairs are TransNormer T2 and T2 with something as the release has it: the rotation or the activation (one field
each), ε outside the root (the model's norms and NormAttention's, two fields), or the whole recipe (five fields). The
fifth pair, ``surroundings``, is 1+elu attention in TransNormer's surroundings and as a published baseline. Everything
else, seeds included, is notebook 05's: a row that both have is trained once. Differences are paired by seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transnormer_lib.analysis import seeds as paired
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    from transnormer_lib.training.store import RunStore

BASE = "transnormer-t2"
# What is compared: our row, and the same with the other choice.
COMPARISONS: Mapping[str, tuple[str, str]] = {
    "rotation": (BASE, f"{BASE}+lrpe"),
    "activation": (BASE, f"{BASE}+identity"),
    "epsilon": (BASE, f"{BASE}+outside"),
    "recipe": (BASE, language_models.released(BASE)),
    "surroundings": ("linear-matched", "linear"),
}


@dataclass(frozen=True)
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained."""

    comparisons: tuple[str, ...]  # choices that are trained, of COMPARISONS
    seeds: tuple[int, ...]  # one run per row and seed; differences are paired over them


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The encoder of a row: T2 with one choice changed, or a row of notebook 05."""
    base = bidirectional.model(BASE, parameters)
    if row == f"{BASE}+lrpe":
        return replace(base, rotary="lrpe")
    if row == f"{BASE}+identity":
        return replace(base, activation="identity")
    if row == f"{BASE}+outside":
        options = {name: dict(own) for name, own in base.attention_options.items()}
        options["norm"]["eps_placement"] = "outside"
        return replace(base, norm_eps_placement="outside", attention_options=options)
    return bidirectional.model(row, parameters)


def rows(parameters: Parameters) -> list[str]:
    """The rows of the comparisons that the parameters name, each once. Raises ValueError for an unknown one."""
    for name in parameters.comparisons:
        if name not in COMPARISONS:
            raise ValueError(f"comparisons={name!r}: must be one of {', '.join(COMPARISONS)}")
    return list(dict.fromkeys(row for name in parameters.comparisons for row in COMPARISONS[name]))


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return [
        language_models.run(row, model(row, parameters), seed, parameters, waypoints=waypoints)
        for row, seed in grid(rows(parameters), parameters.seeds)
    ]


@dataclass(frozen=True)
class Trained:
    """One comparison: bits per selected token of both rows, one number per seed, infinite where a run diverged."""

    name: str
    ours: str
    other: str
    bits: Mapping[str, Sequence[float]]

    @property
    def change(self) -> paired.PairedDifference | None:
        """Loss with the other choice less ours; None without two seeds, or where a run diverged."""
        values = [*self.bits[self.ours], *self.bits[self.other]]
        if len(values) < 4 or not all(map(math.isfinite, values)):
            return None
        return paired.paired_difference(self.bits[self.ours], self.bits[self.other], higher_is_better=False)

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the difference leaves out zero."""
        return self.change is not None and not self.change.low <= 0.0 <= self.change.high

    def sentence(self) -> str:
        """The difference with its interval, in words."""
        return row_losses.compared(self.other, self.ours, self.bits)


def measure(parameters: Parameters, store: "RunStore") -> dict[str, Trained]:
    """Train or load every run; the comparisons by name."""
    bits: dict[str, list[float]] = {}
    configs = runs(parameters)
    for (row, _), config in zip(grid(rows(parameters), parameters.seeds), configs, strict=True):
        bits.setdefault(row, []).append(language_models.final_bits(store.get(config)))
    found = {}
    for name in parameters.comparisons:
        ours, other = COMPARISONS[name]
        found[name] = Trained(name, ours, other, {row: bits[row] for row in (ours, other)})
    return found


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
                "told apart": comparison.told_apart,
                "ours": row_losses.finished_mean(comparison.bits[comparison.ours]),
                "other": row_losses.finished_mean(comparison.bits[comparison.other]),
            }
        )
    return lines
