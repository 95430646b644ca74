"""The runs of Table 3: a bidirectional LSTM and encoders with softmax, LSH and linear attention, trained by CTC.

Only attention differs between the encoders: pre-norm blocks with LayerNorm and GELU, sinusoidal positions, the same
batches in the same order. The speech code of the paper was never released, so these choices are ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from transnormer_lib.checks import check_choice
from transnormer_lib.data import librispeech, spoken_digits
from transnormer_lib.data.speech import SpeechTask
from transnormer_lib.data.speech_tasks import speech_task
from transnormer_lib.models.config import BILSTM, ModelConfig
from transnormer_lib.studies.common import lsh
from transnormer_lib.studies.common.rates import Search
from transnormer_lib.training.config import Band, DataConfig, OptimizerConfig, Precision, Rule, RunConfig, Schedule
from transnormer_lib.training.stored_run import Run

ROWS = (BILSTM, "softmax", "lsh-4", "linear")  # of Table 3, in its order
# The corpora, and what an error is counted in. WSJ, which the paper reads, is licensed.
UNITS = {spoken_digits.NAME: "digit", librispeech.NAME: "character"}
PRINTED_WIDTH = 192  # of six heads of 32; the printed width, 256, cannot be cut into six (Section 4.3)
_MARGIN = 128  # frames: a string's first recording may reach beyond its room, and batches are padded


@dataclass(frozen=True)
class Parameters:
    """The parameters of the notebook."""

    corpus: str  # the recordings
    rows: tuple[str, ...]  # rows of Table 3 to train
    seeds: tuple[int, ...]  # one run per row and seed
    rates: Mapping[str, float]  # a row's own learning rate; rows without one take learning_rate
    rates_tried: tuple[float, ...]  # those among which it was chosen
    rate_seeds: tuple[int, ...]  # the seeds on which it was chosen; none of them is judged
    dim: int  # width of the encoders
    heads: int  # attention heads
    layers: int  # blocks
    lstm_dim: int  # hidden size of one direction
    lstm_layers: int
    chunk_size: int  # of LSH attention
    buckets: int  # of LSH attention; 0: by its own rule
    context: int  # frames on either side that are read with a frame
    length: int  # the most frames of a string
    steps: int  # optimiser steps
    batch_size: int  # strings per step
    accumulate: int  # pieces that a step is cut into, to fit memory
    precision: Precision  # of the matrix products
    learning_rate: float  # highest rate of the schedule
    rule: Rule  # of the encoders' optimiser; the LSTM's is always adamw, which without weight decay is Adam
    schedule: Schedule  # after the warm-up
    patience: int  # of the schedule "plateau", in validations
    warmup: int  # steps of warm-up
    clip_norm: float  # largest norm of the gradient; 0: no limit
    weight_decay: float
    dropout: float  # of embeddings and branches, and between the LSTM's layers
    evaluations: int  # validations, evenly spaced
    utterances: int  # held-out strings on which a model is validated, and tested

    def __post_init__(self) -> None:
        check_choice("corpus", self.corpus, UNITS)
        for row in self.rows:
            check_choice("rows", row, ROWS)


def tasks(parameters: Parameters) -> list[SpeechTask]:
    """The tasks of the corpus, which the seeds take in turn: each task of the digits holds out other speakers."""
    names = spoken_digits.TASKS if parameters.corpus == spoken_digits.NAME else (parameters.corpus,)
    return [speech_task(name, parameters.length) for name in names]


def task_name(parameters: Parameters, seed: int) -> str:
    """The task of a seed."""
    turns = tasks(parameters)
    return turns[seed % len(turns)].name


def model(row: str, parameters: Parameters, max_length: int = 0) -> ModelConfig:
    """The config of a row, for inputs of at most ``max_length`` frames (default: the longest of the runs)."""
    mechanism = {"lsh-4": "reformer"}.get(row, row)
    recurrent = row == BILSTM
    longest = max_length or parameters.length + _MARGIN
    task = tasks(parameters)[0]
    return ModelConfig(
        kind="encoder",
        vocab_size=len(task.symbols),
        features=task.features,
        context=parameters.context,
        max_length=longest,
        dim=parameters.lstm_dim if recurrent else parameters.dim,
        heads=1 if recurrent else parameters.heads,
        attention=(mechanism,) * (parameters.lstm_layers if recurrent else parameters.layers),
        attention_options=(
            {
                "reformer": lsh.options(
                    row, buckets=parameters.buckets or None, chunk_size=parameters.chunk_size, decoder=False
                )
            }
            if mechanism == "reformer"
            else {}
        ),
        positions="none" if recurrent else "sinusoidal",
        dropout=parameters.dropout,
    )


def run(row: str, seed: int, rate: float, label: str, parameters: Parameters) -> RunConfig:
    """One training run, named ``speech-LABEL-seedN``."""
    made = model(row, parameters)
    return RunConfig(
        name=f"speech-{label}-seed{seed}",
        model=made,
        data=DataConfig(
            task="speech",
            task_name=task_name(parameters, seed),
            length=parameters.length,
            batch_size=parameters.batch_size,
        ),
        optimizer=OptimizerConfig(
            learning_rate=rate,
            rule="adamw" if row == BILSTM else parameters.rule,
            schedule=parameters.schedule,
            patience=parameters.patience if parameters.schedule == "plateau" else 0,
            warmup=parameters.warmup,
            clip_norm=parameters.clip_norm,
            weight_decay=parameters.weight_decay,
            betas=(0.9, 0.999),
        ),
        steps=parameters.steps,
        seed=seed,
        # Above, a uniform guess at every frame of a string of one symbol is as good.
        bands=(Band(max(parameters.steps // 10, 1), 0.0, parameters.length * math.log(made.vocab_size)),),
        accumulate=parameters.accumulate,
        precision=parameters.precision,
        evaluations=parameters.evaluations,
        validation_windows=parameters.utterances,
        measured_at_end=("test",),
    )


def search(parameters: Parameters) -> Search:
    """Every row with every seed, each row at its own rate, and the runs that choose it by their error.

    Not by their loss, which on an unknown voice does not fall with the error.
    """

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return run(row, seed, rate, label, parameters)

    return Search(parameters, parameters.rows, parameters.seeds, make, score=final_error, scored="validation error")


def final_error(run: Run) -> float:
    """The error rate on the validation speaker after the last step; infinite where the run diverged."""
    finished = run.record["status"] == "finished"
    return float(run.record["validation"][-1]["error_rate"]) if finished else math.inf


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
