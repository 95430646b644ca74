"""The figures of notebook 11: Figure 1 (costs by length) and Figure 2 (losses by update)."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from transnormer_lib.show.figures import STYLE
from transnormer_lib.studies.transformers_are_rnns.costs import Cost, by_length

_STYLES = {"softmax": "vanilla-stored", "softmax, fused": "vanilla", "shared": "reformer"}


def _line(row: str) -> dict[str, Any]:
    return {**STYLE[_STYLES.get(row, row)].line(), "label": row}


def costs(found: Sequence[Cost]) -> Figure:
    """Time and peak memory per sample by length, logarithmic axes."""
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
    for ax, of, scale, label in zip(
        axes, ("median", "peak_bytes"), (1e3, 2**-20), ("milliseconds per sample", "MiB per sample"), strict=True
    ):
        for row in dict.fromkeys(cost.row for cost in found):
            points = by_length(found, row, of)
            ax.plot(list(points), [scale * y for y in points.values()], **_line(row))
        ax.set(xscale="log", yscale="log", xlabel="sequence length N", ylabel=label)
        lengths = sorted({cost.length for cost in found})
        ax.set_xticks(lengths, [f"{n:,}" for n in lengths])
        ax.minorticks_off()
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def convergence(curves: pd.DataFrame, floor: Mapping[str, float]) -> Figure:
    """Every run's validation loss by update: the mean of a row as a line with markers, its runs as thin lines."""
    fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for row, of_row in curves.groupby("row", sort=False):
        style = _line(str(row))
        for _, run in of_row.groupby("seed"):
            ax.plot(run["step"], run["bits"], color=style["color"], alpha=0.3, linewidth=0.8)
        means = of_row.groupby("step")["bits"].mean()
        ax.plot(means.index, means.to_numpy(), **style)
    for name, bits in floor.items():
        ax.axhline(bits, color="black", linestyle=":", label=name)
    ax.set(xlabel="update", ylabel="bits per target")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def state_growth(numbers: Mapping[str, Mapping[int, int]]) -> Figure:
    """Numbers in the recurrent state by position, per row."""
    fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for row, points in numbers.items():
        ax.plot(list(points), list(points.values()), **_line(row))
    ax.set(xscale="log", yscale="log", xlabel="tokens read", ylabel="numbers in the state of a head")
    ax.legend()
    return fig
