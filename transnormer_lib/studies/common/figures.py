"""Figures that several studies draw: final losses, learning curves, the cost of decoding."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from transnormer_lib.analysis.decoding import StepCost
from transnormer_lib.analysis.seeds import finished, mean
from transnormer_lib.checks import nearest
from transnormer_lib.show.figures import GREY, STYLE, Style
from transnormer_lib.studies.common.language_models import RELEASED


def row_style(row: str) -> Style:
    """The style of a row's architecture; the label says if the recipe is the released one."""
    name = row.removesuffix(RELEASED)
    if name not in STYLE:
        raise ValueError(f"row={row!r}: has no style{nearest(name, STYLE)}")
    style = STYLE[name]
    return style if row == name else style._replace(label=f"{style.label}, released")


def row_points(
    axes: Axes, height: float, values: Sequence[float], style: Style, *, hollow: bool = False, half: float = 0.28
) -> None:
    """Draw the values of one row at ``height``; a text at the right counts the infinite ones, the runs that diverged.

    ``half`` is half the height of the mean's bar; ``hollow`` points are not filled.
    """
    finite = finished(values)
    if finite:
        axes.plot([min(finite), max(finite)], [height] * 2, color=style.colour, linewidth=1.2)
        axes.plot([mean(finite)] * 2, [height - half, height + half], color=style.colour)
        face = "none" if hollow else style.colour
        levels = [height] * len(finite)
        axes.plot(finite, levels, style.marker, color=style.colour, markerfacecolor=face, linestyle="none")
    if lost := len(values) - len(finite):
        side = axes.get_yaxis_transform()  # x in fractions of the panel, y in rows
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # over lines that cross the panel
        said = f"{lost} of {len(values)} diverged"
        axes.text(1.0, height, said, transform=side, ha="right", va="center", fontsize="small", bbox=ground)


def losses(bits: Mapping[str, Sequence[float]], ngrams: Mapping[str, float], *, unit: str) -> Figure:
    """One line per row, first row on top, drawn by ``row_points``: runs, range and mean.

    ``bits``: the losses of each row over its seeds, infinite where a run diverged. ``ngrams``: vertical lines. Rows of
    the released recipe have hollow points.
    """
    figure, axes = plt.subplots(figsize=(6.8, 0.42 * len(bits) + 1.2))
    for height, (row, values) in enumerate(bits.items()):
        row_points(axes, height, values, row_style(row), hollow=row.endswith(RELEASED))
    for name, value in ngrams.items():
        axes.axvline(value, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3), "va": "bottom"}
        axes.annotate(name, (value, 1.0), textcoords="offset points", fontsize="small", ha="center", **place)
    axes.set(xlabel=f"validation loss, {unit}", ylim=(len(bits) - 0.4, -0.6))
    axes.set_yticks(range(len(bits)), [row_style(row).label for row in bits])
    axes.tick_params(axis="y", length=0)
    return figure


def band(panel: Axes, values: pd.DataFrame, x: str, y: str, style: Style) -> None:
    """Mean over the seeds with markers and their range as a band, where every seed is finite.

    ``values`` has the columns ``x`` and ``y``, one line per seed and ``x``.
    """
    by_x = values.groupby(x)[y].agg(["mean", "min", "max"])
    by_x = by_x[np.isfinite(by_x).all(axis=1)]
    panel.plot(by_x.index, by_x["mean"], **style.line())
    panel.fill_between(by_x.index, by_x["min"], by_x["max"], color=style.colour, alpha=0.15, linewidth=0)


def learning_curves(curves: pd.DataFrame, ngrams: Mapping[str, float], *, unit: str) -> Figure:
    """Validation loss against steps: mean and range over seeds, with n-gram models as dashed lines.

    ``curves`` has the columns row, seed, step and bits. Rows of the released recipe get a second panel.
    """
    rows = list(curves.row.unique())
    groups = {
        "as the paper describes them, and matched controls": [r for r in rows if not r.endswith(RELEASED)],
        "as released": [r for r in rows if r.endswith(RELEASED)],
    }
    groups = {title: members for title, members in groups.items() if members}
    size = (6.8, 3.7 * len(groups) + 0.5)
    figure, axes = plt.subplots(len(groups), 1, figsize=size, squeeze=False, sharex=True, layout="constrained")
    for panel, (title, members) in zip(axes[:, 0], groups.items(), strict=True):
        for name, value in ngrams.items():
            panel.axhline(value, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (3, 0), "va": "center"}
            panel.annotate(textwrap.fill(name, 10), (1.0, value), textcoords="offset points", fontsize="small", **place)
        for row in members:
            band(panel, curves[curves.row == row], "step", "bits", row_style(row.removesuffix(RELEASED)))
        panel.set(ylabel=unit)
        panel.set_title(title)
        panel.legend(loc="center left", bbox_to_anchor=(1.17, 0.5))
    axes[-1, 0].set_xlabel("optimiser step")
    return figure


def decoding_cost(costs: Sequence[StepCost]) -> Figure:
    """Time per token (median and range over rounds) and numbers held between tokens, both against the position."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.8, 6.4), sharex=True, layout="constrained")
    for name in dict.fromkeys(cost.model for cost in costs):
        mine, style = [cost for cost in costs if cost.model == name], row_style(name)
        positions = [cost.position for cost in mine]
        milliseconds = [[1e3 * seconds for seconds in cost.seconds] for cost in mine]
        lowest, highest = list(map(min, milliseconds)), list(map(max, milliseconds))
        above.fill_between(positions, lowest, highest, color=style.colour, alpha=0.18, linewidth=0)
        above.plot(positions, [1e3 * cost.median for cost in mine], **style.line())
        below.plot(positions, [cost.state_numbers for cost in mine], **style.line())
    above.set(xscale="log", yscale="log", ylabel="milliseconds per token")
    above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=30))
    above.yaxis.set_major_formatter("{x:g}")
    above.yaxis.set_minor_formatter(NullFormatter())
    below.set(xscale="log", yscale="log", ylabel="numbers held", xlabel="position (tokens read before)")
    ticks = sorted({cost.position for cost in costs})
    below.set_xticks(ticks, [str(tick) for tick in ticks])
    below.minorticks_off()
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
