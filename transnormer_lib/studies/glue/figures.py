"""The figures of Table 5: where the printed lead comes from, and the scores of fine-tuned encoders."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transnormer_lib.show.figures import GREY, STYLE, Style
from transnormer_lib.studies.common.figures import row_style
from transnormer_lib.studies.common.row_points import row_points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ((4, 3), (1, 2))  # of the shortcuts' lines, in their order


def _style(label: str, scratch: str) -> Style:
    """The style of a row; one from random weights has that of its architecture."""
    row = label.removesuffix(scratch)
    style = row_style(row) if row.removesuffix("+released") in STYLE else Style(GREY, "d", "", row)
    return style if row == label else style._replace(label=f"{style.label}{scratch}")


def leads(
    by_row: Mapping[str, Mapping[str, float]], errors: Mapping[str, float | None], average: Mapping[str, float]
) -> "Figure":
    """How far each row is ahead of softmax attention, a line per column of the table and one for the average below.

    ``by_row`` and ``average`` hold points by row; ``errors`` two standard errors per column as a grey bar about 0.
    """
    from matplotlib import pyplot as plt

    columns = list(errors)
    figure, axes = plt.subplots(figsize=(6.8, 0.4 * (len(columns) + 1) + 1.2))
    axes.axvline(0.0, color=GREY, linewidth=1.0)
    for height, column in enumerate(columns):
        if error := errors[column]:
            axes.barh(height, 2 * error, left=-error, height=0.55, color=GREY, alpha=0.22, linewidth=0)
    axes.axhline(len(columns) - 0.5, color=GREY, linewidth=0.8)
    for offset, (row, values) in zip((-0.12, 0.12), by_row.items(), strict=True):
        points = [*(values[column] for column in columns), average[row]]
        heights = [height + offset for height in range(len(points))]
        style = row_style(row)
        axes.plot(points, heights, style.marker, color=style.colour, linestyle="none", label=style.label)
    axes.set(xlabel="points ahead of softmax attention", ylim=(len(columns) + 0.5, -0.6))
    axes.set_yticks(range(len(columns) + 1), [*columns, "average"])
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="upper right")
    return figure


def scores(
    panels: Mapping[str, Mapping[str, Sequence[float]]], floors: Mapping[str, Mapping[str, float]], *, scratch: str
) -> "Figure":
    """One panel per column: a line per row, every finished run a point, their mean a bar.

    ``panels`` holds scores over seeds by column and row, minus infinity where a run diverged, which is told in words;
    ``floors`` by column what is drawn as vertical lines. Rows whose name ends in ``scratch`` have hollow points.
    """
    from matplotlib import pyplot as plt

    rows = list(dict.fromkeys(row for panel in panels.values() for row in panel))
    size = (6.8, len(panels) * (0.36 * len(rows) + 0.9) + 0.3)
    figure, grid = plt.subplots(len(panels), 1, figsize=size, squeeze=False, layout="constrained")
    for axes, (column, panel) in zip(grid[:, 0], panels.items(), strict=True):
        for height, row in enumerate(rows):
            row_points(axes, height, panel.get(row, ()), _style(row, scratch), hollow=row.endswith(scratch))
        for dashes, (name, value) in zip(_DASHES, floors.get(column, {}).items(), strict=False):
            axes.axvline(value, color=GREY, linewidth=1.2, linestyle=(0, dashes), label=name, zorder=0)
        axes.set(title=column, ylim=(len(rows) - 0.4, -0.6))
        axes.set_yticks(range(len(rows)), [_style(row, scratch).label for row in rows])
        axes.tick_params(axis="y", length=0)
    if any(floors.values()):
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    grid[-1, 0].set_xlabel("score, points of 100")
    return figure
