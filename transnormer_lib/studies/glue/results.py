"""What the fine-tuning runs say: scores with the best of the learning rates, averages, tables, sentences.

As in the paper, the learning rate with the best validation score counts, so a row's score is the best of several on
the very examples it is reported on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from transnormer_lib.analysis.seeds import finished, mean
from transnormer_lib.analysis.shortcuts import Shortcuts, shortcuts
from transnormer_lib.choices import VARIANTS
from transnormer_lib.data.tasks import TaskData, task_definition
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.progress import tracked
from transnormer_lib.studies.bidirectional_lm.published import PUBLISHED
from transnormer_lib.studies.common import classification, findings, language_models, scores
from transnormer_lib.studies.common.classification import Absent
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.glue import published
from transnormer_lib.studies.glue.average import COLUMNS, GlueAverage, glue_average
from transnormer_lib.studies.glue.runs import Cell, Parameters, cells, data_config, from_scratch, run
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunFailed


@dataclass(frozen=True)
class Column:
    """One column of scores: a task's first metric, or MNLI's other development set."""

    name: str
    task: str
    metric: str  # its key in validation results

    @property
    def heading(self) -> str:
        return published.heading(self.name) if self.name in COLUMNS else self.name


def columns(tasks: Sequence[str]) -> list[Column]:
    """The columns of these tasks: Table 5's, where MNLI has two, or one with the name of a stand-in."""
    found = []
    for task in tasks:
        metric = task_definition(task).metrics[0]
        names = {"mnli_m": metric, "mnli_mm": f"{metric}_mismatched"} if task == "mnli" else {task: metric}
        found += [Column(name, task, key) for name, key in names.items()]
    return found


@dataclass(frozen=True)
class TunedRun(Measured):
    """One fine-tuning run, or the encoder's where that diverged. ``validation``: best score in the first column."""

    cell: Cell

    def score(self, column: Column, of: str = "best") -> float:
        """In percent, on the validation examples at the ``best`` or the ``last`` evaluation, or on the ``test`` ones.

        Minus infinity where the run or its encoder diverged; NaN where this machine lacks the split.
        """
        return _score(self.run, column, of)


def _score(run: Run, column: Column, of: str) -> float:
    if run.record["status"] != "finished":
        return -math.inf
    results = {"last": run.record["validation"][-1], "test": run.record["at_end"].get("test", {})}
    return 100.0 * (run.validation if of == "best" else results[of]).get(column.metric, math.nan)


def tuned(cell: Cell, run: Run) -> TunedRun:
    """What was measured on a run."""
    return TunedRun(cell.label, cell.seed, _score(run, columns([cell.task])[0], "best"), run, cell)


@dataclass(frozen=True)
class Results:
    """Every run that could be made, the tasks' data by name, and why the other tasks are absent."""

    measured: list[TunedRun]
    data: dict[str, TaskData]
    absent: dict[str, str]

    @property
    def columns(self) -> list[Column]:
        """Of the tasks that were run; without MNLI's second set where this machine lacks it."""
        without = {task for task, data in self.data.items() if "validation_mismatched" in data.absent}
        return [c for c in columns(list(self.data)) if not (c.name == "mnli_mm" and c.task in without)]

    def chosen(self, task: str) -> list[TunedRun]:
        """The best of the runs that differ in their learning rate alone; of equals the first.

        MNLI's choice is made on the matched set.
        """
        groups: dict[tuple[str, int], list[TunedRun]] = {}
        for m in self.measured:
            if m.cell.task == task:
                groups.setdefault((m.row, m.seed), []).append(m)
        return [max(group, key=lambda m: m.validation) for group in groups.values()]

    def scores(self, column: Column) -> dict[str, list[float]]:
        """The chosen runs' scores of a column in percent by row, in the order of the seeds."""
        found = [Measured(m.row, m.seed, m.score(column), m.run) for m in self.chosen(column.task)]
        return by_row(found)

    def panels(self) -> dict[str, dict[str, list[float]]]:
        """:meth:`scores` of every column by its heading."""
        return {column.heading: self.scores(column) for column in self.columns}

    def averages(self, row: str) -> list[GlueAverage]:
        """Both averages of a row by seed; [] unless all of Table 5's columns were measured."""
        by_column = {c.name: self.scores(c).get(row, []) for c in self.columns}
        if not all(by_column.get(name) for name in COLUMNS):
            return []
        per_seed = zip(*(by_column[name] for name in COLUMNS), strict=True)
        known = [[value if math.isfinite(value) else None for value in values] for values in per_seed]
        return [glue_average(dict(zip(COLUMNS, values, strict=True))) for values in known]

    def per_seed(self, row: str, names: Sequence[str]) -> list[float]:
        """A row's score by seed: in the one column named, or the paper's average of all seven.

        A run that diverged is minus infinity in its column and counts as 0 in the average, as in the paper.
        """
        if len(names) > 1:
            return [average.table_5 for average in self.averages(row)]
        (column,) = (column for column in self.columns if column.name == names[0])
        return self.scores(column)[row]


def measure(parameters: Parameters, store: RunStore) -> Results:
    """Train or load every run of the tasks whose data, and whose encoders' data, are on this machine."""
    measured: list[TunedRun] = []
    data: dict[str, TaskData] = {}
    absent: dict[str, str] = {}
    for task in tracked(parameters.tasks, "task"):
        loaded = classification.load(data_config(task, parameters))
        if isinstance(loaded, Absent):
            absent[task] = loaded.reason
            continue
        made = []
        for cell in tracked([cell for cell in cells(parameters) if cell.task == task], "run"):
            config = run(cell, parameters)
            try:
                found = classification.train(config, store)
            except RunFailed:  # its encoder diverged, so there is nothing to fine-tune, and the row loses
                assert config.start_from is not None
                found = store.get(config.start_from)
            if isinstance(found, Absent):
                absent[task] = found.reason
                break
            made.append(tuned(cell, found))
        else:
            data[task] = loaded
            measured += made
    return Results(measured, data, absent)


def lacking(results: Results, parameters: Parameters, rows: Sequence[str], names: Sequence[str]) -> str:
    """Why these rows have no scores in these columns of Table 5; empty where they have."""
    there = {column.name for column in results.columns}
    if lost := [name for name in names if name not in there]:
        task = lost[0].partition("_")[0]
        if task in results.absent:
            return results.absent[task]
        if task in results.data:  # MNLI's second set
            return results.data[task].absent.get("validation_mismatched", f"{lost[0]} was not measured")
        if all(data.stand_in for data in results.data.values()) and results.data:
            return "needs the tasks of GLUE: stand-ins are not GLUE"
        return f"the parameters ask for no run on {', '.join(map(published.heading, lost))}"
    if absent := [row for row in rows if row not in parameters.rows()]:
        return f"the parameters ask for no run of {' and '.join(absent)}"
    return ""


def notes(results: Results, parameters: Parameters, names: Sequence[str]) -> list[str]:
    """How the data differ from the published ones: the tasks of these columns, and the text of the encoders."""
    text = language_models.corpus(parameters.encoders)
    tasks = dict.fromkeys(name.partition("_")[0] for name in names)
    return list(dict.fromkeys([*text.notes, *(note for task in tasks for note in results.data[task].notes)]))


def shortcut_scores(results: Results) -> dict[str, dict[str, float]]:
    """By heading, the scores of the shortcuts on the validation examples in percent; {} for MNLI's second set."""
    by_task = {name: shortcuts(data) for name, data in results.data.items()}
    return {column.heading: floors(column, by_task[column.task]) for column in results.columns}


def floors(column: Column, found: Shortcuts) -> dict[str, float]:
    """The shortcuts' scores in a column, by what they are."""
    names = {"most common label": found.most_common, "bag of tokens": found.bag_of_tokens}
    return {name: 100.0 * by_metric[column.metric] for name, by_metric in names.items() if column.metric in by_metric}


def floor(results: Results, short: Mapping[str, scores.Floors], names: Sequence[str]) -> dict[str, Any]:
    """What a model must beat on one column, the better shortcut, as arguments of a claim; {} for an average."""
    if len(names) > 1:
        return {}
    (heading,) = (column.heading for column in results.columns if column.name == names[0])
    return {"floor": max(short[heading].values()), "floor_name": "the better shortcut"}


def table(results: Results, short: Mapping[str, scores.Floors]) -> list[dict[str, Any]]:
    """One line per row and shortcut, mean and range per column; with all of Table 5's columns the averages' means."""
    more: dict[str, dict[str, float | None]] = {}
    for row in dict.fromkeys(m.row for m in results.measured):
        if found := results.averages(row):
            plain = [average.plain for average in found if average.plain is not None]
            more.setdefault("average", {})[row] = mean([average.table_5 for average in found])
            more.setdefault("by task", {})[row] = mean(plain) if plain else None
    return scores.table(results.panels(), short, more)


def beside_table_5(results: Results) -> list[dict[str, Any]]:
    """One line per column of Table 5 and published row that was measured, ours beside it. [] for stand-ins."""
    lines = []
    for column in (column for column in results.columns if column.name in COLUMNS):
        for row, values in results.scores(column).items():
            if row in PUBLISHED:
                printed = published.score(row, column.name)
                line: dict[str, Any] = {"column": column.heading, "model": row, "ours": scores.cell(values)}
                lines.append(line | {"Table 5": "not converged" if printed is None else printed})
    return lines


def same_best(results: Results) -> str:
    """In how many columns of Table 5 the published row with our best mean is print's best, in a sentence."""
    shared, same = [], []
    for column in (column for column in results.columns if column.name in COLUMNS):
        ours = {row: mean(values) for row, values in results.scores(column).items() if row in PUBLISHED}
        known = {row: value for row in ours if (value := published.score(row, column.name)) is not None}
        if len(known) > 1:
            shared.append(column.heading)
            same += [column.heading] * (max(known, key=ours.__getitem__) == max(known, key=known.__getitem__))
    return findings.counted(same, len(shared), what="Columns whose best row is print's")


def described(data: TaskData) -> str:
    """A task in one line: its title, the sizes of its splits, and the splits that this machine lacks."""
    there = [split for split in task_definition(data.name).splits if split in data.splits]  # each by one name
    sizes = ", ".join(f"{split} {len(data.splits[split]):,}" for split in there)
    lacks = f"; not on this machine: {', '.join(data.absent)}" if data.absent else ""
    return f"{data.name} ({data.title}{', a stand-in' if data.stand_in else ''}): {sizes}{lacks}"


def shown_examples(data: TaskData, corpus: TextCorpus, count: int = 2) -> list[dict[str, Any]]:
    """The first validation examples of a task, decoded from their tokens, with their labels."""
    examples = data.splits["validation"]
    lines = []
    for number in range(min(count, len(examples))):
        of = (2 * number, 2 * number + 1) if examples.pairs else (number,)
        tokens = [torch.tensor(examples.sequence(i).astype("int64")) for i in of]
        text = " | ".join(language_models.readable(corpus, one) for one in tokens)
        lines.append({"task": data.name, "text": text, "label": int(examples.labels[number])})
    return lines


def effect_of_choosing(results: Results) -> list[dict[str, Any]]:
    """Per column, means over all runs: last evaluation, best evaluation, chosen rate, and the chosen rate on test."""
    lines = []
    for column in results.columns:
        mine = [m for m in results.measured if m.cell.task == column.task]
        best = results.chosen(column.task)
        test = [m.score(column, "test") for m in best]
        lines.append(
            {
                "column": column.heading,
                "last evaluation": mean([m.score(column, "last") for m in mine]),
                "best evaluation": mean([m.score(column) for m in mine]),
                "best rate too": mean([m.score(column) for m in best]),
                "the same on test": mean(test) if finished(test) else None,
            }
        )
    return lines


def conclusions(results: Results, short: Mapping[str, scores.Floors]) -> list[str]:
    """What the scores say, in sentences with their figures; nothing about rows that were not run."""
    pairs = [
        (row, other)
        for row in VARIANTS
        for other in ("linear", "vanilla", "linear-matched", "vanilla-matched", from_scratch(row))
    ]
    return [
        line
        for heading, values in results.panels().items()
        for line in scores.sentences(heading, values, short[heading], pairs)
    ]
