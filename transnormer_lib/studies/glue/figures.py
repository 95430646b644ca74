"""The figure of Table 5's leads."""

from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show.figures import GREY
from transnormer_lib.studies.common.figures import row_style


def leads(
    by_row: Mapping[str, Mapping[str, float]], errors: Mapping[str, float | None], average: Mapping[str, float]
) -> Figure:
    """How many points each of two rows leads softmax attention by: a line per column, one for the average below.

    ``errors`` hold half the width of the grey bar about 0 by column; None: no bar.
    """
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
