"""The encoders of Table 5 before any task: masked language models, which GLUE and the ablations start from.

Studies that need such an encoder call :func:`run` with notebook 05's parameters, so it is trained once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from transnormer_lib.choices import Rotary
from transnormer_lib.models.config import ModelConfig, Positions
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import RELEASED
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class EncoderParameters(language_models.LanguageModelParameters):
    """The parameters of an encoder's pre-training."""

    attention_dropout: float  # of the attention matrix, in softmax attention only
    waypoints: tuple[float, ...]  # shares of the steps after which the validation loss is measured
    rotary: Rotary  # relative positions of the rows in the paper's recipe; those as released have their own
    positions: Positions  # absolute positions of these rows, where they are encoders
    longest: int  # tokens of the longest text that the encoder can read; 0: as many as in its pre-training


@dataclass(frozen=True)
class Parameters(rates.RateSearch, EncoderParameters, language_models.Rows):
    """The notebook's parameters that decide what is trained and measured."""

    sides_windows: int  # held-out sequences with one gap each, read with and without what follows


def model(row: str, parameters: EncoderParameters, **fields: Any) -> ModelConfig:
    """The model of a row, in the paper's recipe or as :func:`released`; ``fields`` as in ``architecture``.

    Where ``task`` is causal it is a decoder, as in notebook 04. Of encoders ``attention_dropout`` is Table 13's, which
    only vanilla attention has; the released recipe has its own. As in RoBERTa, embeddings are not scaled: at unit size
    they would be fifty times the initial learned positions.
    """
    name, shared = row.removesuffix(RELEASED), dict(fields)
    if parameters.task == "masked":
        shared = {"scale_embedding": False, **shared}
    if name != row:
        return language_models.model(name, parameters, recipe="released", **shared)
    shared = {"rotary": parameters.rotary, **shared}
    if parameters.task == "masked":
        longest = parameters.longest or parameters.length
        shared = {"positions": parameters.positions, "max_length": longest, **shared}
        shared["attention_dropout"] = parameters.attention_dropout if "vanilla" in name else 0.0
    return language_models.model(name, parameters, **shared)


def run(row: str, seed: int, parameters: EncoderParameters, **fields: Any) -> RunConfig:
    """The pre-training of one row with one seed, at the row's own learning rate; ``fields`` of the model."""
    return pretraining(row, model(row, parameters, **fields), seed, rates.own(parameters, row))


def pretraining(label: str, config: ModelConfig, seed: int, parameters: EncoderParameters) -> RunConfig:
    """A pre-training named ``label``; validation is measured at ``waypoints``, shares of the steps."""
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return language_models.run(label, config, seed, parameters, waypoints=waypoints)


E = TypeVar("E", bound=EncoderParameters)


def make(parameters: E, config: Callable[[str, E], ModelConfig] = model) -> rates.Make:
    """How a study makes the pre-training of a row, whose model is ``config(row, parameters)``."""

    def of(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return pretraining(label, config(row, parameters), seed, replace(parameters, learning_rate=rate))

    return of


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""
    return rates.Search(parameters, tuple(parameters.rows()), parameters.seeds, make(parameters))


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
