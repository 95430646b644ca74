"""The config of a classifier's training run, and tasks whose data are not on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transnormer_lib.data import hub
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.tasks import TaskData, task_definition
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.setup import load_task_data
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run


def run(
    name: str, model: ModelConfig, data: DataConfig, optimizer: OptimizerConfig, head: Mapping[str, Any], **fields: Any
) -> RunConfig:
    """One training run of a classifier on ``data.task_name``, which decides the head's kind, classes and pairs."""
    task = task_definition(data.task_name)
    return RunConfig(
        name=name,
        model=model,
        data=data,
        optimizer=optimizer,
        head=ClassifierHead(classes=task.classes, pairs=task.pairs and not data.joined, kind=task.kind, **head),
        **fields,
    )


def epoch(task: str, train_examples: Mapping[str, int]) -> int:
    """The number of training examples: that of ``train_examples``, else the published one. Reads no data.

    Raises ValueError where there is neither.
    """
    if task in train_examples:
        return train_examples[task]
    definition = task_definition(task)
    if definition.train_examples:
        return definition.train_examples
    source = definition.source
    if source not in hub.DATASETS:
        raise ValueError(f"train_examples={dict(train_examples)!r}: must say how many of {task!r} are read")
    return hub.DATASETS[source].splits["train"].rows


@dataclass(frozen=True)
class Absent:
    """A task that could not be loaded, or a run that lacked data, with the reason in one line."""

    reason: str


def load(data: DataConfig) -> "TaskData | Absent":
    """The task's data, or why they are not on this machine."""
    try:
        return load_task_data(data)
    except DataUnavailable as problem:
        return Absent(str(problem))


def train(config: RunConfig, store: RunStore) -> "Run | Absent":
    """Train or load the run. ``Absent`` if its data, a split measured at its end, or the data of the run it starts from
    are missing. What is read is the record, so that a run without weights will do.

    Raises ``RunFailed`` if the run it starts from diverged or stopped; a study counts such a run as lost.
    """
    try:
        return store.get(config, weights=False)
    except DataUnavailable as problem:
        return Absent(str(problem))
