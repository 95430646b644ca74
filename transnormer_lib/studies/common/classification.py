"""A classifier's run from a notebook's parameters, and what becomes of a task whose data are not here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData
    from transnormer_lib.training.store import Run, RunStore


def run(
    name: str, model: ModelConfig, data: DataConfig, optimizer: OptimizerConfig, head: Mapping[str, Any], **fields: Any
) -> RunConfig:
    """One training run of a classifier for the task ``data.task_name``: classes and pairs are the task's."""
    from transnormer_lib.data.tasks import task_definition

    task = task_definition(data.task_name)
    return RunConfig(
        name=name,
        model=model,
        data=data,
        optimizer=optimizer,
        head=ClassifierHead(classes=task.classes, pairs=task.pairs and not data.joined, **head),
        **fields,
    )


@dataclass(frozen=True)
class Absent:
    """A task that could not be loaded, or a run that could not be made for want of data, and why, in one line."""

    reason: str


def load(data: DataConfig) -> "TaskData | Absent":
    """The task's data, or why they are not on this machine."""
    from transnormer_lib.data.faults import DataUnavailable
    from transnormer_lib.training.setup import load_task_data

    try:
        return load_task_data(data)
    except DataUnavailable as problem:
        return Absent(str(problem))


def train(config: RunConfig, store: "RunStore") -> "Run | Absent":
    """Train or load the run; its data, or those of the run it starts from, may be absent, a split that is measured at
    the end included.

    Raises ``RunFailed`` where the run that it starts from diverged or stopped: nothing is absent then, and a study
    counts the run among those that lose.
    """
    from transnormer_lib.data.faults import DataUnavailable

    try:
        return store.get(config)
    except DataUnavailable as problem:
        return Absent(str(problem))
