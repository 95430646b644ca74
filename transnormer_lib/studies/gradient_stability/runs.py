"""The runs behind Tables 1 and 2: masked LMs whose layers all have the same attention.

All rows share their backbone recipe (FFN, LayerNorm) and positions, so they differ only in the attention.
"""

from dataclasses import dataclass
from typing import NamedTuple

from transnormer_lib.choices import Rotary
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig

MATCHED = "lrpe"  # the rotation of the rows that the claims call matched: the released TransNormer's


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


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first, each with the statistics of its gradients.

    Raises ValueError where the warm-up leaves fewer than two steps, because a deviation needs two.
    """
    steps, configs = parameters.steps, models(parameters)
    if steps - parameters.warmup < 2:
        raise ValueError(f"warmup={parameters.warmup!r}: must leave at least two of steps={steps}")
    waypoints = language_models.waypoints(parameters.waypoints, steps)
    return [
        language_models.run(row, configs[row], seed, parameters, gradients="norms", waypoints=waypoints)
        for row, seed in grid(configs, parameters.seeds)
    ]
