"""The runs behind Table 6: encoders on the tasks of the Long Range Arena, and on stand-ins under their own names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transnormer_lib.analysis import seeds as paired
from transnormer_lib.papers import tables
from transnormer_lib.studies.common import classification, row_losses
from transnormer_lib.studies.common.classification import Absent
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.studies.lra import recipes as arena_recipes
from transnormer_lib.studies.lra.recipes import Recipe, Setting
from transnormer_lib.training.config import DataConfig, EvaluationPart, OptimizerConfig, Precision, RunConfig

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData
    from transnormer_lib.training.store import Run, RunStore

# Rows of Table 6 by our names.
PUBLISHED = {
    "vanilla": "Transformer",
    "kernelized": "Kernelized Attention",
    "nystromformer": "Nystromformer",
    "linformer": "Linformer",
    "informer": "Informer",
    "performer": "Performer",
    "reformer": "Reformer",
    "bigbird": "BigBird",
    "skyformer": "Skyformer",
    "transformer-ls": "LS",
    "cosformer": "cosFormer",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}
OURS = ("transnormer-t1", "transnormer-t2")

# The tasks of the Long Range Arena: columns of Table 6.
TASKS = ("text", "listops", "retrieval", "pathfinder", "image")


@dataclass(frozen=True)
class Parameters:
    """The notebook's parameters that decide what is trained."""

    recipe: Recipe  # paper: Appendix E with the harness that it names; released: the released scripts
    tasks: tuple[str, ...]  # of the Long Range Arena, and stand-ins
    architectures: tuple[str, ...]  # rows of Table 6, and 1+elu
    controls: tuple[str, ...]  # the baselines' attention in TransNormer's backbone recipe
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    settings: Mapping[str, Mapping[str, int | float | str]]  # per task, what differs from the recipe
    precision: Precision  # of the matrix products
    evaluations: int  # how often validation is measured; the best weights are kept
    evaluation_examples: int  # examples of each evaluation; 0: all
    evaluation_part: EvaluationPart  # moving: other examples at each evaluation, as in Skyformer's harness


def recipe_parameters(recipe: Recipe, settings: Mapping[str, Mapping[str, int | float | str]]) -> Parameters:
    """Parameters that ask for no run: what a single model or run of the recipe is built from."""
    return Parameters(recipe, (), (), (), (), settings, "fp32", 1, 0, "spread")


def table_6(row: str, column: str) -> float:
    """What Table 6 prints for a row, by our name for it, in percent: a task, or ``avg``."""
    value = tables.load("transnormer", "table_6").value(column, model=PUBLISHED[row])
    assert isinstance(value, float)
    return value


def rows(parameters: Parameters) -> list[str]:
    """Published rows, then matched controls."""
    return [*parameters.architectures, *parameters.controls]


def setting(task: str, parameters: Parameters) -> Setting:
    """How a task is trained: the recipe's setting with the notebook's changes."""
    return arena_recipes.setting(task, parameters.recipe, parameters.settings.get(task, {}))


def data(task: str, parameters: Parameters) -> DataConfig:
    """The examples of a task."""
    chosen = setting(task, parameters)
    counts = {"train": chosen.train_examples, "validation": chosen.held_out_examples, "test": chosen.held_out_examples}
    return DataConfig(
        task="classify",
        task_name=task,
        length=chosen.length,
        batch_size=chosen.batch_size,
        limit={split: count for split, count in counts.items() if count},
    )


def run(task: str, row: str, seed: int, parameters: Parameters) -> RunConfig:
    """One training run; its weights are those of the best validation, with which the test split is measured."""
    from transnormer_lib.data.tasks import task_definition
    from transnormer_lib.data.vocabulary import vocabulary_size

    chosen, recipe = setting(task, parameters), parameters.recipe
    cut = data(task, parameters)
    ids = task_definition(task).symbols or vocabulary_size("bytes")
    optimizer = OptimizerConfig(
        learning_rate=chosen.learning_rate,
        schedule="onecycle" if recipe == "paper" else "cosine",
        cycle_momentum=recipe == "paper",  # the harness leaves it to PyTorch, which moves it with the rate
        warmup=chosen.warmup,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.0,
        clip_value=1.0 if recipe == "paper" else 0.0,
    )
    return classification.run(
        f"{task}-{row}-{recipe}-seed{seed}",
        arena_recipes.model(row, chosen, recipe, ids),
        cut,
        optimizer,
        {},  # a hidden layer of twice the model's width, 128 in the paper recipe, over the mean
        steps=chosen.steps,
        seed=seed,
        accumulate=chosen.accumulate,
        precision=parameters.precision,
        evaluations=parameters.evaluations,
        evaluation_examples=parameters.evaluation_examples or None,
        evaluation_part=parameters.evaluation_part,
        measured_at_end=("test",),
        keep="best",
    )


def _places(parameters: Parameters) -> list[tuple[str, str, int]]:
    """Every task with every row and seed: the order of the runs. Raises ValueError for one that occurs twice."""
    pairs = grid(rows(parameters), parameters.seeds)
    return [(task, row, seed) for task, _ in grid(parameters.tasks, [0]) for row, seed in pairs]


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per task, row and seed, tasks first. Reads no data."""
    unknown = set(parameters.settings) - set(parameters.tasks)
    if unknown:
        raise ValueError(f"settings={sorted(unknown)!r}: names no task of tasks={list(parameters.tasks)!r}")
    return [run(*place, parameters) for place in _places(parameters)]


@dataclass(frozen=True)
class Measured:
    """One run: its accuracies in percent, ``-inf`` where it diverged, which then loses every comparison."""

    task: str
    row: str
    seed: int
    validation: float
    test: float
    run: "Run"


@dataclass(frozen=True)
class Results:
    """What was measured, and the tasks that could not be, each with its reason."""

    measured: tuple[Measured, ...]
    absent: Mapping[str, str]

    def tasks(self) -> list[str]:
        """The tasks with runs."""
        return list(dict.fromkeys(m.task for m in self.measured))

    def scores(self, task: str, split: str = "test") -> dict[str, list[float]]:
        """Accuracies in percent by row, one per seed in the order of the seeds: what a paired ordering needs."""
        return row_losses.by_row([m for m in self.measured if m.task == task], split)


def load(parameters: Parameters) -> "tuple[dict[str, TaskData], dict[str, str]]":
    """The tasks' data, and why those that are not on this machine are not."""
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


def measure(parameters: Parameters, store: "RunStore") -> Results:
    """Train or load every run of the tasks whose data are here."""
    _, absent = load(parameters)
    measured = []
    for (task, row, seed), config in zip(_places(parameters), runs(parameters), strict=True):
        if task in absent:
            continue
        made = store.get(config)
        measured.append(Measured(task, row, seed, *_scores(made), made))
    return Results(tuple(measured), absent)


def _scores(made: "Run") -> tuple[float, float]:
    if made.record["status"] != "finished":
        return -math.inf, -math.inf
    return 100.0 * made.validation["accuracy"], 100.0 * made.record["at_end"]["test"]["accuracy"]


def finished_mean(scores: Sequence[float]) -> float:
    """Mean over the runs that did not diverge; ``-inf`` where all did, so that the row comes last."""
    finite = [score for score in scores if math.isfinite(score)]
    return math.fsum(finite) / len(finite) if finite else -math.inf


def shortcuts(task: "TaskData") -> dict[str, float]:
    """Accuracy in percent, on the test split, of what does not do the task: by name, chance first."""
    from transnormer_lib.analysis import shortcuts as analysis
    from transnormer_lib.data import listops

    simple = analysis.shortcuts(task, "test")
    found = {
        "chance": 1.0 / task.classes,
        "most common": simple.most_common["accuracy"],
        "bag of tokens": simple.bag_of_tokens["accuracy"],
    }
    if task.name == "listops":
        rules = listops.shortcuts(task.splits["train"], task.splits["test"])
        found |= {"root operator": rules.root_operator, "root operator and digits": rules.root_and_digits}
    return {name: 100.0 * accuracy for name, accuracy in found.items()}


def task_table(present: "Mapping[str, TaskData]") -> list[dict[str, Any]]:
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
    """One line per task: the setting that the parameters give, beside the recipe's own steps."""
    lines = []
    for task in parameters.tasks:
        chosen = setting(task, parameters)
        own = arena_recipes.setting(task, parameters.recipe, {})
        line = {"task": task, "length": chosen.length, "layers × width": f"{chosen.layers} × {chosen.dim}"}
        line |= {"batch": chosen.batch_size, "learning rate": chosen.learning_rate}
        lines.append(line | {"steps": chosen.steps, "recipe's steps": own.steps})
    return lines


def score_table(results: Results, short: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One line per row: mean and range of the test accuracy per task, weights; the shortcuts below."""
    tasks = results.tasks()
    by_task = {task: results.scores(task) for task in tasks}
    lines: list[dict[str, Any]] = []
    for row in dict.fromkeys(m.row for m in results.measured):
        line: dict[str, Any] = {"model": row}
        for task in tasks:
            line[task] = _cell(by_task[task][row])
        line["parameters"] = next(m.run.record["parameters"] for m in results.measured if m.row == row)
        lines.append(line)
    for name in dict.fromkeys(name for task in tasks for name in short[task]):
        shown = {task: f"{short[task][name]:.1f}" if name in short[task] else None for task in tasks}
        lines.append({"model": name, **shown, "parameters": None})
    return lines


def _cell(scores: Sequence[float]) -> str:
    finite = [score for score in scores if math.isfinite(score)]
    parts = [f"{finished_mean(finite):.1f} ({min(finite):.1f}–{max(finite):.1f})"] if finite else []
    return ", ".join(parts + ([f"{len(scores) - len(finite)} diverged"] if len(finite) < len(scores) else []))


def average(results: Results, row: str) -> list[float] | None:
    """The mean over the five tasks, per seed, in percent; None unless the row was measured on all of them."""
    columns = [results.scores(task).get(row) for task in TASKS]
    if any(column is None for column in columns):
        return None
    return [math.fsum(scores) / len(TASKS) for scores in zip(*(c for c in columns if c is not None), strict=True)]


def why_not(results: Results, task: str, missing: Sequence[str] = (), *, scale: str) -> str:
    """Why a task, or rows on it, were not measured."""
    if task in results.absent:
        return results.absent[task]
    if task not in results.tasks():
        reason = f"the parameters ask for no run on {task}"
    else:
        reason = f"the parameters ask for no run of {' and '.join(missing)} on {task}"
    return f"decided at a larger scale: {reason}" if scale == "quick" else reason


def why_no_average(results: Results, row: str) -> str:
    """Why a row has no average over the five tasks."""
    lacking = [task for task in TASKS if row not in results.scores(task)]
    return f"the average takes all five tasks, and {row} was not measured on {', '.join(lacking)}"


def short_name(row: str) -> str:
    """The row's name in the claims."""
    return row.removeprefix("transnormer-").removeprefix("transformer-")


def parameter_counts(task: str, recipe: arena_recipes.Recipe) -> dict[str, int]:
    """Weights of every row of Table 6 on a task in a recipe; counted, not built."""
    from transnormer_lib.training.setup import parameters_of

    whole = recipe_parameters(recipe, {})
    return {row: parameters_of(run(task, row, 0, whole)) for row in PUBLISHED}


def averages_off() -> dict[str, float]:
    """Per row of Table 6, by its printed name, the printed average less the mean of its five columns."""
    records = tables.load("transnormer", "table_6").records()
    return {str(r["model"]): float(r["avg"]) - math.fsum(float(r[task]) for task in TASKS) / 5 for r in records}


def places_in_table_6() -> dict[str, dict[str, int]]:
    """The rank of T1 and of T2 in each column of Table 6, the average too: 1 is the highest score."""
    ranks: dict[str, dict[str, int]] = {}
    for row in OURS:
        for column in (*TASKS, "avg"):
            above = sum(table_6(other, column) > table_6(row, column) for other in PUBLISHED)
            ranks.setdefault(row, {})[column] = 1 + above
    return ranks


def section_5_2() -> dict[str, Any]:
    """The sentences of Section 5.2 on Table 6, recomputed from the table as printed.

    - ``one_of_two``: in every task one of the two variants, at least, is first or second.
    - ``t1``, ``t2``: whether that variant alone is, in every task.
    - ``averages``: both averages are above those of all other methods.
    - ``lead``: of each variant's average over the best other one, in points.
    """
    ranks = places_in_table_6()
    best_other = max(table_6(row, "avg") for row in PUBLISHED if row not in OURS)
    return {
        "one_of_two": all(min(ranks[row][task] for row in OURS) <= 2 for task in TASKS),
        **{row[-2:]: all(ranks[row][task] <= 2 for task in TASKS) for row in OURS},
        "averages": all(table_6(row, "avg") > best_other for row in OURS),
        "lead": {row: round(table_6(row, "avg") - best_other, 2) for row in OURS},
    }


def conclusions(results: Results, short: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the scores say, in sentences with their figures; nothing about what was not run."""
    lines = []
    how: dict[str, Any] = {"higher_is_better": True, "words": ("higher", "lower"), "unit": "points", "digits": 1}
    for task in results.tasks():
        scores = results.scores(task)
        floor_name = max(short[task], key=lambda name: short[task][name])
        floor = short[task][floor_name]
        ranked = sorted(scores, key=lambda row: -finished_mean(scores[row]))
        means = ", ".join(f"{row} {finished_mean(scores[row]):.1f}" for row in ranked)
        lines.append(f"{task}: mean test accuracy in percent, highest first: {means}. Best shortcut: {floor:.1f}.")
        behind = {row: sum(score <= floor for score in values) for row, values in scores.items()}
        if any(behind.values()):
            named = ", ".join(f"{row} {count} of {len(scores[row])}" for row, count in behind.items() if count)
            lines.append(f"{task}: runs that do not beat that shortcut ({floor_name}), diverged ones counted: {named}.")
        for row in OURS:
            for other in ("vanilla", "vanilla-matched", "linear-matched", "linear", "cosformer"):
                if row in scores and other in scores:
                    lines.append(f"{task}, {paired.compared(row, other, scores, **how)}")
    lines += [f"{task}: not run; {reason}" for task, reason in results.absent.items()]
    return lines
