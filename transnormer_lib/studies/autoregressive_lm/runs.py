"""The runs behind Table 4: the published rows, the matched controls, both as released, the pairs of the two factors.

Those of the look-up tasks follow them.
"""

from dataclasses import dataclass, replace

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.autoregressive_lm import recall
from transnormer_lib.studies.autoregressive_lm.factors import rows as factor_rows
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import grid, released
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(recall.RecallParameters):
    """The notebook's parameters that decide what is trained and measured."""

    test_windows: int  # sequences of the test text on which the loss is measured


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, those as released, the pairs."""
    rows = {name: language_models.model(name, parameters) for name in (*parameters.architectures, *parameters.controls)}
    rows |= {released(name): language_models.model(name, parameters, recipe="released") for name in parameters.released}
    pairs = factor_rows(parameters).items()
    return rows | {row: language_models.model(name, parameters, rotary=rotary) for row, (name, rotary) in pairs}


def tried(parameters: Parameters) -> dict[str, dict[float, list[RunConfig]]]:
    """The runs of the search for each row's learning rate."""
    configs = models(parameters)

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return language_models.run(label, configs[row], seed, replace(parameters, learning_rate=rate))

    return {row: rates.tried(row, parameters, make) for row in configs}


def judged(parameters: Parameters) -> list[tuple[str, int, RunConfig]]:
    """Row, seed and run, rows first; each row at its own learning rate.

    Raises ValueError for a rate of what is no row, and for a seed that is both searched and judged.
    """
    configs, searches = models(parameters), tried(parameters)
    rates.check(parameters, list(configs), parameters.seeds)
    found = []
    for row, seed in grid(configs, parameters.seeds):
        own = replace(parameters, learning_rate=parameters.rates.get(row, parameters.learning_rate))
        search = tuple(run.name for runs in searches[row].values() for run in runs)
        found.append((row, seed, language_models.run(row, configs[row], seed, own, rate_search=search)))
    return found


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed; then those of the look-up tasks."""
    searches = [run for by_rate in tried(parameters).values() for runs in by_rate.values() for run in runs]
    return [*searches, *(run for _, _, run in judged(parameters)), *recall.runs(parameters)]
