"""The encoders of Table 5 before any task: masked language models, which GLUE and the ablations start from.

Studies that need such an encoder call :func:`run` with notebook 05's parameters, so it is trained once.
"""

from dataclasses import dataclass
from typing import Any

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import RELEASED, grid
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class EncoderParameters(language_models.LanguageModelParameters):
    """The parameters of an encoder's pre-training."""

    attention_dropout: float  # of the attention matrix, in softmax attention only
    waypoints: tuple[float, ...]  # shares of the steps after which the validation loss is measured


@dataclass(frozen=True)
class Parameters(EncoderParameters, language_models.Rows):
    """The notebook's parameters that decide what is trained and measured."""

    sides_windows: int  # held-out sequences with one gap each, read with and without what follows


def model(row: str, parameters: EncoderParameters, **fields: Any) -> ModelConfig:
    """The encoder of a row, in the paper's recipe or as :func:`released`; ``fields`` as in ``architecture``.

    ``attention_dropout`` is Table 13's, which only vanilla attention has; the released recipe has its own. As in
    RoBERTa, embeddings are not scaled: at unit size they would be fifty times the initial learned positions.
    """
    name, shared = row.removesuffix(RELEASED), {"scale_embedding": False, **fields}
    if name != row:
        return language_models.model(name, parameters, recipe="released", **shared)
    dropout = parameters.attention_dropout if "vanilla" in name else 0.0
    return language_models.model(name, parameters, attention_dropout=dropout, **shared)


def run(row: str, seed: int, parameters: EncoderParameters, **fields: Any) -> RunConfig:
    """The pre-training of one row with one seed; validation is measured at ``waypoints``, shares of the steps."""
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return language_models.run(row, model(row, parameters, **fields), seed, parameters, waypoints=waypoints)


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    return [run(row, seed, parameters) for row, seed in grid(parameters.rows(), parameters.seeds)]
