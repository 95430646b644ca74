"""The runs behind Tables 1 and 2: attention in every layer of a masked LM, with its denominator, without, normed.

All rows have the same surroundings (FFN, LayerNorm) and the same positions; only the attention differs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies import language_models
from transnormer_lib.studies.language_models import final_bits, grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd

    from transnormer_lib.training.gradient_statistics import GradientStatistics
    from transnormer_lib.training.store import Run, RunStore

# The notebook's own parameters, beside those of every language-model study.
PARAMETERS = ("architectures", "rotations", "other_norms", "seeds", "waypoints")


def label(architecture: str, rotary: str, norm: str = "rms") -> str:
    """The name of one row: ``norm-t2``, ``norm-t2+lrpe``, ``norm-t2-layer+lrpe``."""
    return architecture + ("" if norm == "rms" else f"-{norm}") + ("" if rotary == "none" else f"+{rotary}")


def models(parameters: Mapping[str, Any]) -> dict[str, ModelConfig]:
    """The rows: every architecture under every rotation, then NormAttention (T2's φ) with each other norm.

    The other norms are tried under the last rotation alone, the one that the notebook's headline rows have.
    """
    rows = {
        label(name, rotary): language_models.model(name, parameters, rotary=rotary)
        for rotary in parameters["rotations"]
        for name in parameters["architectures"]
    }
    rotary = parameters["rotations"][-1]
    for norm in parameters["other_norms"]:
        options = {"norm": {"phi": "1+elu", "norm": norm}}
        rows[label("norm-t2", rotary, norm)] = language_models.model(
            "norm-t2", parameters, rotary=rotary, attention_options=options
        )
    return rows


def runs(parameters: Mapping[str, Any]) -> list[RunConfig]:
    """One run per row and seed, rows first, with the statistics of their gradients."""
    steps, configs = parameters["steps"], models(parameters)
    waypoints = tuple(sorted({round(steps * share) for share in parameters["waypoints"]} - {steps}))
    return [
        language_models.run(row, configs[row], seed, parameters, gradients="norms", waypoints=waypoints)
        for row, seed in grid(configs, parameters["seeds"])
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


def measure(parameters: Mapping[str, Any], store: "RunStore") -> list[Measured]:
    """Train or load every run."""
    keys = grid(models(parameters), parameters["seeds"])
    return [Measured(row, seed, store.get(config)) for (row, seed), config in zip(keys, runs(parameters), strict=True)]


def bits_per_seed(measured: Sequence[Measured], row: str) -> list[float]:
    """The loss of one row for every seed, in the order of the seeds: what a paired ordering needs."""
    return [m.bits for m in sorted(measured, key=lambda m: m.seed) if m.row == row]


def curves(measured: Sequence[Measured]) -> "pd.DataFrame":
    """Validation loss at the waypoints as a tidy frame: row, seed, step, bits (per masked token)."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "step": point["step"], "bits": point["bits_per_token"]}
            for m in measured
            for point in m.run.record["validation"]
        ]
    )


def stability(measured: Sequence[Measured], warmup: int) -> "pd.DataFrame":
    """Every reading of the relative standard deviation as a tidy frame: row, seed, definition, deviation."""
    import pandas as pd

    from transnormer_lib.analysis.gradient_stability import stability as readings

    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "definition": name, "deviation": value}
            for m in measured
            for name, value in readings(m.gradients(), warmup).items()
        ]
    )


def deviations_per_seed(stability: "pd.DataFrame", row: str, definition: str) -> list[float]:
    """The deviations of one row under one definition, in the order of the seeds."""
    chosen = stability[(stability.row == row) & (stability.definition == definition)]
    return list(chosen.sort_values("seed").deviation)


def rankings(stability: "pd.DataFrame") -> "pd.DataFrame":
    """One line per definition: each row's mean over the seeds, and the rows from the steadiest to the least."""
    import pandas as pd

    from transnormer_lib.analysis.gradient_stability import ranking

    means = stability.groupby(["definition", "row"], sort=False).deviation.mean().unstack()
    lines = []
    for definition in stability.definition.unique():
        values = means.loc[definition].to_dict()
        lines.append({"definition": definition, **values, "steadiest first": " < ".join(ranking(values))})
    return pd.DataFrame(lines)


def step_of_appearance(curves: "pd.DataFrame", better: str, worse: str) -> "pd.DataFrame":
    """At each waypoint: the mean paired difference worse - better, its 95% interval, and whether it excludes zero."""
    import pandas as pd

    from transnormer_lib.analysis.paired import paired_difference

    wide = curves.pivot(index=["step", "seed"], columns="row", values="bits")
    lines = []
    for step, values in wide.groupby(level="step"):
        ahead = paired_difference(list(values[better]), list(values[worse]), higher_is_better=False)
        lines.append({"step": step, "ahead by": ahead.mean, "low": ahead.low, "high": ahead.high})
    return pd.DataFrame(lines)
