"""The runs behind Table 5: encoders fine-tuned on GLUE's tasks, or on stand-ins.

Each run starts from an encoder of notebook 05, which the store trains once for both notebooks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from transnormer_lib.checks import check_distinct
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.models.config import Pooling
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import classification, language_models
from transnormer_lib.studies.common.parameters import Prefix
from transnormer_lib.training.config import DataConfig, OptimizerConfig, Precision, RunConfig, Schedule, steps_of


@dataclass(frozen=True)
class Parameters(language_models.Rows):
    """The notebook's parameters that decide what is trained."""

    tasks: tuple[str, ...]  # of GLUE, or stand-ins for it
    train_examples: Mapping[str, int]  # training examples of a task; of those not named, all
    length: int  # tokens of a text of the tasks, longer ones are cut; 0: as many as in the pre-training
    held_out_examples: int  # validation and test examples of a task; 0: all
    from_scratch: tuple[str, ...]  # rows also trained without pre-training
    joined: bool  # a pair of texts as one sequence, as RoBERTa reads it; else two sequences
    pooling: Pooling  # what the head sees: mean over the tokens, or first
    rates: tuple[float, ...]  # learning rates; per task and seed the best one counts
    epochs: float  # how often every training example is read
    evaluations: int  # how often a run is measured; its best result counts
    batch_size: int  # examples per step
    accumulate: int  # pieces that a step is cut into, to fit memory
    precision: Precision  # of the matrix products
    schedule: Schedule  # of the learning rate, after the warm-up
    warmup_share: float  # share of the steps in which the rate rises
    clip_norm: float  # largest norm of the gradient; 0: no limit
    dropout: float  # while fine-tuning
    encoders: Annotated[bidirectional.EncoderParameters, Prefix("base_")]  # those of notebook 05


def from_scratch(row: str) -> str:
    """The name of a row that is trained without pre-training, in tables and figures."""
    return f"{row}, from scratch"


@dataclass(frozen=True)
class Cell:
    """One run's place in the grid. ``pretrained``: from an encoder of notebook 05, not from random weights."""

    task: str
    row: str
    pretrained: bool
    seed: int
    rate: float

    @property
    def label(self) -> str:
        """The row's name in tables and figures."""
        return self.row if self.pretrained else from_scratch(self.row)

    @property
    def name(self) -> str:
        """The name of the run, which is part of its identity."""
        start = "" if self.pretrained else "-scratch"
        return f"{self.task}-{self.row.replace('+', '-')}{start}-lr{self.rate:g}-seed{self.seed}"


def cells(parameters: Parameters) -> list[Cell]:
    """Every fine-tuning run, tasks first, then rows: the pre-trained ones, then those from scratch.

    Raises ValueError for a task, row, rate or seed named twice, and for a row from scratch that is no row.
    """
    rows, rates = parameters.rows(), parameters.rates
    for name in ("tasks", "rates", "from_scratch"):
        check_distinct(name, getattr(parameters, name))
    for row in parameters.from_scratch:
        if row not in rows:
            raise ValueError(f"from_scratch: {row!r}: must be one of {', '.join(rows)}")
    starts = [(row, True) for row in rows] + [(row, False) for row in parameters.from_scratch]
    seeds = dict.fromkeys(seed for _, seed in language_models.grid(rows, parameters.seeds))
    return [
        Cell(task, row, pretrained, seed, rate)
        for task in parameters.tasks
        for row, pretrained in starts
        for seed in seeds
        for rate in rates
    ]


def data_config(task: str, parameters: Parameters) -> DataConfig:
    """A task in the encoders' tokens."""
    definition = task_definition(task)
    limit = {"train": parameters.train_examples[task]} if task in parameters.train_examples else {}
    if parameters.held_out_examples:
        held_out = {*definition.splits, *definition.aliases} - {"train"}
        limit |= dict.fromkeys(sorted(held_out), parameters.held_out_examples)
    return DataConfig(
        corpus=parameters.encoders.corpus,
        vocabulary=parameters.encoders.vocabulary,
        task="classify",
        length=parameters.length or parameters.encoders.length,
        batch_size=parameters.batch_size,
        task_name=task,
        joined=definition.pairs and parameters.joined,
        limit=limit,
    )


def run(cell: Cell, parameters: Parameters) -> RunConfig:
    """One fine-tuning run. Tasks with known test labels, the stand-ins, are also measured on them once, at the end."""
    base = bidirectional.run(cell.row, cell.seed, parameters.encoders)
    data = data_config(cell.task, parameters)
    steps = steps_of(
        parameters.epochs, classification.epoch(cell.task, parameters.train_examples), parameters.batch_size
    )
    return classification.run(
        cell.name,
        replace(base.model, dropout=parameters.dropout),
        data,
        OptimizerConfig(
            learning_rate=cell.rate,
            schedule=parameters.schedule,
            warmup=round(steps * parameters.warmup_share),
            eps=1e-6,
            clip_norm=parameters.clip_norm,
        ),
        {"pooling": parameters.pooling},
        steps=steps,
        seed=cell.seed,
        start_from=base if cell.pretrained else None,
        evaluations=parameters.evaluations,
        keep="best",
        measured_at_end=("test",) if "test" in task_definition(cell.task).splits else (),
        accumulate=parameters.accumulate,
        precision=parameters.precision,
    )


def runs(parameters: Parameters) -> list[RunConfig]:
    """The encoders' pre-training, then every fine-tuning run. Reads no data."""
    base = parameters.encoders
    grid = language_models.grid(parameters.rows(), parameters.seeds)
    encoders = [bidirectional.run(row, seed, base) for row, seed in grid]
    return encoders + [run(cell, parameters) for cell in cells(parameters)]
