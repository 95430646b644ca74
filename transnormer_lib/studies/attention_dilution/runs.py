"""The runs behind Figure 2 and Table 3: each architecture on the same text with the same steps, over seeds."""

from dataclasses import dataclass

from transnormer_lib.choices import Rotary
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained and measured."""

    architectures: tuple[str, ...]  # Figure 2
    mixtures: tuple[str, ...]  # Table 3: the early layers, then the later ones
    rotary: Rotary  # relative positions of all models
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    sequences: int  # held-out sequences on which attention is measured


def rows(parameters: Parameters) -> list[tuple[str, int]]:
    """(architecture, seed) of every run: Figure 2's, then Table 3's mixtures that are not among them."""
    return grid(dict.fromkeys((*parameters.architectures, *parameters.mixtures)), parameters.seeds)


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run for each of :func:`rows`.

    Decoders are those of notebook 04, encoders those of notebook 05, where the parameters are the same.
    """
    rotary = parameters.rotary
    if parameters.task == "masked":
        return [bidirectional.run(name, seed, parameters, rotary=rotary) for name, seed in rows(parameters)]
    return [
        language_models.run(name, language_models.model(name, parameters, rotary=rotary), seed, parameters)
        for name, seed in rows(parameters)
    ]
