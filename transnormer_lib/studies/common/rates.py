"""Each row's own learning rate: tried on seeds that are not judged, from the same few rates for all rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.stored_run import Run

Make = Callable[[str, int, float, str], RunConfig]  # row, seed, learning rate, label → the run


@dataclass(frozen=True)
class RateSearch:
    """The parameters of a search. ``rates`` is its outcome, fixed before a judged seed is trained."""

    rates: Mapping[str, float]  # a row's learning rate; rows without one take learning_rate
    rates_tried: tuple[float, ...]  # those among which it was chosen
    rate_seeds: tuple[int, ...]  # the seeds on which it was chosen; none of them is judged


def check(search: RateSearch, rows: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise ValueError for a rate of what is no row, and for a seed that is both searched and judged."""
    if unknown := sorted(set(search.rates) - set(rows)):
        raise ValueError(f"rates={unknown[0]!r}: must be a row, one of {', '.join(rows)}")
    if judged := sorted(set(seeds) & set(search.rate_seeds)):
        raise ValueError(f"rate_seeds={list(search.rate_seeds)!r}: must not hold {judged[0]}, which is judged")


def tried(row: str, search: RateSearch, make: Make) -> dict[float, list[RunConfig]]:
    """The runs of the row's search, by rate: one per seed of the search."""
    return {
        rate: [make(row, seed, rate, f"{row}-lr{rate:g}") for seed in search.rate_seeds] for rate in search.rates_tried
    }


def lowest(search: Mapping[float, Sequence[Run]]) -> float | None:
    """The rate with the lowest mean loss over its runs; None where none was tried or all diverged."""
    losses = {rate: _mean_loss(runs) for rate, runs in search.items() if runs}
    best = min(losses, key=losses.__getitem__, default=None)
    return None if best is None or not math.isfinite(losses[best]) else best


def _mean_loss(runs: Sequence[Run]) -> float:
    from transnormer_lib.studies.common.language_models import final_bits

    return math.fsum(final_bits(run) for run in runs) / len(runs)
