"""One run of a study with what was measured on it, and the runs of a study by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transnormer_lib.training.store import Run


@dataclass(frozen=True)
class Measured:
    """One run. ``validation`` is its loss in bits per token (inf where it diverged) or its score (-inf).

    A study that measures more subclasses it.
    """

    row: str  # its model, by the study's name for it
    seed: int
    validation: float
    run: "Run"


def by_row(measured: Sequence[Measured], field: str = "validation") -> dict[str, list[float]]:
    """A value of every row, one number per seed in the order of the seeds: what a paired ordering needs."""
    rows: dict[str, list[float]] = {}
    for m in sorted(measured, key=lambda m: m.seed):
        rows.setdefault(m.row, []).append(getattr(m, field))
    return {row: rows[row] for row in dict.fromkeys(m.row for m in measured)}
