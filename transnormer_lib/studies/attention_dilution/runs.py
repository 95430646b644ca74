"""The runs behind Figure 2 and Table 3: each architecture on the same text with the same steps, over seeds.

Decoders are those of notebook 04, encoders those of notebook 05, where the parameters are the same.
"""

from dataclasses import dataclass

from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import rates
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(rates.RateSearch, bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained and measured."""

    architectures: tuple[str, ...]  # Figure 2
    others: tuple[str, ...]  # further architectures, to ask whether a row's dilution predicts its loss
    mixtures: tuple[str, ...]  # Table 3: the early layers, then the later ones
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    sequences: int  # held-out sequences on which attention is measured


def rows(parameters: Parameters) -> list[str]:
    """The architectures of Figure 2, the others, then Table 3's mixtures that are not among them."""
    return list(dict.fromkeys((*parameters.architectures, *parameters.others, *parameters.mixtures)))


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""
    return rates.Search(parameters, tuple(rows(parameters)), parameters.seeds, bidirectional.make(parameters))


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
