"""The figure of the lead as models grow."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.analysis.seeds import mean
from transnormer_lib.show.figures import GREY, STYLE
from transnormer_lib.studies.autoregressive_lm import growth


def leads(losses: growth.Losses, *, unit: str) -> Figure:
    """T2's lead over softmax attention by width: a mark per seed, their means, and a thin line per seed."""
    ahead, style = growth.leads(losses), STYLE["transnormer-t2"]
    widths = np.array(sorted(ahead))
    figure, axes = plt.subplots(figsize=(6.8, 3.2))
    axes.axhline(0.0, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    for slope, start in growth.lines(losses).T:
        axes.plot(widths, slope * np.log2(widths) + start, color=style.colour, alpha=0.35, linewidth=0.8)
    for width in widths:
        axes.plot([width] * len(ahead[width]), ahead[width], style.marker, color=style.colour, alpha=0.7)
        axes.plot([width / 1.06, width * 1.06], [mean(ahead[width])] * 2, color=style.colour, linewidth=2.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.minorticks_off()
    axes.set(xlabel="width", ylabel=f"T2 ahead by, {unit}")
    return figure
