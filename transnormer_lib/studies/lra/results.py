"""What the runs on the Long Range Arena say: scores beside shortcuts, averages, tables, sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.analysis import shortcuts as analysis
from transnormer_lib.choices import VARIANTS
from transnormer_lib.data import listops
from transnormer_lib.data.tasks import TaskData
from transnormer_lib.progress import tracked
from transnormer_lib.studies.common import classification, scores
from transnormer_lib.studies.common.classification import Absent
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.lra import recipes
from transnormer_lib.studies.lra.published import PUBLISHED, TASKS
from transnormer_lib.studies.lra.runs import Parameters, data, places, recipe_parameters, run, runs, setting
from transnormer_lib.training.setup import parameters_of
from transnormer_lib.training.store import RunStore


@dataclass(frozen=True)
class ScoredRun(Measured):
    """One run; ``validation`` and ``test`` are accuracies in percent, minus infinity where it diverged."""

    task: str
    test: float


@dataclass(frozen=True)
class Results:
    """What was measured, and the tasks that could not be, each with its reason."""

    measured: tuple[ScoredRun, ...]
    absent: Mapping[str, str]

    def tasks(self) -> list[str]:
        """The tasks with runs."""
        return list(dict.fromkeys(m.task for m in self.measured))

    def scores(self, task: str) -> dict[str, list[float]]:
        """Test accuracies in percent by row, one per seed in the order of the seeds."""
        return by_row([m for m in self.measured if m.task == task], "test")

    def panels(self) -> dict[str, dict[str, list[float]]]:
        """:meth:`scores` of every task."""
        return {task: self.scores(task) for task in self.tasks()}

    def average(self, row: str) -> list[float] | None:
        """The mean over the five tasks by seed, in percent; None unless the row was measured on all of them."""
        columns = [self.scores(task).get(row) for task in TASKS]
        if any(column is None for column in columns):
            return None
        return [math.fsum(scores) / len(TASKS) for scores in zip(*(c for c in columns if c is not None), strict=True)]

    def why_not(self, task: str, missing: Sequence[str] = ()) -> str:
        """Why a task, or rows on it, were not measured."""
        if task in self.absent:
            return self.absent[task]
        of = f" of {' and '.join(missing)}" if task in self.tasks() else ""
        return f"the parameters ask for no run{of} on {task}"

    def why_no_average(self, row: str) -> str:
        """Why a row has no average over the five tasks."""
        lacking = [task for task in TASKS if row not in self.scores(task)]
        return f"the average takes all five tasks, and {row} was not measured on {', '.join(lacking)}"


def load(parameters: Parameters) -> tuple[dict[str, TaskData], dict[str, str]]:
    """The tasks' data, and the reasons why the other tasks are not on this machine."""
    present, absent = {}, {}
    for task in parameters.tasks:
        found = classification.load(data(task, parameters))
        if isinstance(found, Absent):
            absent[task] = found.reason
        elif "test" not in found.splits:
            absent[task] = found.absent["test"]
        else:
            present[task] = found
    return present, absent


def measure(parameters: Parameters, store: RunStore) -> Results:
    """Train or load every run of the tasks whose data are on this machine."""
    _, absent = load(parameters)
    measured = []
    every = zip(places(parameters), runs(parameters), strict=True)
    for (task, row, seed), config in tracked([pair for pair in every if pair[0][0] not in absent], "run"):
        made = store.get(config, weights=False)
        done = made.record["status"] == "finished"
        validation = 100.0 * made.validation["accuracy"] if done else -math.inf
        test = 100.0 * made.record["at_end"]["test"]["accuracy"] if done else -math.inf
        measured.append(ScoredRun(row, seed, validation, made, task, test))
    return Results(tuple(measured), absent)


def shortcuts(task: TaskData) -> dict[str, float]:
    """Test accuracy in percent of chance and of models that do without what the task is about, by name."""
    simple = analysis.shortcuts(task, "test")
    found = {
        "chance": 1.0 / task.classes,
        "most common": simple.most_common["accuracy"],
        "bag of tokens": simple.bag_of_tokens["accuracy"],
    }
    if task.name in ("listops", "trees-512"):
        rules = listops.shortcuts(task.splits["train"], task.splits["test"])
        found |= {"root operator": rules.root_operator, "root operator and digits": rules.root_and_digits}
    return {name: 100.0 * accuracy for name, accuracy in found.items()}


def task_table(present: Mapping[str, TaskData]) -> list[dict[str, Any]]:
    """One line per task: what it is and how much of it is used."""
    lines = []
    for task, found in present.items():
        counts = {split: len(found.splits[split]) for split in ("train", "validation", "test")}
        kind = "stand-in" if found.stand_in else "Long Range Arena"
        line = {"task": task, "what": found.title, "is": kind, "longest": found.length, "classes": found.classes}
        lines.append(line | counts)
    return lines


def shortcut_table(short: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One line per task: the shortcuts' accuracies in percent, one decimal."""
    names = list(dict.fromkeys(name for of_task in short.values() for name in of_task))
    rounded = {task: {name: round(value, 1) for name, value in of_task.items()} for task, of_task in short.items()}
    return [{"task": task, **{name: of_task.get(name) for name in names}} for task, of_task in rounded.items()]


def settings_table(parameters: Parameters) -> list[dict[str, Any]]:
    """One line per task: its setting, and the recipe's own number of steps."""
    lines = []
    for task in parameters.tasks:
        chosen = setting(task, parameters)
        line = {"task": task, "length": chosen.length, "layers × width": f"{chosen.layers} × {chosen.dim}"}
        line |= {"batch": chosen.batch_size, "learning rate": chosen.learning_rate, "steps": chosen.steps}
        lines.append(line | {"recipe's steps": recipes.setting(task, parameters.recipe, {}).steps})
    return lines


def score_table(results: Results, short: Mapping[str, scores.Floors]) -> list[dict[str, Any]]:
    """One line per row and shortcut: mean and range of the test accuracy per task, and the row's weights."""
    weights = {m.row: m.run.record["parameters"] for m in reversed(results.measured)}
    return scores.table(results.panels(), short, {"parameters": weights})


def parameter_counts(task: str, recipe: recipes.Recipe) -> dict[str, int]:
    """The number of weights of every row of Table 6 on a task in a recipe, counted without building the models."""
    whole = recipe_parameters(recipe, {})
    return {row: parameters_of(run(task, row, 0, whole)) for row in PUBLISHED}


def conclusions(results: Results, short: Mapping[str, scores.Floors]) -> list[str]:
    """What the scores say, in sentences with their figures; nothing about what was not run."""
    others = ("vanilla", "vanilla-matched", "linear-matched", "linear", "cosformer")
    pairs = [(row, other) for row in VARIANTS for other in others]
    panels = results.panels().items()
    lines = [line for task, values in panels for line in scores.sentences(task, values, short[task], pairs)]
    return lines + [f"{task}: not run; {reason}" for task, reason in results.absent.items()]
