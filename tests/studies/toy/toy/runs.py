"""One linear-attention decoder per seed."""

from dataclasses import dataclass

from transnormer_lib.studies.common import language_models
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(language_models.LanguageModelParameters):
    """The notebook's parameters that decide what is trained."""

    seeds: tuple[int, ...]  # one run each


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per seed."""
    model = language_models.model("linear", parameters)
    return [language_models.run("toy", model, seed, parameters) for seed in parameters.seeds]
