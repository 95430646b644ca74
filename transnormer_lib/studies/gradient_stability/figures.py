"""The figures of notebook 02: losses, and gradients in each reading of Table 2."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from torch import Tensor

from transnormer_lib.show.figures import BLUE, GREY, ORANGE, STYLE, Style
from transnormer_lib.studies.common.figures import band
from transnormer_lib.studies.common.language_models import Floor
from transnormer_lib.studies.gradient_stability.results import NORMS
from transnormer_lib.studies.gradient_stability.runs import parts

# NormAttention with other norms than RMSNorm, each with its own look.
_OTHER_NORMS = {
    "layer": Style(ORANGE, "^", (2, 1), "NormAttention, LayerNorm"),
    "layer-written": Style(BLUE, "D", (2, 1), "NormAttention, LayerNorm written out"),
    "scale": Style(GREY, "v", (6, 2), "NormAttention, ScaleNorm"),
}
_MOST_POINTS = 1500  # of one trace; the figure has fewer pixels


def look(row: str) -> Style:
    """The colour, marker and line of a row. Rotations share a look; each has its own panel."""
    architecture, norm, _ = parts(row)
    return STYLE[architecture] if norm == "rms" else _OTHER_NORMS[norm]


def title(rotary: str) -> str:
    """The title of a panel: the positions of its rows."""
    return "absolute positions only" if rotary == "none" else f"queries and keys rotated ({rotary})"


def _by_rotation(rows: Sequence[str]) -> dict[str, list[str]]:
    return {
        rotary: [r for r in rows if parts(r).rotary == rotary]
        for rotary in dict.fromkeys(parts(r).rotary for r in rows)
    }


def _stacked(panels: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Panels below each other, so that each stays as wide as the page on a phone."""
    figure, axes = plt.subplots(
        panels, 1, figsize=(6.8, height * panels + 0.4), squeeze=False, layout="constrained", **options
    )
    return figure, list(axes[:, 0])


def _legend_below(figure: Figure, axes: Sequence[Axes], columns: int = 2) -> None:
    """One legend for all panels, below them."""
    entries: dict[str, Any] = {}
    for panel in axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {text: handle for text, handle in zip(labels, handles, strict=True) if text not in entries}
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)


def learning_curves(curves: pd.DataFrame, floor: Floor) -> Figure:
    """Validation loss against steps: mean and range over seeds, a panel per rotation, the floor in grey."""
    groups = _by_rotation(list(curves.row.unique()))
    figure, axes = _stacked(len(groups), 3.6, sharex=True)
    for panel, (rotary, rows) in zip(axes, groups.items(), strict=True):
        panel.axhline(floor.bits, color=GREY, linewidth=3, alpha=0.6, label=floor.name)
        for row in rows:
            band(panel, curves[curves.row == row], "step", "bits", look(row))
        panel.set(ylabel="bits per masked token")
        panel.set_title(title(rotary))
    axes[-1].set_xlabel("optimiser step")
    _legend_below(figure, axes)
    return figure


def differences_over_steps(differences: Mapping[tuple[str, str], pd.DataFrame]) -> Figure:
    """How far one row is ahead of another at each waypoint, with the 95% interval; a panel per ``worse``.

    ``differences``: for (better, worse) what ``results.differences_by_step`` returns.
    """
    behind = list(dict.fromkeys(worse for _, worse in differences))
    figure, axes = _stacked(len(behind), 3.1, sharex=True)
    for panel, worse in zip(axes, behind, strict=True):
        panel.axhline(0, color=GREY, linewidth=1.2)
        compared = {better: frame for (better, other), frame in differences.items() if other == worse}
        last = max(frame.step.max() for frame in compared.values())
        for position, (better, frame) in enumerate(compared.items()):
            style = look(better)
            shift = (position - (len(compared) - 1) / 2) * 0.012 * last  # keeps the intervals apart
            reach = np.abs(frame[["low", "high"]].to_numpy().T - frame["ahead by"].to_numpy())
            panel.errorbar(frame.step + shift, frame["ahead by"], yerr=reach, capsize=3, elinewidth=1.2, **style.line())
        name = look(worse).label
        panel.set(ylabel="bits ahead")
        panel.set_title(f"ahead of {name}, {title(parts(worse).rotary)}")
    axes[-1].set_xlabel("optimiser step")
    _legend_below(figure, axes)
    return figure


def norm_traces(traces: Mapping[str, Tensor], warmup: int, clip_norm: float) -> Figure:
    """The norm of the whole gradient at every step of one run per row: raw (faint) and its running mean.

    Two panels side by side, one per row, with the same log scale. The warm-up is shaded; the dotted line is the norm
    that larger gradients are clipped to after they are measured.
    """
    lines = math.ceil(len(traces) / 2)
    figure, axes = plt.subplots(
        lines, 2, figsize=(6.8, 1.9 * lines + 0.4), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for panel, above in zip(axes.flat[len(traces) :], axes.flat[len(traces) - 2 :], strict=False):
        panel.set_axis_off()
        above.xaxis.set_tick_params(labelbottom=True)
    for panel, (row, norms_T) in zip(axes.flat, traces.items(), strict=False):
        style, norms = look(row), norms_T.double().numpy()
        norms = np.where(np.isfinite(norms) & (norms > 0), norms, np.nan)
        steps = np.arange(1, len(norms) + 1)
        every = max(math.ceil(len(norms) / _MOST_POINTS), 1)
        panel.axvspan(0, warmup, color=GREY, alpha=0.15, linewidth=0)
        if clip_norm:
            panel.axhline(clip_norm, color=GREY, linewidth=1.2, linestyle=":")
        panel.plot(steps[::every], norms[::every], color=style.colour, alpha=0.35, linewidth=0.6)
        panel.plot(steps[::every], _running_mean(norms)[::every], color=style.colour, linewidth=1.8)
        panel.set_yscale("log")
        panel.set_title(style.label, fontsize=9.5)
    figure.supxlabel("optimiser step", fontsize=10.5)
    figure.supylabel("norm of the gradient", fontsize=10.5)
    return figure


def _running_mean(values: np.ndarray) -> np.ndarray:
    """The geometric mean around each step, over a window of 1/25 of the run."""
    window = max(len(values) // 25, 1)
    return np.exp(pd.Series(np.log(values)).rolling(window, center=True, min_periods=1).mean().to_numpy())


def deviation_per_layer(deviations: pd.DataFrame) -> Figure:
    """The main reading for each block's own gradient: mean over the seeds, range as a band."""
    groups = _by_rotation(list(deviations.row.unique()))
    figure, axes = _stacked(len(groups), 3.3, sharex=True)
    for panel, (rotary, rows) in zip(axes, groups.items(), strict=True):
        for row in rows:
            band(panel, deviations[deviations.row == row], "layer", "deviation", look(row))
        panel.set(ylabel="relative deviation")
        panel.set_title(title(rotary))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
    axes[-1].set_xlabel("layer")
    _legend_below(figure, axes)
    return figure


def ranks(means: pd.DataFrame, published: Mapping[str, float]) -> Figure:
    """Each row's place by steadiness under every definition, the published order on top; a panel per rotation.

    ``means``: a line per definition, a column per row. ``published``: Table 2's deviations; rows with the same number
    share a place. NormAttention with other norms is left out.
    """
    definitions = list(means.index)
    groups = _by_rotation([row for row in means.columns if parts(row).norm == "rms"])
    figure, axes = _stacked(len(groups), 0.4 * len(definitions) + 1.2, sharex=True)
    for panel, (rotary, rows) in zip(axes, groups.items(), strict=True):
        places = means[rows].rank(axis=1, method="average")
        theirs = places.columns.to_series().map(published).rank(method="average")
        for position, row in enumerate(rows):
            nudge = (position - (len(rows) - 1) / 2) * 0.03  # keeps rows in the same place visible
            marked = {"markersize": 9, "linewidth": 1.6} | look(row).line()
            panel.plot(places[row] + nudge, np.arange(1, len(definitions) + 1), **marked)
            tied = [other for other in rows if theirs[other] == theirs[row]]
            apart = 0.2 * (tied.index(row) - (len(tied) - 1) / 2) if tied else 0.0
            panel.plot([theirs[row] + apart], [0], **(marked | {"label": "_"}))
        panel.axhline(0.5, color=GREY, linewidth=1)
        panel.set_yticks(range(len(definitions) + 1), ["Table 2", *definitions])
        panel.get_yticklabels()[0].set_fontstyle("italic")
        panel.set(ylim=(len(definitions) + 0.5, -0.6), xlim=(0.5, len(rows) + 0.5), xticks=range(1, len(rows) + 1))
        panel.set_title(title(rotary))
    axes[-1].set_xlabel("place (1: the steadiest gradients)")
    _legend_below(figure, axes)
    return figure


def round_times(seconds: Mapping[str, Sequence[float]], alone: Mapping[str, Sequence[float]]) -> Figure:
    """One dot per round, forward and backward: NormAttention with each norm above, the norms alone below."""
    figure, axes = _stacked(2, 1.7)
    for panel, times, text in zip(axes, (seconds, alone), ("NormAttention", "the norm alone"), strict=True):
        for position, (norm, values) in enumerate(times.items()):
            style = STYLE["norm-t2"] if norm == "rms" else _OTHER_NORMS[norm]
            milliseconds = 1e3 * np.asarray(values)
            panel.plot(milliseconds, np.full(len(values), position), style.marker, color=style.colour, alpha=0.7)
            panel.plot([np.median(milliseconds)] * 2, [position - 0.3, position + 0.3], color=style.colour)
        panel.set_yticks(range(len(times)), [NORMS[norm] for norm in times])
        panel.set(ylim=(len(times) - 0.5, -0.5), xlim=(0, 1.05e3 * max(max(values) for values in times.values())))
        panel.set_title(text)
    axes[-1].set_xlabel("milliseconds, forward and backward")
    return figure
