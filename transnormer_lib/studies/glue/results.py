"""What the fine-tuning runs of ``studies.glue`` say: the best of the learning rates, averages, tables, sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transnormer_lib.analysis import seeds as paired
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.glue import published
from transnormer_lib.studies.glue.average import COLUMNS, GlueAverage, glue_average
from transnormer_lib.studies.glue.runs import Column, Measured, Parameters, Results, columns, fine_tuned

if TYPE_CHECKING:
    from transnormer_lib.analysis.shortcuts import Shortcuts
    from transnormer_lib.data.tasks import TaskData
    from transnormer_lib.data.text import TextCorpus

# What the comparisons of the conclusions are about: a row, and what it is held against.
_PAIRS = tuple(
    (row, other)
    for row in published.OURS
    for other in ("linear", "vanilla", "linear-matched", "vanilla-matched", fine_tuned(row))
)


def chosen(measured: Sequence[Measured]) -> list[Measured]:
    """Of the runs that differ in their learning rate alone, the one with the best validation score of its task.

    MNLI's choice is made on the matched set. Of equals the first rate counts.
    """
    groups: dict[tuple[str, str, int], list[Measured]] = {}
    for m in measured:
        groups.setdefault((m.cell.task, m.label, m.cell.seed), []).append(m)
    return [max(group, key=lambda m: m.score(columns([m.cell.task])[0])) for group in groups.values()]


def by_label(measured: Sequence[Measured], column: Column, of: str = "best") -> dict[str, list[float]]:
    """The chosen runs' scores of a column by row, in the order of the seeds."""
    found: dict[str, list[float]] = {}
    for m in sorted(chosen(measured), key=lambda m: m.cell.seed):
        if m.cell.task == column.task:
            found.setdefault(m.label, []).append(m.score(column, of))
    return {label: found[label] for label in dict.fromkeys(m.label for m in measured) if label in found}


def averages(results: Results, row: str) -> list[GlueAverage]:
    """Both averages of a row for every seed, in their order; [] unless all of Table 5's columns were measured."""
    by_column = {c.name: by_label(results.measured, c).get(row, []) for c in results.columns}
    if not all(by_column.get(name) for name in COLUMNS):
        return []
    per_seed = zip(*(by_column[name] for name in COLUMNS), strict=True)
    known = [[value if math.isfinite(value) else None for value in values] for values in per_seed]
    return [glue_average(dict(zip(COLUMNS, values, strict=True))) for values in known]


def per_seed(results: Results, row: str, names: Sequence[str]) -> list[float]:
    """A row's score for every seed: of the one column named, or by the paper's average of all seven.

    Minus infinity where the run of a single column diverged; in the average it counts as 0, as in the paper.
    """
    if len(names) > 1:
        return [average.table_5 for average in averages(results, row)]
    (column,) = (column for column in results.columns if column.name == names[0])
    return by_label(results.measured, column)[row]


def mean(values: Sequence[float]) -> float:
    """Mean over the runs that did not diverge; minus infinity where all did, so that the row comes last."""
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else -math.inf


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
    """What differs from the published data in these columns: in the tasks, and in the text of the encoders."""
    text = language_models.corpus(parameters.encoders)
    tasks = dict.fromkeys(name.partition("_")[0] for name in names)
    return list(dict.fromkeys([*text.notes, *(note for task in tasks for note in results.data[task].notes)]))


def shortcut_scores(results: Results) -> "dict[str, Shortcuts]":
    """By task, what the most common label and a bag of tokens reach on the validation examples."""
    from transnormer_lib.analysis.shortcuts import shortcuts

    return {name: shortcuts(data) for name, data in results.data.items()}


def floors(column: Column, shortcuts: "Mapping[str, Shortcuts]") -> dict[str, float]:
    """The shortcuts' scores of a column in points, by what they are; {} for MNLI's second set."""
    found = shortcuts[column.task]
    names = {"most common label": found.most_common, "bag of tokens": found.bag_of_tokens}
    return {name: 100.0 * scores[column.metric] for name, scores in names.items() if column.metric in scores}


def table(results: Results, shortcuts: "Mapping[str, Shortcuts]") -> list[dict[str, Any]]:
    """One line per row: the mean of every column over the runs that did not diverge, how many diverged; where all of
    Table 5's columns are there the paper's average and the benchmark's, by task; the shortcuts below."""
    lines: list[dict[str, Any]] = []
    for label in results.labels:
        line: dict[str, Any] = {"model": label}
        lost = 0
        for column in results.columns:
            values = by_label(results.measured, column).get(label, [])
            line[column.heading] = mean(values)
            lost += sum(math.isinf(value) for value in values)
        if found := averages(results, label):
            plain = [average.plain for average in found if average.plain is not None]
            line["average"] = math.fsum(average.table_5 for average in found) / len(found)
            line["by task"] = math.fsum(plain) / len(plain) if plain else None
        lines.append(line | {"diverged": lost})
    empty: dict[str, Any] = dict.fromkeys({key: None for line in lines for key in line})
    for name in ("most common label", "bag of tokens"):
        lines.append({"model": name} | {c.heading: floors(c, shortcuts).get(name) for c in results.columns})
    return [empty | line for line in lines]


def beside_table_5(results: Results) -> list[dict[str, Any]]:
    """One line per column and published row that was measured: mean, range, Table 5. [] for stand-ins."""
    lines = []
    for column in results.columns:
        if column.name not in COLUMNS:
            continue
        for row, values in by_label(results.measured, column).items():
            if row in bidirectional.PUBLISHED:
                printed = published.score(row, column.name)
                lines.append(
                    {
                        "column": column.heading,
                        "model": row,
                        "mean": mean(values),
                        "range": span(values),
                        "Table 5": "not converged" if printed is None else printed,
                    }
                )
    return lines


def span(values: Sequence[float]) -> str:
    """Smallest and largest score of the runs that finished, and how many diverged."""
    finite = [value for value in values if math.isfinite(value)]
    parts = [f"{min(finite):.1f} to {max(finite):.1f}".replace("-", "−")] if finite else []
    return ", ".join(parts + ([f"{len(values) - len(finite)} diverged"] if len(finite) < len(values) else []))


def spoken(panels: Mapping[str, Mapping[str, Sequence[float]]], floors: Mapping[str, Mapping[str, float]]) -> str:
    """What the figure of the scores shows, in words: the means and the shortcuts, column by column."""
    parts = []
    for column, rows in panels.items():
        values = {label: mean(scores) for label, scores in rows.items()} | dict(floors[column])
        parts.append(f"{column}: " + ", ".join(f"{name} {value:.1f}" for name, value in values.items()))
    return "; ".join(parts) + "."


def described(data: "TaskData") -> str:
    """A task in one line: what it asks, how many examples its splits have, which splits this machine lacks."""
    from transnormer_lib.data.tasks import task_definition

    there = [split for split in task_definition(data.name).splits if split in data.splits]  # each by one name
    sizes = ", ".join(f"{split} {len(data.splits[split]):,}" for split in there)
    lacks = f"; not on this machine: {', '.join(data.absent)}" if data.absent else ""
    return f"{data.name} ({data.title}{', a stand-in' if data.stand_in else ''}): {sizes}{lacks}"


def shown_examples(data: "TaskData", corpus: "TextCorpus", count: int = 2) -> list[dict[str, Any]]:
    """The first validation examples of a task as its tokens have them in text, with their labels."""
    import torch

    from transnormer_lib.studies.common.language_models import readable

    examples = data.splits["validation"]
    lines = []
    for number in range(min(count, len(examples))):
        of = (2 * number, 2 * number + 1) if examples.pairs else (number,)
        texts = [readable(corpus, torch.tensor(examples.sequence(i).astype("int64"))) for i in of]
        lines.append({"task": data.name, "text": " | ".join(texts), "label": int(examples.labels[number])})
    return lines


def effect_of_choosing(results: Results) -> list[dict[str, Any]]:
    """Per column the mean over all runs that finished: at the last evaluation, at each run's best, with each seed's
    best rate; and of the latter on the test examples, on which nothing was chosen (None without labels)."""
    lines = []
    for column in results.columns:
        mine = [m for m in results.measured if m.cell.task == column.task and m.finished]
        best = [m for m in chosen(mine) if m.finished]
        test = [m.score(column, "test") for m in best]
        lines.append(
            {
                "column": column.heading,
                "last evaluation": mean([m.score(column, "last") for m in mine]),
                "best evaluation": mean([m.score(column) for m in mine]),
                "best rate too": mean([m.score(column) for m in best]),
                "the same on test": mean(test) if test and not any(map(math.isnan, test)) else None,
            }
        )
    return lines


def conclusions(results: Results, shortcuts: "Mapping[str, Shortcuts]") -> list[str]:
    """What the scores say, in sentences with their figures; nothing about rows that were not run."""
    lines = []
    how: dict[str, Any] = {"higher_is_better": True, "words": ("ahead", "behind"), "unit": "points", "digits": 1}
    for column in results.columns:
        scores = by_label(results.measured, column)
        ranked = sorted(scores, key=lambda label: -mean(scores[label]))
        means = ", ".join(f"{label} {mean(scores[label]):.1f}" for label in ranked if mean(scores[label]) > -math.inf)
        lines.append(f"{column.heading}, mean of the best validation scores: {means}.")
        if lost := [f"{row} {n} of {len(v)}" for row, v in scores.items() if (n := sum(map(math.isinf, v)))]:
            lines.append(f"{column.heading}, diverged: {', '.join(lost)}.")
        if floor := floors(column, shortcuts):
            name = max(floor, key=lambda name: floor[name])
            above = [label for label in ranked if min(scores[label]) > floor[name]]
            rows = ", ".join(above) if above else "no row"
            lines.append(f"{column.heading}: above the {name} ({floor[name]:.1f}) with every seed: {rows}.")
        lines += [
            f"{column.heading}: {paired.compared(row, other, scores, **how)}"
            for row, other in _PAIRS
            if row in scores and other in scores
        ]
    return lines
