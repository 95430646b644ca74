"""Does the gap to softmax attention change as models grow? Both in the same backbone, at several widths.

Both have the released rotation, with which softmax attention is the stronger one. Text, length, layers and steps stay;
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
from transnormer_lib.studies.autoregressive_lm.factors import architecture_of, row
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.studies.common.language_models import final_bits
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.store import RunStore

ROTATION = "lrpe"
PAIRS = ("diag/norm", "softmax/softmax")
ROWS = tuple(row(pair, ROTATION) for pair in PAIRS)
CLAIMS = ("lead-at-smallest-width", "lead-at-largest-width", "lead-holds-as-width-grows")

# The loss of each row by width: one value per seed, in the seeds' order.
Losses = Mapping[int, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class GrowthParameters(rates.RateSearch):
    """The parameters of these runs; seeds and the rest of the models are the notebook's."""

    seeds: tuple[int, ...]  # one run per width, row and seed
    growth_dims: tuple[int, ...]  # widths of the models, rising; none: nothing is trained
    growth_rates: Mapping[str, float]  # learning rates by "WIDTH ROW"; at the notebook's width the rows' own count


def searches(parameters: GrowthParameters) -> dict[int, rates.Search]:
    """By width, both rows with every seed; at the notebook's width they are those of the factors.

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
    for dim, search in searches(parameters).items():
        for name, _, config in search.judged():
            found.setdefault(dim, {}).setdefault(name, []).append(final_bits(store.get(config, weights=False)))
    return found


def leads(losses: Losses) -> dict[int, list[float]]:
    """By width, how many bits T2 is ahead of softmax attention, one value per seed."""
    ours, softmax = ROWS
    return {dim: [b - a for a, b in zip(by_row[ours], by_row[softmax], strict=True)] for dim, by_row in losses.items()}


def table(losses: Losses) -> list[dict[str, Any]]:
    """One line per width: the mean loss of both rows and T2's lead with its range."""
    ahead = leads(losses)
    return [
        {"width": dim, **{name: mean(found) for name, found in by_row.items()}}
        | {"T2's lead": mean(ahead[dim]), "range": spread(ahead[dim], 4)}
        for dim, by_row in sorted(losses.items())
    ]


def comparisons(losses: Losses) -> dict[str, tuple[Sequence[float], Sequence[float], bool]]:
    """Both sides, the favoured one first, and whether higher is better, by claim; none without two widths."""
    if len(losses) < 2:
        return {}
    small, large = min(losses), max(losses)
    ours, softmax = ROWS
    sides = {
        f"lead-at-{which}-width": (losses[dim][ours], losses[dim][softmax], False)
        for which, dim in (("smallest", small), ("largest", large))
    }
    ahead = leads(losses)
    return sides | {"lead-holds-as-width-grows": (ahead[large], ahead[small], True)}


def of_kept(found: Kept) -> Losses:
    """The losses by width that a larger scale kept; {} where it compared no widths."""
    claim = next((claim for claim in found.claims if claim["id"] == CLAIMS[-1]), None)
    measured = claim["measured"] if claim else None
    losses: dict[int, dict[str, Sequence[float]]] = {}
    for name, values in (measured or {}).get("learned", {}).items():
        of, _, dim = name.rpartition(", width ")
        losses.setdefault(int(dim), {})[of] = values
    return losses


def lines(losses: Losses) -> np.ndarray:
    """Lines of least squares through each seed's leads over log2 of the width: slopes and values at 1, (2, seeds)."""
    ahead = leads(losses)
    found: np.ndarray = np.polyfit(np.log2(sorted(ahead)), np.array([ahead[dim] for dim in sorted(ahead)]), 1)
    return found


def per_doubling(losses: Losses) -> PairedDifference:
    """By how much T2's lead changes as the width doubles, with its interval over the seeds' lines."""
    slopes = lines(losses)[0].tolist()
    return paired_difference(slopes, [0.0] * len(slopes), higher_is_better=True)


def told(losses: Losses) -> str:
    """Whether the lead grows, stays or shrinks as models grow, in two sentences."""
    change = per_doubling(losses)
    way = "grows" if change.low > 0 else "shrinks" if change.high < 0 else "does not change beyond its interval"
    size, low, high = (shown(value, 2) for value in (change.mean, change.low, change.high))
    small, large = min(losses), max(losses)
    return (
        f"From width {small} to {large} T2's lead over softmax attention {way}: by {size} bits per doubling ({low} to "
        f"{high}, a line per seed). A line through {len(losses)} widths says nothing beyond them."
    )


def next_decade(found: Kept) -> str:
    """What both rows would cost with ten times the operations of the widest that was kept, on its machine."""
    widest, asked = max(of_kept(found)), found.parameters
    start = "" if widest == asked["dim"] else f"dim{widest}-"  # as _search names them
    named = {
        language_models.run_name(asked["task"], f"{start}{name}", seed) for name in ROWS for seed in asked["seeds"]
    }
    judged = [run for run in found.runs if run["name"] in named]
    hours = 10 * math.fsum(run["seconds"] for run in judged) / 3600
    flops = 10 * max(run["flops"] for run in judged)
    return (
        f"Ten times the operations of the widest, {flops:.0e} a run, would take {hours:.0f} core-hours for both rows."
    )
