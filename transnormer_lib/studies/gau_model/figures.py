"""The figures of notebook 15."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.analysis.seeds import finished, mean
from transnormer_lib.show.figures import BLUE, GREY, VERMILION
from transnormer_lib.studies.common.figures import row_style


def leads(pairs: Mapping[str, Mapping[str, float]], averages: Mapping[str, float]) -> Figure:
    """Points ahead by column, a panel per pair of models; the line is the lead in the average."""
    figure, panels = plt.subplots(1, len(pairs), figsize=(6.8, 3.6), sharey=True, layout="constrained", squeeze=False)
    for axes, (title, by_column) in zip(panels[0], pairs.items(), strict=True):
        places = range(len(by_column))
        colours = [BLUE if lead > 0 else VERMILION for lead in by_column.values()]
        axes.barh(places, list(by_column.values()), color=colours, height=0.62)
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.axvline(averages[title], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            f"average {averages[title]:+.2f}", (averages[title], 1.0), xycoords=("data", "axes fraction"),
            xytext=(0, 3), textcoords="offset points", ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
        axes.set_yticks(places, [column.upper() for column in by_column])
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel=title, ylim=(len(by_column) - 0.4, -0.6))
    return figure


def picture(bits: Mapping[str, Sequence[float]], kinds: Mapping[str, Mapping[str, float]]) -> Figure:
    """Loss against microseconds per token, a panel per kind of cost; rows that were not trained are marks at the top.

    A vertical line is the range over the seeds. Left and down is better.
    """
    figure, panels = plt.subplots(
        len(kinds), 1, figsize=(6.8, 2.7 * len(kinds) + 0.6), sharey=True, layout="constrained", squeeze=False
    )
    for axes, (title, by_row) in zip(panels[:, 0], kinds.items(), strict=True):
        for row, cost in by_row.items():
            style = row_style(row)
            values = finished(bits.get(row, ()))
            shown = {"color": style.colour, "marker": style.marker, "linestyle": "none", "label": style.label}
            if values:
                axes.plot([cost, cost], [min(values), max(values)], color=style.colour, linewidth=1.2)
                axes.plot([cost], [mean(values)], markersize=8, **shown)
            else:
                axes.plot([cost], [1.0], transform=axes.get_xaxis_transform(), clip_on=False, markersize=8, **shown)
        axes.set(xscale="log", xlabel=f"{title}: microseconds per token", ylabel="bits per byte")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="x", which="both", labelsize="small")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
