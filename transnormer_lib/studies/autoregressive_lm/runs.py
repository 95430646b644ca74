"""The runs behind Table 4: the published rows, the matched controls, and both in the released recipe."""

from dataclasses import dataclass

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import grid, released
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(language_models.LanguageModelParameters, language_models.Rows):
    """The notebook's parameters that decide what is trained and measured."""

    test_windows: int  # sequences of the test text on which the loss is measured


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, then those as released."""
    rows = {name: language_models.model(name, parameters) for name in (*parameters.architectures, *parameters.controls)}
    return rows | {
        released(name): language_models.model(name, parameters, recipe="released") for name in parameters.released
    }


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    configs = models(parameters)
    return [language_models.run(row, configs[row], seed, parameters) for row, seed in grid(configs, parameters.seeds)]
