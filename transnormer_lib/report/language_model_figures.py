"""The figures of language-model losses and of what decoding costs."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transnormer_lib.report.figures import GREY, STYLE, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from transnormer_lib.analysis.decoding import StepCost

_RELEASED = "+released"  # a row's mark of the released recipe, as studies.autoregressive.released writes it


def row_style(row: str) -> Style:
    """The style of a row: that of its architecture; in the released recipe the label says so."""
    name = row.removesuffix(_RELEASED)
    if name not in STYLE:
        raise ValueError(f"row={row!r}: has no style; there are {', '.join(STYLE)}")
    style = STYLE[name]
    return style if row == name else style._replace(label=f"{style.label}, released")


def losses(bits: Mapping[str, Sequence[float]], ngrams: Mapping[str, float], *, unit: str) -> "Figure":
    """One line per row, first row on top: every finished run a point, their range a line, their mean a bar.

    ``bits`` holds the losses over seeds per row, infinite where a run diverged; such runs are told in words.
    ``ngrams`` are drawn as vertical lines. Rows of the released recipe have hollow points.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.8, 0.42 * len(bits) + 1.2))
    for height, (row, values) in enumerate(bits.items()):
        style, finite = row_style(row), [value for value in values if math.isfinite(value)]
        face = "none" if row.endswith(_RELEASED) else style.colour
        if finite:
            axes.plot([min(finite), max(finite)], [height] * 2, color=style.colour, linewidth=1.2)
            axes.plot([math.fsum(finite) / len(finite)] * 2, [height - 0.28, height + 0.28], color=style.colour)
            axes.plot(
                finite,
                [height] * len(finite),
                style.marker,
                color=style.colour,
                markerfacecolor=face,
                linestyle="none",
            )
        if lost := len(values) - len(finite):
            said = f"{lost} of {len(values)} diverged"
            side = axes.get_yaxis_transform()  # across in fractions of the panel, down in rows
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # over the n-grams' lines
            axes.text(1.0, height, said, transform=side, ha="right", va="center", fontsize="small", bbox=ground)
    for name, value in ngrams.items():
        axes.axvline(value, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            name,
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize="small",
        )
    axes.set(xlabel=f"validation loss, {unit}", ylim=(len(bits) - 0.4, -0.6))
    axes.set_yticks(range(len(bits)), [row_style(row).label for row in bits])
    axes.tick_params(axis="y", length=0)
    return figure


def decoding_cost(costs: Sequence["StepCost"]) -> "Figure":
    """Above: time per token against position, median and range over rounds. Below: numbers held between two tokens."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, (above, below) = plt.subplots(2, 1, figsize=(6.8, 6.4), sharex=True, layout="constrained")
    for name in dict.fromkeys(cost.model for cost in costs):
        mine, style = [cost for cost in costs if cost.model == name], row_style(name)
        positions = [cost.position for cost in mine]
        milliseconds = [[1e3 * seconds for seconds in cost.seconds] for cost in mine]
        above.fill_between(
            positions, list(map(min, milliseconds)), list(map(max, milliseconds)), color=style.colour, alpha=0.18,
            linewidth=0,
        )  # fmt: skip
        above.plot(positions, [1e3 * cost.median for cost in mine], **style.line())
        below.plot(positions, [cost.state_numbers for cost in mine], **style.line())
    above.set(xscale="log", yscale="log", ylabel="milliseconds per token")
    above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    above.yaxis.set_major_formatter("{x:g}")
    above.yaxis.set_minor_formatter(NullFormatter())
    below.set(xscale="log", yscale="log", ylabel="numbers held", xlabel="position (tokens read before)")
    ticks = sorted({cost.position for cost in costs})
    below.set_xticks(ticks, [str(tick) for tick in ticks])
    below.minorticks_off()
    above.legend()
    return figure
