"""Scores of a classification task over seeds, beside shortcuts: the table, the figure and the sentences.

A column is a task or one of its metrics. ``columns`` map its heading to scores by row, one per seed in percent, minus
infinity where a run diverged; ``floors`` map it to the scores of shortcuts, models that do without what the task is
about, by name. A row called ``NAME, ADDITION`` is a variant of ``NAME``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.analysis.seeds import compared, finished, mean, spread
from transnormer_lib.show.figures import BLACK, GREY, STYLE, Style
from transnormer_lib.studies.common.figures import row_points, row_style
from transnormer_lib.studies.common.findings import Rows, behind, lead
from transnormer_lib.studies.common.language_models import RELEASED

Floors = Mapping[str, float]
_TOLD = 2  # columns of which a caption says each


def cell(scores: Sequence[float]) -> str:
    """Mean and range of the runs that did not diverge, like ``40.0 (38.1 to 41.9, 1 diverged)``."""
    said = spread(scores, 1)
    return f"{mean(scores):.1f} ({said})" if finished(scores) else said


def table(
    columns: Mapping[str, Rows], floors: Mapping[str, Floors], more: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One line per row: :func:`cell` of every column, then the values in ``more`` by heading and row.

    The shortcuts are the last lines.
    """
    lines: list[dict[str, Any]] = [
        {"model": row}
        | {heading: cell(rows[row]) if row in rows else None for heading, rows in columns.items()}
        | {heading: values.get(row) for heading, values in more.items()}
        for row in dict.fromkeys(row for rows in columns.values() for row in rows)
    ]
    for name in dict.fromkeys(name for heading in columns for name in floors[heading]):
        reached = {heading: floors[heading].get(name) for heading in columns}
        shown = {heading: None if value is None else f"{value:.1f}" for heading, value in reached.items()}
        lines.append({"model": name} | shown | dict.fromkeys(more))
    return lines


def best_floor(floors: Floors) -> str:
    """The name of the best shortcut."""
    return max(floors, key=lambda name: floors[name])


def sentences(heading: str, scores: Rows, floors: Floors, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """What the scores of a column say: the order of the means, diverged runs, runs that are no better than the best
    shortcut, and the ``pairs`` of rows, both measured, with the interval of their difference."""
    ranked = sorted((row for row in scores if finished(scores[row])), key=lambda row: -mean(scores[row]))
    lines = [f"{heading}, mean, highest first: {', '.join(f'{row} {mean(scores[row]):.1f}' for row in ranked)}."]
    counts = {"runs that diverged": {row: len(values) - len(finished(values)) for row, values in scores.items()}}
    if floors:
        name = best_floor(floors)
        said = f"runs that do not beat the shortcut {name} ({floors[name]:.1f})"
        counts[said] = {row: sum(value <= floors[name] for value in finished(v)) for row, v in scores.items()}
    for said, by_row in counts.items():
        if any(by_row.values()):
            named = ", ".join(f"{row} {count} of {len(scores[row])}" for row, count in by_row.items() if count)
            lines.append(f"{heading}, {said}: {named}.")
    how: dict[str, Any] = {"higher_is_better": True, "words": ("higher", "lower"), "unit": "points", "digits": 1}
    measured = [pair for pair in pairs if set(pair) <= set(scores)]
    return lines + [f"{heading}, {compared(row, other, scores, **how)}" for row, other in measured]


def in_words(columns: Mapping[str, Rows], floors: Mapping[str, Floors]) -> str:
    """The means and the shortcuts of every column: what the figure shows."""
    values = {name: {row: mean(v) for row, v in rows.items()} | dict(floors[name]) for name, rows in columns.items()}
    return "; ".join(f"{name}: {', '.join(f'{row} {v:.1f}' for row, v in of.items())}" for name, of in values.items())


def finding(columns: Mapping[str, Rows], floors: Mapping[str, Floors]) -> str:
    """What the figure shows: up to two columns each in sentences, more of them counted."""
    if len(columns) > _TOLD:
        return _counted(columns, floors)
    lines = []
    for heading, rows in columns.items():
        line = lead(rows, what=f"score, {heading}", unit="", digits=1, higher_is_better=True)
        if floors[heading]:
            name = best_floor(floors[heading])
            line += " " + behind(rows, f"the shortcut {name}", floors[heading][name], digits=1, higher_is_better=True)
        lines.append(line)
    return " ".join(lines)


def _counted(columns: Mapping[str, Rows], floors: Mapping[str, Floors]) -> str:
    """In how many columns each row has the highest mean, and which columns have a run behind the best shortcut."""
    known = {name: {row: mean(v) for row, v in rows.items() if finished(v)} for name, rows in columns.items()}
    wins = Counter(max(of, key=lambda row: of[row]) for of in known.values() if of)
    said = ", ".join(f"{row} in {count}" for row, count in wins.most_common())
    short = [name for name, of in floors.items() if of and name in columns and _some_behind(columns[name], of)]
    behind_floor = f"A run does not beat the best shortcut in {', '.join(short)}." if short else ""
    return f"Highest mean, of {len(columns)} columns: {said or 'none'}. {behind_floor}".strip()


def _some_behind(rows: Rows, floors: Floors) -> bool:
    limit = floors[best_floor(floors)]
    return any(value <= limit for of in rows.values() for value in of)


def style(row: str) -> Style:
    """The style of a row; of a variant that of its model. A row without a style is grey under its own name."""
    name, comma, addition = row.partition(", ")
    found = row_style(name) if name.removesuffix(RELEASED) in STYLE else Style(GREY, "o", "", name)
    return found._replace(label=f"{found.label}{comma}{addition}")


def figure(columns: Mapping[str, Rows], floors: Mapping[str, Floors], *, xlabel: str) -> Figure:
    """A panel per column with a line per row: runs are points, hollow ones of variants, their mean a bar.

    Runs that diverged are counted in words. Shortcuts are vertical lines, the best one black and named.
    """
    heights = [0.34 * len(rows) + 0.9 for rows in columns.values()]
    made, panels = plt.subplots(
        len(columns), 1, figsize=(6.8, math.fsum(heights) + 0.2 * len(heights)), layout="constrained",
        squeeze=False, gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for axes, (heading, rows) in zip(panels[:, 0], columns.items(), strict=True):
        for height, (row, values) in enumerate(rows.items()):
            row_points(axes, height, values, style(row), hollow=", " in row)
        best = best_floor(floors[heading]) if floors[heading] else None
        for name, value in floors[heading].items():
            axes.axvline(value, color=BLACK if name == best else GREY, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0)
        if best is not None:
            axes.annotate(
                best, (floors[heading][best], 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="center", va="bottom", fontsize="small",
            )  # fmt: skip
        axes.set(xlabel=f"{heading}: {xlabel}", ylim=(len(rows) - 0.4, -0.6))
        axes.set_yticks(range(len(rows)), [style(row).label for row in rows])
        axes.tick_params(axis="y", length=0)
    return made
