"""The runs behind Table 5: encoders fine-tuned on GLUE's tasks, or on stand-ins, and scored as the paper scores them.

Each fine-tuning run starts from an encoder that notebook 05 pre-trained; the store trains that one once for both. Of
the learning rates tried the one with the best validation score counts, as in the paper, so that the score of a row is
the best of several on the very examples it is reported on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from transnormer_lib.checks import check_distinct
from transnormer_lib.models.config import Pooling
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import classification, language_models
from transnormer_lib.studies.common.classification import Absent
from transnormer_lib.studies.common.parameters import Prefix
from transnormer_lib.studies.glue import published
from transnormer_lib.studies.glue.average import COLUMNS
from transnormer_lib.training.config import DataConfig, OptimizerConfig, Precision, RunConfig, Schedule, steps_of

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData
    from transnormer_lib.training.store import Run, RunStore

FROM_SCRATCH = ", from scratch"


@dataclass(frozen=True)
class Parameters(language_models.Rows):
    """The notebook's parameters that decide what is trained."""

    tasks: tuple[str, ...]  # of GLUE, or stand-ins for it
    train_examples: Mapping[str, int]  # training examples of a task; of those not named, all
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


@dataclass(frozen=True)
class Cell:
    """One fine-tuning run's place in the table. ``pretrained``: from an encoder of notebook 05, not from chance."""

    task: str
    row: str
    pretrained: bool
    seed: int
    rate: float

    @property
    def name(self) -> str:
        start = "" if self.pretrained else "-scratch"
        return f"{self.task}-{self.row.replace('+', '-')}{start}-lr{self.rate:g}-seed{self.seed}"


def cells(parameters: Parameters) -> list[Cell]:
    """Every fine-tuning run: tasks first, then rows, those from random weights after the pre-trained ones.

    Raises ValueError where a task, row, rate or seed is named twice, or a row from scratch is no row.
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


def epoch(task: str, parameters: Parameters) -> int:
    """The training examples of an epoch: those asked for, else the published ones. Reads no data.

    Raises ValueError for a task without a published number that ``train_examples`` does not name.
    """
    from transnormer_lib.data import hub
    from transnormer_lib.data.tasks import task_definition

    if task in parameters.train_examples:
        return parameters.train_examples[task]
    source = task_definition(task).source
    if source not in hub.DATASETS:
        raise ValueError(f"train_examples={parameters.train_examples!r}: must say how many of {task!r} are read")
    return hub.DATASETS[source].splits["train"].rows


def data_config(task: str, parameters: Parameters) -> DataConfig:
    """A task in the encoders' tokens."""
    from transnormer_lib.data.tasks import task_definition

    definition = task_definition(task)
    limit = {"train": parameters.train_examples[task]} if task in parameters.train_examples else {}
    if parameters.held_out_examples:
        held_out = {*definition.splits, *definition.aliases} - {"train"}
        limit |= dict.fromkeys(sorted(held_out), parameters.held_out_examples)
    return DataConfig(
        corpus=parameters.encoders.corpus,
        vocabulary=parameters.encoders.vocabulary,
        task="classify",
        length=parameters.encoders.length,
        batch_size=parameters.batch_size,
        task_name=task,
        joined=definition.pairs and parameters.joined,
        limit=limit,
    )


def run(cell: Cell, parameters: Parameters) -> RunConfig:
    """One fine-tuning run. Stand-ins, whose test labels are known, are measured on them too, once, at the end."""
    from transnormer_lib.data.tasks import task_definition

    base = bidirectional.run(cell.row, cell.seed, parameters.encoders)
    data = data_config(cell.task, parameters)
    steps = steps_of(parameters.epochs, epoch(cell.task, parameters), parameters.batch_size)
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


@dataclass(frozen=True)
class Column:
    """One column of scores: a task's first metric, or MNLI's other development set."""

    name: str
    task: str
    metric: str  # as validation results call it

    @property
    def heading(self) -> str:
        return published.heading(self.name) if self.name in COLUMNS else self.name


def columns(tasks: Sequence[str]) -> list[Column]:
    """The columns of these tasks: those of Table 5, where MNLI has two, or one of the name of a stand-in."""
    from transnormer_lib.data.tasks import task_definition

    found = []
    for task in tasks:
        metric = task_definition(task).metrics[0]
        names = {"mnli_m": metric, "mnli_mm": f"{metric}_mismatched"} if task == "mnli" else {task: metric}
        found += [Column(name, task, key) for name, key in names.items()]
    return found


def fine_tuned(row: str) -> str:
    """How tables and figures call a row that was fine-tuned from random weights."""
    return f"{row}{FROM_SCRATCH}"


@dataclass(frozen=True)
class Measured:
    """One fine-tuning run. ``run`` is None where the encoder that it starts from diverged."""

    cell: Cell
    run: "Run | None"

    @property
    def label(self) -> str:
        return self.cell.row if self.cell.pretrained else fine_tuned(self.cell.row)

    @property
    def finished(self) -> bool:
        return self.run is not None and self.run.record["status"] == "finished"

    def score(self, column: Column, of: str = "best") -> float:
        """In points of a hundred: on the validation examples at the ``best`` or the ``last`` evaluation, or ``test``.

        Minus infinity where the run or its encoder diverged; NaN where this machine lacks the split.
        """
        if self.run is None or not self.finished:
            return -math.inf
        results = {"last": self.run.record["validation"][-1], "test": self.run.record["at_end"].get("test", {})}
        result = self.run.validation if of == "best" else results[of]
        return 100.0 * result.get(column.metric, math.nan)


@dataclass(frozen=True)
class Results:
    """Every run that could be made, the tasks' data by name, and why the others could not be had."""

    measured: list[Measured]
    data: "dict[str, TaskData]"
    absent: dict[str, str]

    @property
    def columns(self) -> list[Column]:
        """Of the tasks that were run; without MNLI's second set where this machine lacks it."""
        without = {task for task, data in self.data.items() if "validation_mismatched" in data.absent}
        return [c for c in columns(list(self.data)) if not (c.name == "mnli_mm" and c.task in without)]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(m.label for m in self.measured))


def measure(parameters: Parameters, store: "RunStore") -> Results:
    """Train or load every run of the tasks whose data, and whose encoders' data, are on this machine."""
    from transnormer_lib.training.store import RunFailed

    measured: list[Measured] = []
    data: dict[str, TaskData] = {}
    absent: dict[str, str] = {}
    for task in parameters.tasks:
        loaded = classification.load(data_config(task, parameters))
        if isinstance(loaded, Absent):
            absent[task] = loaded.reason
            continue
        made = []
        for cell in (cell for cell in cells(parameters) if cell.task == task):
            try:
                run_or_absent = classification.train(run(cell, parameters), store)
            except RunFailed:  # the encoder diverged: so there is nothing to fine-tune, and the row loses
                made.append(Measured(cell, None))
                continue
            if isinstance(run_or_absent, Absent):
                absent[task] = run_or_absent.reason
                break
            made.append(Measured(cell, run_or_absent))
        else:
            data[task] = loaded
            measured += made
    return Results(measured, data, absent)
