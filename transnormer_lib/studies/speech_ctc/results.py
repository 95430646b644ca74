"""What the runs say: error rates, curves, transcripts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from transnormer_lib.analysis import seeds as over_seeds
from transnormer_lib.data.speech import SpeechTask, symbols_of
from transnormer_lib.ledger.values import shown
from transnormer_lib.models.transcriber import greedy
from transnormer_lib.studies.common.measured import Measured
from transnormer_lib.studies.common.row_losses import untrained
from transnormer_lib.studies.speech_ctc import decoding
from transnormer_lib.studies.speech_ctc.published import PRINTED, table_3
from transnormer_lib.studies.speech_ctc.runs import Parameters, search
from transnormer_lib.training.metrics import error_rate
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

# By claim, the two rows, the favoured one first.
ORDERINGS: Mapping[str, tuple[str, str]] = {
    "speech-softmax-over-linear": ("softmax", "linear"),
    "speech-softmax-over-lsh": ("softmax", "lsh-4"),
    "speech-softmax-over-bilstm": ("softmax", "bilstm"),
    "speech-linear-over-lsh": ("linear", "lsh-4"),
    "speech-linear-over-bilstm": ("linear", "bilstm"),
    "speech-lsh-over-bilstm": ("lsh-4", "bilstm"),
}


@dataclass(frozen=True)
class Transcribed(Measured):
    """One run. ``validation`` and ``test`` are error rates; infinite where the run diverged."""

    test: float
    area: float  # mean error rate over all validations: lower means learned earlier


def measure(parameters: Parameters, store: RunStore) -> list[Transcribed]:
    """Train or load every judged run."""
    return [_measured(*made) for made in search(parameters).trained(store)]


def _measured(row: str, seed: int, run: Run) -> Transcribed:
    if run.record["status"] != "finished":
        return Transcribed(row, seed, math.inf, run, math.inf, math.inf)
    rates = [point["error_rate"] for point in run.record["validation"]]
    return Transcribed(
        row, seed, rates[-1], run, run.record["at_end"]["test"]["error_rate"], math.fsum(rates) / len(rates)
    )


def table(measured: Sequence[Transcribed], parameters: Parameters) -> list[dict[str, Any]]:
    """One line per row: its error rates in percent, its size and its rate."""
    lines = []
    for row in dict.fromkeys(m.row for m in measured):
        mine = [m for m in measured if m.row == row]
        test = [100 * m.test for m in mine]
        lines.append(
            {
                "row": PRINTED[row],
                "parameters": mine[0].run.parameters,
                "rate": shown(mine[0].run.config.optimizer.learning_rate),
                "validation": over_seeds.mean([100 * m.validation for m in mine]),
                "test": over_seeds.mean(test),
                "range": over_seeds.spread(test, 1),
                "Table 3": table_3(row, "per"),
            }
        )
    return lines


def curves(measured: Sequence[Transcribed]) -> pd.DataFrame:
    """Validation error at every validation as a tidy frame: row, seed, step, error in percent."""
    return pd.DataFrame(
        [
            {"row": m.row, "seed": m.seed, "step": point["step"], "error": 100 * point["error_rate"]}
            for m in measured
            for point in m.run.record["validation"]
        ],
        columns=["row", "seed", "step", "error"],
    )


def fall(learning: pd.DataFrame) -> str:
    """The mean error rate of each row at the first and the last validation; ``learning`` as :func:`curves` makes it."""
    means = learning.groupby(["row", "step"], sort=False).error.mean()
    said = [f"{row} {of.iloc[0]:.0f}% to {of.iloc[-1]:.0f}%" for row, of in means.groupby(level="row", sort=False)]
    return f"From the first to the last validation: {', '.join(said)}."


def missing(rows: Sequence[str], parameters: Parameters, scale: str) -> str:
    """Why a comparison of ``rows`` has no runs; "" where it has."""
    lacking = [row for row in rows if row not in parameters.rows]
    return untrained(lacking, scale) if lacking else ""


def transcripts(run: Run, task: SpeechTask, count: int) -> list[dict[str, str]]:
    """What was said and what the model writes, for the first strings of the test."""
    (batch,) = task.held_out("test", count, count)
    mask = batch["key_padding_mask"]
    written = greedy(run.model()(batch["frames"], mask).detach(), mask)
    texts = [
        ["".join(task.symbols[one] for one in string) for string in side]
        for side in (symbols_of(batch["targets"]), written)
    ]
    return [{"said": said, "written": found} for said, found in zip(*texts, strict=True)]


@torch.no_grad()
def both_decoders(run: Run, task: SpeechTask, count: int) -> tuple[float, float]:
    """The error rates of a model's greedy transcripts and of a beam search's, on ``count`` strings of the test.

    Raises DataUnavailable if the package for beam search is not installed.
    """
    (batch,) = task.held_out("test", count, count)
    mask, wanted = batch["key_padding_mask"], symbols_of(batch["targets"])
    logits_BNV = run.model()(batch["frames"], mask)
    beams = [decoding.beam(string[~hidden]) for string, hidden in zip(logits_BNV, mask, strict=True)]
    return error_rate(greedy(logits_BNV, mask), wanted), error_rate(beams, wanted)
