"""The encoders of Table 5 before any task: masked language models, which GLUE and the ablations start from.

Whoever needs such an encoder asks :func:`run` for it with the parameters of notebook 05, and the store trains it once.
"""

from collections.abc import Mapping
from typing import Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies import language_models
from transnormer_lib.studies.language_models import grid
from transnormer_lib.training.config import RunConfig

# What a run depends on, beside the parameters of every language-model study.
RUN_PARAMETERS = ("attention_dropout", "waypoints")
# The notebook's own parameters.
PARAMETERS = ("architectures", "controls", "released", "seeds", *RUN_PARAMETERS)

# Rows of Table 5 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transformer-ls": "LS",
    "performer": "Performer",
    "linear": "1+elu",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}

_RELEASED = "+released"


def released(name: str) -> str:
    """The row of an architecture in the ``released`` recipe, by name."""
    return name + _RELEASED


def model(row: str, parameters: Mapping[str, Any]) -> ModelConfig:
    """The encoder of a row: an architecture, or one as :func:`released`.

    ``attention_dropout`` is Table 13's, where vanilla attention alone has it; the released recipe has its own.
    """
    name = row.removesuffix(_RELEASED)
    if name != row:
        return language_models.model(name, parameters, recipe="released")
    dropout = parameters["attention_dropout"] if name.startswith("vanilla") else 0.0
    return language_models.model(name, parameters, attention_dropout=dropout)


def run(row: str, seed: int, parameters: Mapping[str, Any]) -> RunConfig:
    """The pre-training of one row with one seed; validation is measured at these shares of the steps."""
    steps = parameters["steps"]
    waypoints = tuple(sorted({round(steps * share) for share in parameters["waypoints"]} - {steps}))
    return language_models.run(row, model(row, parameters), seed, parameters, waypoints=waypoints)


def rows(parameters: Mapping[str, Any]) -> list[str]:
    """Published architectures and matched controls in the ``paper`` recipe, then those as released."""
    return [*parameters["architectures"], *parameters["controls"], *map(released, parameters["released"])]


def runs(parameters: Mapping[str, Any]) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    return [run(row, seed, parameters) for row, seed in grid(rows(parameters), parameters["seeds"])]
