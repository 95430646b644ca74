"""What the copy task's runs say: losses and accuracies by row, curves, how smooth they are, and the floor."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from transnormer_lib.analysis import seeds as over_seeds
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.studies.common.language_models import Floor, bits_of
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.transformers_are_rnns import runs
from transnormer_lib.training.store import RunStore


def measure(parameters: runs.CopyParameters, store: RunStore) -> list[Measured]:
    """Train or load every judged run."""
    found = runs.search(parameters).trained(store, weights=False)
    return [Measured(row, seed, bits_of(run.record), run) for row, seed, run in found]


def floor(task: ContextTask, sequences: int = 4000) -> Floor:
    """What a model reaches that knows how often each symbol is a target before and after the separator, and no more.

    Counted on training sequences and measured on the validation split.
    """
    counts = _targets_by_half(task.draw(sequences, np.random.default_rng(0)), task.vocab_size)
    shares = (counts + 1e-9) / (counts + 1e-9).sum(1, keepdims=True)
    (batch,) = task.held_out("validation", sequences, sequences)
    seen = _targets_by_half(batch, task.vocab_size)
    return Floor("frequencies of the symbols", float(-(seen * np.log2(shares)).sum() / seen.sum()))


def _targets_by_half(batch: Mapping[str, Any], vocab_size: int) -> Any:
    """How often each symbol is a target before the separator has been read, and after: [2, V]."""
    tokens, targets = batch["input_ids"].numpy(), batch["targets"].numpy()
    after, asked = (tokens == 0).cumsum(1) > 0, targets != IGNORE
    return np.stack(
        [np.bincount(targets[asked & half], minlength=vocab_size).astype(float) for half in (~after, after)]
    )


def table(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One line per row: mean loss with its range, right answers, the roughness of its curves; lowest loss first."""
    rough, bits = roughness(measured), by_row(measured)
    right: dict[str, list[float]] = {}
    for m in measured:
        finished = m.run.record["status"] == "finished"
        right.setdefault(m.row, []).append(m.run.record["validation"][-1]["accuracy"] if finished else 0.0)
    return [
        {
            "row": row,
            "loss (bits)": over_seeds.mean(bits[row]),
            "range": over_seeds.spread(bits[row], 3),
            "right": over_seeds.mean(right[row]),
            "roughness (bits)": over_seeds.mean(rough[row]),
        }
        for row in sorted(bits, key=lambda row: over_seeds.mean(bits[row]))
    ]


def roughness(measured: Sequence[Measured]) -> dict[str, list[float]]:
    """How far a run's validation loss rises on its way down: the sum of its rises, in bits; zero for a smooth curve."""
    found: dict[str, list[float]] = {}
    for m in measured:
        values = [point["bits_per_token"] for point in m.run.record["validation"]]
        rises = math.fsum(max(b - a, 0.0) for a, b in pairwise(values))
        found.setdefault(m.row, []).append(rises if m.run.record["status"] == "finished" else math.inf)
    return found
