"""The runs that show what an unmentioned choice does to a trained encoder: notebook 05's, with and without it.

Four pairs compare TransNormer T2 with a T2 that has one thing as released: the rotation or the activation (one field
each), ε outside the root (two fields: the model's norms and NormAttention's), or the whole recipe (five fields). The
fifth, ``backbone``, is 1+elu attention in TransNormer's backbone and as a published baseline. Everything else, seeds
included, is notebook 05's, so rows that both notebooks have are trained once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig

BASE = "transnormer-t2"
# By name: our row, and the row with the other choice.
COMPARISONS: Mapping[str, tuple[str, str]] = {
    "rotation": (BASE, f"{BASE}+lrpe"),
    "activation": (BASE, f"{BASE}+identity"),
    "epsilon": (BASE, f"{BASE}+outside"),
    "recipe": (BASE, language_models.released(BASE)),
    "backbone": ("linear-matched", "linear"),
}


@dataclass(frozen=True)
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained."""

    comparisons: tuple[str, ...]  # names of COMPARISONS to train
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
    """The rows of the chosen comparisons, each once. Raises ValueError for an unknown comparison."""
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
