"""What Table 5 says by itself: its averages, the sentences about it, the weight of a single column."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.data import hub
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.papers import tables
from transnormer_lib.studies.bidirectional_lm.published import PUBLISHED
from transnormer_lib.studies.common.findings import joined, signed
from transnormer_lib.studies.common.published import printed
from transnormer_lib.studies.glue.average import COLUMNS, glue_average

# Section 5.2 says that both variants beat every competing linear method on these columns.
NAMED = ("sst2", "mrpc", "cola")
# Accuracies: their sampling error follows from the number of examples.
_ACCURACY = ("mnli_m", "mnli_mm", "qnli", "qqp", "sst2")
# FLASH-quad's attention is quadratic; the paper counts it among the linear methods, and so do the sentences here.
LINEAR = tuple(row for row in PUBLISHED if row not in (*VARIANTS, "vanilla"))


def score(row: str, column: str) -> float | None:
    """What Table 5 prints for a row, by our name for it; None for "-", not converged."""
    return printed("table_5", column, method=PUBLISHED[row])


def scores(row: str) -> dict[str, float | None]:
    """The seven columns of a row."""
    return {column: score(row, column) for column in COLUMNS}


def heading(column: str) -> str:
    """The column's name in the table."""
    return next(c.heading for c in tables.load("transnormer", "table_5").columns if c.name == column)


def averages() -> list[dict[str, Any]]:
    """By row: the printed average, the two of :class:`GlueAverage`, and the mean over the columns that converged."""
    lines = []
    for row in PUBLISHED:
        known = [value for value in scores(row).values() if value is not None]
        average = glue_average(scores(row))
        line: dict[str, Any] = {"row": row, "printed": score(row, "avg"), "table_5": average.table_5}
        lines.append(line | {"plain": average.plain, "converged": math.fsum(known) / len(known)})
    return lines


def in_words(averages: Sequence[Mapping[str, Any]]) -> str:
    """How many printed averages each way gives, to their second decimal, in a sentence."""
    ways = {"table_5": "the first way", "plain": "the second", "converged": "the third"}
    gives = {
        said: sum(line[way] is not None and abs(line[way] - line["printed"]) < 0.0051 for line in averages)
        for way, said in ways.items()
    }
    return f"Of {len(averages)} in print {joined([f'{said} gives {count}' for said, count in gives.items()])}."


def largest_error_of_averages() -> float:
    """The largest difference between the paper's rule and a printed average."""
    return max(abs(line["table_5"] - line["printed"]) for line in averages())


def best_average(row: str, others: Sequence[str]) -> bool:
    """Whether the row's printed average is above that of each of the others."""
    return all((score(row, "avg") or 0.0) > (score(other, "avg") or 0.0) for other in others)


def exceptions() -> list[str]:
    """Where a variant is not above a competing linear method on ``NAMED``; a method that did not converge is beaten.

    Like ``transnormer-t2 on SST-2: 90.71, FLASH-quad 90.94``.
    """
    found = []
    for row in VARIANTS:
        for column in NAMED:
            own = score(row, column) or 0.0
            ahead = {other: value for other in LINEAR if (value := score(other, column)) is not None and value >= own}
            found += [f"{row} on {heading(column)}: {own}, {PUBLISHED[o]} {value}" for o, value in ahead.items()]
    return found


def lead_on_cola() -> float:
    """How far the better variant is above the best competing linear method on CoLA."""
    others = [value for other in LINEAR if (value := score(other, "cola")) is not None]
    return max(score(row, "cola") or 0.0 for row in VARIANTS) - max(others)


def leads(row: str, other: str = "vanilla") -> dict[str, float]:
    """How far ``row`` is ahead of ``other`` in each column; both must have converged."""
    return {column: (score(row, column) or 0.0) - (score(other, column) or 0.0) for column in COLUMNS}


def lead_without(row: str, other: str = "vanilla") -> dict[str, float]:
    """The lead in the average over the other six columns, by the column that is left out."""
    by_column = leads(row, other)
    return {
        out: math.fsum(lead for column, lead in by_column.items() if column != out) / (len(COLUMNS) - 1)
        for out in COLUMNS
    }


def weight_of_a_column(rows: Sequence[str]) -> str:
    """For every row, its lead over softmax attention in the average, and without the column that adds most to it."""
    said = []
    for row in rows:
        without = lead_without(row)
        column = min(without, key=without.__getitem__)
        whole = signed((score(row, "avg") or 0.0) - (score("vanilla", "avg") or 0.0), 2)
        said.append(f"{PUBLISHED[row]} {whole}, without {heading(column)} {signed(without[column], 2)}")
    return f"Lead in the average: {'; '.join(said)}."


def spoken(by_row: Mapping[str, Mapping[str, float]], average: Mapping[str, float]) -> str:
    """What the figure of the leads shows, in words: by row, the points of every column and of the average."""
    lines = {row: ", ".join(f"{name} {signed(lead, 2)}" for name, lead in by.items()) for row, by in by_row.items()}
    return " ".join(f"{row}: {line}, average {signed(average[row], 2)}." for row, line in lines.items())


def examples(column: str) -> int:
    """The number of examples in the column's development set, as published."""
    task, _, part = column.partition("_")
    splits = hub.DATASETS[task_definition(task).source].splits
    return splits[{"m": "validation_matched", "mm": "validation_mismatched"}.get(part, "validation")].rows


def standard_error(column: str, percent: float) -> float | None:
    """Of an accuracy of ``percent`` on the column's development set, in points; None if the score is no accuracy."""
    if column not in _ACCURACY:
        return None
    share = percent / 100
    return 100 * math.sqrt(share * (1 - share) / examples(column))
