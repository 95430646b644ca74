"""The runs behind Tables 8 to 12: the TransNormer encoders of notebook 05 with one change at a time.

A row is a variant (``transnormer-t1`` or ``-t2``), a variant with a change of :data:`CHANGES`, such as
``transnormer-t2-early-0``, or a control of notebook 05.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import count_parameters, width_for
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import rates
from transnormer_lib.training.config import RunConfig

# The possible changes; some have a number K.
CHANGES: Mapping[str, str] = {
    "early-K": "DiagAttention in the first K layers, NormAttention in the others",
    "reversed": "NormAttention in the first half of the layers, DiagAttention in the second",
    "ffn": "an FFN with GELU, four times as wide as the model, in place of the GLU",
    "ffn-swish": "the same FFN with the GLU's activation, swish",
    "glu-identity": "a GLU without activation, as the released code computes it",
    "block-K": "DiagAttention in blocks of K tokens",
    "alternating": "DiagAttention and NormAttention in alternating layers",
    "alternating-reversed": "NormAttention and DiagAttention in alternating layers",
    "parallel": "both side by side in every layer, and one projection of their concatenated outputs",
    "wide": "TransNormer with its GLU widened until it has as many weights as the parallel model",
}

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "reversed": {"arrangement": "stages-reversed"},
    "ffn": {"feed_forward": "ffn", "activation": "gelu"},
    "ffn-swish": {"feed_forward": "ffn"},
    "glu-identity": {"activation": "identity"},
    "alternating": {"arrangement": "alternating"},
    "alternating-reversed": {"arrangement": "alternating-reversed"},
    "parallel": {"arrangement": "parallel"},
}


@dataclass(frozen=True)
class Parameters(rates.RateSearch, bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained."""

    rows: Mapping[str, tuple[str, ...]]  # variant → changes
    controls: tuple[str, ...]  # encoders of notebook 05 to compare with
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over all seeds


@dataclass(frozen=True)
class Row:
    """A row of the study: a variant with a change, or a control, whose ``variant`` is empty."""

    name: str
    variant: str
    change: str  # "" for the variant itself
    number: int | None = None  # K of the change


def row(name: str) -> Row:
    """The row called ``name``. Raises ValueError for an unknown change."""
    variant = next((variant for variant in VARIANTS if name == variant or name.startswith(f"{variant}-")), "")
    if not variant or name == variant:
        return Row(name, variant, "")
    change = name.removeprefix(f"{variant}-")
    if change in CHANGES and not change.endswith("-K"):
        return Row(name, variant, change)
    numbered = re.fullmatch(r"(.+)-(\d+)", change)
    if numbered is None or f"{numbered[1]}-K" not in CHANGES:
        raise ValueError(f"rows={name!r}: no such change; there are {', '.join(CHANGES)}, with a number for K")
    return Row(name, variant, numbered[1], int(numbered[2]))


def rows(parameters: Parameters) -> list[str]:
    """The variants, each followed by its changes, then the controls. Raises ValueError for an unknown variant."""
    named = []
    for variant, changes in parameters.rows.items():
        if variant not in VARIANTS:
            raise ValueError(f"rows={variant!r}: must be one of {', '.join(VARIANTS)}")
        named += [variant, *(f"{variant}-{change}" for change in changes)]
    return [row(name).name for name in (*named, *parameters.controls)]


def model(name: str, parameters: Parameters) -> ModelConfig:
    """The encoder of a row. Variants without a change and controls are notebook 05's."""
    chosen = row(name)
    if chosen.change == "early":
        return bidirectional.model(chosen.variant, parameters, early=chosen.number)
    if chosen.change == "block" and chosen.number is not None:
        return bidirectional.model(chosen.variant, replace(parameters, block_size=chosen.number))
    if chosen.change == "wide":
        base = bidirectional.model(chosen.variant, parameters)
        as_large = count_parameters(model(f"{chosen.variant}-parallel", parameters))
        return bidirectional.model(chosen.variant, parameters, hidden=width_for(base, as_large))
    return bidirectional.model(chosen.variant or name, parameters, **FIELDS[chosen.change])


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed; the runs differ from notebook 05's only in the model."""
    return rates.Search(parameters, tuple(rows(parameters)), parameters.seeds, bidirectional.make(parameters, model))


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
