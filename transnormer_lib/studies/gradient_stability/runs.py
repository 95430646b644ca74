"""The runs behind Tables 1 and 2: masked LMs whose layers all have the same attention.

All rows share their backbone recipe (FFN, LayerNorm) and positions, so they differ only in the attention.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from transnormer_lib.choices import Rotary
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.gradient_stability import ladder
from transnormer_lib.training.config import RunConfig

MATCHED = "lrpe"  # the rotation of the rows that the claims call matched: the released TransNormer's


@dataclass(frozen=True)
class Parameters(ladder.LadderParameters):
    """The notebook's parameters that decide what is trained."""

    architectures: tuple[str, ...]  # one mechanism in every layer
    rotations: tuple[Rotary, ...]  # of queries and keys; every architecture under each
    other_norms: tuple[str, ...]  # layer, scale: NormAttention with another norm, under the last rotation
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
    norm = next((norm for norm in ("layer", "scale") if name.endswith(f"-{norm}")), "rms")
    return Row(name.removesuffix(f"-{norm}"), norm, rotary or "none")


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: every architecture under every rotation, then NormAttention (T2's φ) with each other norm.

    The other norms are trained only under the last rotation, that of the notebook's headline rows.
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


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed; a judged run has the statistics of its gradients as well.

    Raises ValueError where the warm-up leaves fewer than two steps, because a deviation needs two.
    """
    steps, configs = parameters.steps, models(parameters)
    if steps - parameters.warmup < 2:
        raise ValueError(f"warmup={parameters.warmup!r}: must leave at least two of steps={steps}")

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return language_models.run(label, configs[row], seed, replace(parameters, learning_rate=rate))

    recorded = {"gradients": "norms", "waypoints": language_models.waypoints(parameters.waypoints, steps)}
    return rates.Search(parameters, tuple(configs), parameters.seeds, make, recorded)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, one run per row and seed, then the ladder."""
    return [*search(parameters).runs(), *ladder.runs(parameters)]
