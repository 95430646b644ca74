"""The runs that show what an unmentioned choice does to a trained encoder: notebook 05's, with and without it.

Four pairs compare TransNormer T2 with a T2 that has one thing as released: the rotation or the activation (one field
each), ε outside the root (two fields: the model's norms and NormAttention's), or the whole recipe (five fields). The
fifth, ``backbone``, is 1+elu attention in TransNormer's backbone and as a published baseline. Everything else, seeds
included, is notebook 05's, so rows that both notebooks have are trained once.
"""

from dataclasses import dataclass, replace

from transnormer_lib.checks import check_choice
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig

BASE = "transnormer-t2"


@dataclass(frozen=True)
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained."""

    comparisons: tuple[str, ...]  # rotation, activation, epsilon, recipe, backbone: the pairs to train
    seeds: tuple[int, ...]  # one run per row and seed; differences are paired over them


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The encoder of a row: T2 with one choice changed, or a row of notebook 05."""
    base = bidirectional.model(BASE, parameters)
    if row in (f"{BASE}+lrpe", f"{BASE}+none"):
        return bidirectional.model(BASE, parameters, rotary=row.partition("+")[2])
    if row == f"{BASE}+identity":
        return replace(base, activation="identity")
    if row == f"{BASE}+outside":
        options = {name: dict(own) for name, own in base.attention_options.items()}
        options["norm"]["eps_placement"] = "outside"
        return replace(base, norm_eps_placement="outside", attention_options=options)
    return bidirectional.model(row, parameters)


def comparisons(parameters: Parameters) -> dict[str, tuple[str, str]]:
    """By name, our row and the row with the other choice."""

    def rotated(rotary: str) -> str:
        return BASE if rotary == parameters.rotary else f"{BASE}+{rotary}"

    return {
        "rotation": (rotated("none"), rotated("lrpe")),
        "activation": (BASE, f"{BASE}+identity"),
        "epsilon": (BASE, f"{BASE}+outside"),
        "recipe": (BASE, language_models.released(BASE)),
        "backbone": ("linear-matched", "linear"),
    }


def chosen(parameters: Parameters) -> dict[str, tuple[str, str]]:
    """Those of :func:`comparisons` that are trained. Raises ValueError for an unknown one."""
    known = comparisons(parameters)
    for name in parameters.comparisons:
        check_choice("comparisons", name, known)
    return {name: known[name] for name in parameters.comparisons}


def rows(parameters: Parameters) -> list[str]:
    """The rows of the chosen comparisons, each once."""
    return list(dict.fromkeys(row for pair in chosen(parameters).values() for row in pair))


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first; a changed row without a learning rate of its own has the base's."""

    def rate_of(row: str) -> str:
        return row if row in parameters.rates else row.partition("+")[0]

    return [
        bidirectional.pretraining(row, model(row, parameters), seed, rates.own(parameters, rate_of(row)))
        for row, seed in grid(rows(parameters), parameters.seeds)
    ]
