"""Do the gaps change as models grow? Four rows in the same backbone, at several widths, two at a time.

All have the released rotation, with which softmax attention is the stronger one. Text, length, layers and steps stay;
the width grows, and with it the heads' width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transnormer_lib.analysis.seeds import PairedDifference, mean, paired_difference, spread
from transnormer_lib.checks import check_choice
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.values import shown
from transnormer_lib.progress import tracked
from transnormer_lib.studies.autoregressive_lm.factors import architecture_of, row
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.findings import signed
from transnormer_lib.studies.common.language_models import final_bits
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.store import RunStore

ROTATION = "lrpe"
PAIRS = ("diag/norm", "softmax/softmax", "norm/norm", "linear/linear")
ROWS = tuple(row(pair, ROTATION) for pair in PAIRS)
_T2, _SOFTMAX, _NORM, _LINEAR = ROWS

# The loss of each row by width: one value per seed, in the seeds' order.
Losses = Mapping[int, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Lead:
    """The loss of one row minus that of a better one, whose change with the width is a claim."""

    claim: str  # from the smallest to the largest width it falls by no more than the margin
    called: str
    of: str  # the favoured row
    over: str


SOFTMAX_LEAD = Lead("lead-holds-as-width-grows", "T2's lead over softmax attention", _T2, _SOFTMAX)
LEADS = (
    SOFTMAX_LEAD,
    Lead("norm-lead-holds-as-width-grows", "NormAttention's lead over 1+elu attention", _NORM, _LINEAR),
    Lead("locality-lead-holds-as-width-grows", "the lead of blocks in the early layers", _T2, _NORM),
    Lead("t2-lead-holds-as-width-grows", "T2's lead over 1+elu attention", _T2, _LINEAR),
)
AT_A_WIDTH = ("lead-at-smallest-width", "lead-at-largest-width")  # of T2 over softmax attention
CLAIMS = (*AT_A_WIDTH, *(lead.claim for lead in LEADS))


@dataclass(frozen=True)
class GrowthParameters(rates.RateSearch):
    """The parameters of these runs; seeds and the rest of the models are the notebook's."""

    seeds: tuple[int, ...]  # one run per width, row and seed
    growth_dims: tuple[int, ...]  # widths of the models, rising; none: nothing is trained
    growth_rates: Mapping[str, float]  # learning rates by "WIDTH ROW"; at the notebook's width the rows' own count


def searches(parameters: GrowthParameters) -> dict[int, rates.Search]:
    """By width, all rows with every seed; at the notebook's width they are those of the factors.

    Raises ValueError for a rate of what is no width and row.
    """
    known = [f"{dim} {name}" for dim in parameters.growth_dims for name in ROWS]
    for name in parameters.growth_rates:
        check_choice("growth_rates", name, known)
    return {dim: _search(dim, parameters) for dim in parameters.growth_dims}


def runs(parameters: GrowthParameters) -> list[RunConfig]:
    """By width, the searches for the rates, then one run per row and seed."""
    return [run for search in searches(parameters).values() for run in search.runs()]


def _search(dim: int, parameters: GrowthParameters) -> rates.Search:
    size, start = parameters, ""
    if dim != parameters.dim:
        size, start = replace(parameters, dim=dim, rates=rates.under(dim, parameters.growth_rates)), f"dim{dim}-"
    models = {
        row(pair, ROTATION): language_models.model(architecture_of(pair), size, rotary=ROTATION) for pair in PAIRS
    }

    def make(name: str, seed: int, rate: float, label: str) -> RunConfig:
        return language_models.run(start + label, models[name], seed, replace(size, learning_rate=rate))

    return rates.Search(size, ROWS, parameters.seeds, make)


def measure(parameters: GrowthParameters, store: RunStore) -> Losses:
    """Train or load every run."""
    found: dict[int, dict[str, list[float]]] = {}
    for dim, search in tracked(searches(parameters).items(), "width"):
        for name, _, run in search.trained(store, weights=False):
            found.setdefault(dim, {}).setdefault(name, []).append(final_bits(run))
    return found


def leads(losses: Losses, lead: Lead) -> dict[int, list[float]]:
    """By width, how many bits one row is ahead of the other, one value per seed; {} unless both have every width."""
    if not all({lead.of, lead.over} <= set(by_row) for by_row in losses.values()):
        return {}
    return {
        dim: [b - a for a, b in zip(by_row[lead.of], by_row[lead.over], strict=True)] for dim, by_row in losses.items()
    }


def measured(losses: Losses) -> tuple[Lead, ...]:
    """The leads of which both rows were trained at several widths."""
    return tuple(lead for lead in LEADS if len(leads(losses, lead)) > 1)


def table(losses: Losses) -> list[dict[str, Any]]:
    """One line per width: the mean loss of every row, and T2's lead over softmax attention with its range."""
    ahead = leads(losses, SOFTMAX_LEAD)
    return [
        {"width": dim, **{name: mean(found) for name, found in by_row.items()}}
        | ({"T2's lead over softmax": mean(ahead[dim]), "range": spread(ahead[dim], 4)} if ahead else {})
        for dim, by_row in sorted(losses.items())
    ]


@dataclass(frozen=True)
class Sides:
    """Both sides of a claim, the favoured one first, and the losses that have to beat the floor before it is judged."""

    better: Sequence[float]
    worse: Sequence[float]
    higher_is_better: bool
    learned: Mapping[str, Sequence[float]]


def comparisons(losses: Losses) -> dict[str, Sides]:
    """What each claim compares; none without two widths."""
    found = {}
    for lead in measured(losses):
        ahead, small, large = leads(losses, lead), min(losses), max(losses)
        learned = {f"{row}, width {dim}": by[row] for dim, by in losses.items() for row in (lead.of, lead.over)}
        if lead is SOFTMAX_LEAD:
            for claim, dim in zip(AT_A_WIDTH, (small, large), strict=True):
                found[claim] = Sides(losses[dim][lead.of], losses[dim][lead.over], False, learned)
        found[lead.claim] = Sides(ahead[large], ahead[small], True, learned)
    return found


def of_kept(found: Kept) -> Losses:
    """The losses by width that a larger scale kept; {} where it compared no widths."""
    losses: dict[int, dict[str, Sequence[float]]] = {}
    for claim in found.claims:
        if claim["id"] in CLAIMS:
            for name, values in (claim["measured"] or {}).get("learned", {}).items():
                of, _, dim = name.rpartition(", width ")
                losses.setdefault(int(dim), {})[of] = values
    return losses


def lines(losses: Losses, lead: Lead) -> np.ndarray:
    """Lines of least squares through each seed's leads over log2 of the width: slopes and values at 1, (2, seeds)."""
    ahead = leads(losses, lead)
    found: np.ndarray = np.polyfit(np.log2(sorted(ahead)), np.array([ahead[dim] for dim in sorted(ahead)]), 1)
    return found


def per_doubling(losses: Losses, lead: Lead) -> PairedDifference:
    """By how much a lead changes as the width doubles, with its interval over the seeds' lines."""
    slopes = lines(losses, lead)[0].tolist()
    return paired_difference(slopes, [0.0] * len(slopes), higher_is_better=True)


def told(losses: Losses) -> str:
    """Whether each lead grows, stays or shrinks as models grow, in a sentence, and what that does not say."""
    ways = []
    for lead in measured(losses):
        change = per_doubling(losses, lead)
        way = "it grows" if change.low > 0 else "it shrinks" if change.high < 0 else "the interval holds zero"
        size, low, high = (signed(value, 3) for value in (change.mean, change.low, change.high))
        ways.append(f"{lead.called} changes by {size} bits per doubling ({low} to {high}): {way}")
    return (
        f"From width {min(losses)} to {max(losses)}, with a line per seed, {'; '.join(ways)}. "
        f"A line through {len(losses)} widths says nothing beyond them."
    )


def next_decade(found: Kept) -> str:
    """What the rows would cost with ten times the operations of the widest that was kept, on its machine."""
    losses, asked = of_kept(found), found.parameters
    widest = max(losses)
    start = "" if widest == asked["dim"] else f"dim{widest}-"  # as _search names them
    named = {
        language_models.run_name(asked["task"], f"{start}{name}", seed)
        for name in losses[widest]
        for seed in asked["seeds"]
    }
    judged = [run for run in found.runs if run["name"] in named]
    hours = 10 * math.fsum(run["seconds"] for run in judged) / 3600
    flops = 10 * max(run["flops"] for run in judged)
    return (
        f"Ten times the operations of the widest, {shown(float(flops), 1)} a run, would take {hours:.0f} core-hours "
        f"for its {len(losses[widest])} rows."
    )
