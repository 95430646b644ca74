"""The figure of the leads as models grow."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transnormer_lib.analysis.seeds import mean
from transnormer_lib.show.figures import GREY, STYLE
from transnormer_lib.studies.autoregressive_lm import growth

_COLUMNS = 2


def leads(losses: growth.Losses, *, unit: str) -> Figure:
    """A panel per lead over the width: a mark per seed, their means, and a thin line per seed."""
    drawn = growth.measured(losses)
    columns = min(_COLUMNS, len(drawn))
    rows = -(-len(drawn) // columns)
    size = (6.8, 0.8 + 2.4 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, sharex=True, squeeze=False, layout="constrained")
    panels = grid.ravel()
    for lead, axes in zip(drawn, panels, strict=False):
        _panel(axes, losses, lead)
    for axes in grid[:, 0]:
        axes.set_ylabel(unit)
    for axes in panels[len(drawn) :]:
        axes.remove()
    for axes in panels[max(0, len(drawn) - columns) : len(drawn)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("width")
    return figure


def _panel(axes: Axes, losses: growth.Losses, lead: growth.Lead) -> None:
    ahead, style = growth.leads(losses, lead), STYLE["transnormer-t2"]
    widths = np.array(sorted(ahead))
    axes.axhline(0.0, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    for slope, start in growth.lines(losses, lead).T:
        axes.plot(widths, slope * np.log2(widths) + start, color=style.colour, alpha=0.35, linewidth=0.8)
    for width in widths:
        axes.plot([width] * len(ahead[width]), ahead[width], style.marker, color=style.colour, alpha=0.7)
        axes.plot([width / 1.06, width * 1.06], [mean(ahead[width])] * 2, color=style.colour, linewidth=2.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.minorticks_off()
    axes.set_title(lead.called[0].upper() + lead.called[1:], fontsize="small")
