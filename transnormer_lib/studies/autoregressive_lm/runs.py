"""The runs behind Table 4: the published rows, the matched controls, both as released, the pairs of the two factors.

Those of the look-up tasks and of other widths follow them.
"""

from dataclasses import dataclass, replace

from transnormer_lib.checks import check_count
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.studies.autoregressive_lm import growth, recall
from transnormer_lib.studies.autoregressive_lm.factors import rows as factor_rows
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import released
from transnormer_lib.training.config import RunConfig

_MOST_WRITTEN = 10_000  # more is never read


@dataclass(frozen=True)
class Parameters(recall.RecallParameters, growth.GrowthParameters):
    """The notebook's parameters that decide what is trained, measured and written."""

    prompt_count: int  # places of the held-out text that are continued
    prompt_tokens: int  # tokens of each prompt
    written_tokens: int  # tokens that each model writes
    temperature: float  # divides the logits
    top_p: float  # the total probability of the tokens that are drawn

    def __post_init__(self) -> None:
        for name in ("prompt_count", "prompt_tokens", "written_tokens"):
            check_count(name, getattr(self, name), most=_MOST_WRITTEN)
        Sampling(self.temperature, top_p=self.top_p)  # refuses what it cannot use


def models(parameters: Parameters) -> dict[str, ModelConfig]:
    """The rows: published architectures and matched controls in the ``paper`` recipe, those as released, the pairs."""
    rows = {name: language_models.model(name, parameters) for name in (*parameters.architectures, *parameters.controls)}
    rows |= {released(name): language_models.model(name, parameters, recipe="released") for name in parameters.released}
    pairs = factor_rows(parameters).items()
    return rows | {row: language_models.model(name, parameters, rotary=rotary) for row, (name, rotary) in pairs}


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""
    configs = models(parameters)

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return language_models.run(label, configs[row], seed, replace(parameters, learning_rate=rate))

    return rates.Search(parameters, tuple(configs), parameters.seeds, make)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, one run per row and seed, then the look-up tasks and the other widths."""
    own = search(parameters).runs()
    names = {run.name for run in own}  # one of growth's widths is the notebook's own
    return [*own, *recall.runs(parameters), *(run for run in growth.runs(parameters) if run.name not in names)]
