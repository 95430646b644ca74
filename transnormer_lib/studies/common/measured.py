"""One run of a study with what was measured on it, and the runs of a study by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from transnormer_lib.training.stored_run import Run


@dataclass(frozen=True)
class Measured:
    """One run. ``validation`` is its loss in bits per token (inf where it diverged) or its score (-inf).

    A study that measures more subclasses it.
    """

    row: str  # its model, by the study's name for it
    seed: int
    validation: float
    run: Run


def by_row(measured: Sequence[Measured], field: str = "validation") -> dict[str, list[Any]]:
    """A field of every row, one value per seed in the order of the seeds, which paired orderings need.

    A dotted ``field`` reads a field of a field.
    """
    value = attrgetter(field)
    rows: dict[str, list[Any]] = {m.row: [] for m in measured}
    for m in sorted(measured, key=lambda m: m.seed):
        rows[m.row].append(value(m))
    return rows
