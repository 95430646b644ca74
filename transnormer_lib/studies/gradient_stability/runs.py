"""The runs behind Tables 1 and 2: attention in every layer of a masked LM, with its denominator, without, normed.

All rows have the same surroundings (FFN, LayerNorm) and the same positions; only the attention differs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transnormer_lib.choices import Rotary
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import final_bits, grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd

    from transnormer_lib.training.gradient_statistics import GradientStatistics
    from transnormer_lib.training.store import Run, RunStore

# The rotation of the rows that the claims call matched: the one that the released TransNormer has.
MATCHED = "lrpe"


@dataclass(frozen=True)
class Parameters(language_models.LanguageModelParameters):
    """The notebook's parameters that decide what is trained."""

    architectures: tuple[str, ...]  # one mechanism in every layer
    rotations: tuple[Rotary, ...]  # of queries and keys; every architecture under each
    other_norms: tuple[str, ...]  # layer, scale: NormAttention with another norm, under the last rotation
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    waypoints: tuple[float, ...]  # shares of the steps after which the loss is measured


class Row(NamedTuple):
    """What the name of a row says."""

    architecture: str
    norm: str
    rotary: str


def label(architecture: str, rotary: str, norm: str = "rms") -> str:
    """The name of one row: ``norm-t2``, ``norm-t2+lrpe``, ``norm-t2-layer+lrpe``."""
    return architecture + ("" if norm == "rms" else f"-{norm}") + ("" if rotary == "none" else f"+{rotary}")


def parts(row: str) -> Row:
    """The inverse of :func:`label`."""
    name, _, rotary = row.partition("+")
    for norm in ("layer", "scale"):
        if name.endswith(f"-{norm}"):
            return Row(name.removesuffix(f"-{norm}"), norm, rotary or "none")
    return Row(name, "rms", rotary or "none")


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: every architecture under every rotation, then NormAttention (T2's φ) with each other norm.

    The other norms are tried under the last rotation alone, the one that the notebook's headline rows have.
    """
    rows = {
        label(name, rotary): language_models.model(name, parameters, rotary=rotary)
        for rotary in parameters.rotations
        for name in parameters.architectures
    }
    rotary = parameters.rotations[-1]
    for norm in parameters.other_norms:
        options = {"norm": {"phi": "1+elu", "norm": norm}}
        rows[label("norm-t2", rotary, norm)] = language_models.model(
            "norm-t2", parameters, rotary=rotary, attention_options=options
        )
    return rows


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first, with the statistics of their gradients.

    Raises ValueError where the warm-up leaves fewer than two steps: a deviation needs two.
    """
    steps, configs = parameters.steps, models(parameters)
    if steps - parameters.warmup < 2:
        raise ValueError(f"warmup={parameters.warmup!r}: must leave at least two of steps={steps}")
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return [
        language_models.run(row, configs[row], seed, parameters, gradients="norms", waypoints=waypoints)
        for row, seed in grid(configs, parameters.seeds)
    ]


@dataclass(frozen=True)
class Measured:
    """One run: its row, its seed and what the store holds of it."""

    row: str
    seed: int
    run: "Run"

    @property
    def bits(self) -> float:
        """Validation loss per masked token, base 2; infinite where the run diverged."""
        return final_bits(self.run)

    def gradients(self) -> "GradientStatistics":
        return self.run.gradients()


def measure(parameters: Parameters, store: "RunStore") -> list[Measured]:
    """Train or load every run."""
    keys = grid(models(parameters), parameters.seeds)
    return [Measured(row, seed, store.get(config)) for (row, seed), config in zip(keys, runs(parameters), strict=True)]


def rows_of(measured: Sequence[Measured]) -> list[str]:
    """The rows, in the order of the runs."""
    return list(dict.fromkeys(m.row for m in measured))


def bits_per_seed(measured: Sequence[Measured], row: str) -> list[float]:
    """The loss of one row for every seed, in the order of the seeds: what a paired ordering needs."""
    return [m.bits for m in sorted(measured, key=lambda m: m.seed) if m.row == row]


def diverged(measured: Sequence[Measured]) -> list[str]:
    """The runs whose loss or gradient ceased to be finite, as ``row, seed S (step T)``."""
    return [
        f"{m.row}, seed {m.seed} (step {m.run.record['steps']})"
        for m in measured
        if m.run.record["status"] == "diverged"
    ]


def perplexity(bits: float) -> float:
    """2 to the bits per token; infinite where that is too large for a float."""
    return 2.0**bits if bits < 1000 else math.inf


def learned(measured: Sequence[Measured], row: str, bigram: float) -> bool:
    """Whether every run of the row has a lower loss than the bigram."""
    return all(bits < bigram for bits in bits_per_seed(measured, row))


def missing(measured: Sequence[Measured], *rows: str) -> str:
    """Why these rows cannot be compared here: which of them were not trained; empty where all were."""
    absent = [row if "+" in row else f"{row} without rotation" for row in rows if row not in rows_of(measured)]
    return f"decided at night: no runs here of {', '.join(absent)}" if absent else ""


def stability(measured: Sequence[Measured], warmup: int) -> "pd.DataFrame":
    """Every reading of the relative standard deviation as a tidy frame: row, seed, definition, deviation.

    The deviation of a run that diverged is infinite: its gradient left every bound.
    """
    import pandas as pd

    from transnormer_lib.studies.gradient_stability.measures import stability as readings

    return pd.DataFrame(
        [
            {
                "row": m.row,
                "seed": m.seed,
                "definition": name,
                "deviation": value if m.run.record["status"] == "finished" else math.inf,
            }
            for m in measured
            for name, value in readings(m.gradients(), warmup).items()
        ]
    )


def deviations_per_seed(stability: "pd.DataFrame", row: str, definition: str) -> list[float]:
    """The deviations of one row under one definition, in the order of the seeds."""
    chosen = stability[(stability.row == row) & (stability.definition == definition)]
    return list(chosen.sort_values("seed").deviation)


def layer_deviations(measured: Sequence[Measured], warmup: int) -> "pd.DataFrame":
    """The main reading for each block's own gradient: row, seed, layer (from 1), deviation; no diverged runs."""
    import pandas as pd

    from transnormer_lib.studies.gradient_stability.measures import layer_norms, relative_deviation

    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "layer": layer, "deviation": relative_deviation(norms_T)}
            for m in measured
            if m.run.record["status"] == "finished"
            for layer, norms_T in enumerate(layer_norms(m.gradients())[warmup:].T, start=1)
        ],
        columns=["row", "seed", "layer", "deviation"],
    )


def mean_deviations(stability: "pd.DataFrame") -> "pd.DataFrame":
    """Means over the seeds: one line per definition, one column per row, both in their order."""
    means = stability.groupby(["definition", "row"], sort=False).deviation.mean().unstack()
    return means.loc[list(stability.definition.unique()), list(stability.row.unique())]


def rankings(stability: "pd.DataFrame") -> "pd.DataFrame":
    """One line per definition: the definition, and the rows from the steadiest to the least."""
    import pandas as pd

    from transnormer_lib.studies.gradient_stability.measures import ranking

    return pd.DataFrame(
        [
            {"definition": definition, "steadiest first": " < ".join(ranking(values.to_dict()))}
            for definition, values in mean_deviations(stability).iterrows()
        ]
    )


def step_of_appearance(curves: "pd.DataFrame", better: str, worse: str) -> "pd.DataFrame":
    """At each waypoint: how far ``better`` is ahead in bits (mean over paired seeds), and the 95% interval.

    The interval is NaN with fewer than two seeds; where a run diverged, so is the difference.
    """
    import pandas as pd

    from transnormer_lib.analysis.seeds import paired_difference

    wide = curves.pivot(index=["step", "seed"], columns="row", values="bits")
    lines = []
    for step, values in wide.groupby(level="step"):
        ours, theirs = list(values[better]), list(values[worse])
        ahead = low = high = math.nan
        if all(map(math.isfinite, (*ours, *theirs))):
            ahead = sum(w - b for b, w in zip(ours, theirs, strict=True)) / len(ours)
            if len(ours) > 1:
                interval = paired_difference(ours, theirs, higher_is_better=False)
                low, high = interval.low, interval.high
        lines.append({"step": step, "ahead by": ahead, "low": low, "high": high})
    return pd.DataFrame(lines)


def appeared(differences: "pd.DataFrame") -> dict[str, Any]:
    """Who is ahead at the end, and since which waypoint without a break; ``differences`` by step_of_appearance.

    ``sign`` is 1 where the interval of the last waypoint lies above zero, -1 where below, 0 where it includes zero or
    does not exist; ``since`` is then the first waypoint from which all have that sign.
    """
    signs = [
        1 if low > 0 else -1 if high < 0 else 0 for low, high in zip(differences.low, differences.high, strict=True)
    ]
    since = None
    for step, sign in zip(reversed(list(differences.step)), reversed(signs), strict=True):
        if sign != signs[-1] or sign == 0:
            break
        since = int(step)
    return {"sign": signs[-1], "since": since}


# What Table 1 is about: the row that it favours, and the one that it is held against.
PAIRS = (("linear", "linear-unscaled"), ("norm-t2", "linear-unscaled"), ("norm-t2", "linear"), ("norm-t1", "linear"))


def pairs(measured: Sequence[Measured]) -> list[tuple[str, str]]:
    """Those of :data:`PAIRS` that were trained, under every rotation."""
    found = rows_of(measured)
    rotations = dict.fromkeys(parts(row).rotary for row in found)
    candidates = [(label(better, rotary), label(worse, rotary)) for rotary in rotations for better, worse in PAIRS]
    return [pair for pair in candidates if set(pair) <= set(found)]
