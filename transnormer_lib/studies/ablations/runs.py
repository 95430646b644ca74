"""The runs behind Tables 8 to 12: TransNormer's encoder of notebook 05 with one thing changed at a time.

A row is a variant, ``transnormer-t1`` or ``-t2``, alone or followed by a change (:data:`CHANGES`), such as
``transnormer-t2-early-0``; or a control of notebook 05.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    pass

# What may be changed, with the number K where there is one.
CHANGES: Mapping[str, str] = {
    "early-K": "DiagAttention in the first K layers, NormAttention in the others",
    "reversed": "NormAttention in the first half of the layers, DiagAttention in the second",
    "ffn": "an FFN with GELU, four times as wide as the model, in place of the GLU",
    "ffn-swish": "the same FFN with the GLU's activation, swish",
    "glu-identity": "a GLU without activation, as the released code computes it",
    "block-K": "DiagAttention in blocks of K tokens",
    "alternating": "DiagAttention and NormAttention in turns, layer by layer",
    "alternating-reversed": "NormAttention and DiagAttention in turns, layer by layer",
    "parallel": "both in every layer, side by side, and one projection of their concatenated outputs",
    "wide": "TransNormer with its GLU so much wider that it has the weights of the parallel model",
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
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained."""

    rows: Mapping[str, tuple[str, ...]]  # variant → changes
    controls: tuple[str, ...]  # encoders of notebook 05 beside them
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them


@dataclass(frozen=True)
class Row:
    """A row of the study: a variant with a change, or (``variant`` empty) a control."""

    name: str
    variant: str
    change: str  # "" for the variant itself
    number: int | None = None  # K of the change


def row(name: str) -> Row:
    """The row called ``name``. Raises ValueError for a change that there is not."""
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
    """The variants, each followed by its changes, then the controls. Raises ValueError for an unknown one."""
    named = []
    for variant, changes in parameters.rows.items():
        if variant not in VARIANTS:
            raise ValueError(f"rows={variant!r}: must be one of {', '.join(VARIANTS)}")
        named += [variant, *(f"{variant}-{change}" for change in changes)]
    return [row(name).name for name in (*named, *parameters.controls)]


def model(name: str, parameters: Parameters) -> ModelConfig:
    """The encoder of a row; that of a variant alone, or of a control, is notebook 05's."""
    chosen = row(name)
    if chosen.change == "early":
        return bidirectional.model(chosen.variant, parameters, early=chosen.number)
    if chosen.change == "block" and chosen.number is not None:
        return bidirectional.model(chosen.variant, replace(parameters, block_size=chosen.number))
    if chosen.change == "wide":
        from transnormer_lib.models.language_model import count_parameters, width_for

        base = bidirectional.model(chosen.variant, parameters)
        as_large = count_parameters(model(f"{chosen.variant}-parallel", parameters))
        return bidirectional.model(chosen.variant, parameters, hidden=width_for(base, as_large))
    return bidirectional.model(chosen.variant or name, parameters, **FIELDS[chosen.change])


def run(name: str, seed: int, parameters: Parameters) -> RunConfig:
    """The pre-training of one row with one seed, in all but the model that of notebook 05."""
    waypoints = language_models.waypoints(parameters.waypoints, parameters.steps)
    return language_models.run(name, model(name, parameters), seed, parameters, waypoints=waypoints)


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    return [run(name, seed, parameters) for name, seed in grid(rows(parameters), parameters.seeds)]
