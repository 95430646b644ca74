"""Figure 2 of the paper, drawn from what ``results`` measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from transnormer_lib.show.figures import GREY, STYLE, by_mechanism

_DILUTION: dict[str, Any] = {"color": GREY, "linewidth": 3, "alpha": 0.6, "label": "all visible alike"}


def _label(axes: Axes, names: Sequence[str]) -> None:
    """Label the lines as readers know the architectures, not by their names in configs."""
    handles, texts = axes.get_legend_handles_labels()
    axes.legend(handles, [STYLE[t].label if t in names else t for t in texts], title=None)


def accumulated_scores(curves: pd.DataFrame, names: Sequence[str], dilution: np.ndarray) -> Figure:
    """Figure 2a: score against neighbourhood, mean over seeds; trained with markers, untrained dotted.

    ``curves`` as ``results.curves`` makes it; ``dilution``: the neighbourhoods of uniform attention.
    """
    look = by_mechanism(names)
    figure, axes = plt.subplots(figsize=(6.8, 4.4))
    shared = {"x": "neighbourhood", "y": "score", "hue": "architecture", "orient": "y", "errorbar": None, "ax": axes}
    trained, untrained = (curves[curves.state == state] for state in ("trained", "untrained"))
    sns.lineplot(trained, style="architecture", markevery=9, **shared, **look)
    axes.plot(dilution, np.linspace(0, 1, len(dilution)), **_DILUTION)
    dotted = {"linestyle": ":", "linewidth": 1.1, "legend": False}
    sns.lineplot(untrained, **shared, **dotted, palette=look["palette"], hue_order=names)
    axes.set(xlabel="neighbourhood r (fraction of the sequence)", ylabel="accumulated score l")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    _label(axes, names)
    return figure


def area_per_layer(areas: pd.DataFrame, names: Sequence[str], dilution: float) -> Figure:
    """Area under each layer's curve after training, mean and range over seeds."""
    figure, axes = plt.subplots(figsize=(6.8, 3.9))
    trained = areas[areas.state == "trained"]
    look = {"hue": "architecture", "style": "architecture", **by_mechanism(names)}
    sns.lineplot(trained, x="layer", y="area", errorbar=("pi", 100), ax=axes, **look)
    axes.axhline(dilution, **_DILUTION)
    axes.set(xlabel="layer", ylabel="area under the curve", xticks=sorted(trained.layer.unique()))
    _label(axes, names)
    return figure


def attention_maps(maps: Mapping[str, np.ndarray], *, causal: bool) -> Figure:
    """Figure 2b: one row per architecture, one column per layer; ``maps``: [layers, n, n] each.

    Brightness is the square root of the weight, scaled per panel, so that faint weights stay visible. What a causal
    model cannot see is blank.
    """
    layers = max(len(stack) for stack in maps.values())
    size = (1.75 * layers, 1.8 * len(maps))
    figure, panels = plt.subplots(len(maps), layers, figsize=size, squeeze=False, layout="constrained")
    for number, panel in enumerate(panels[0], start=1):
        panel.set_title(f"layer {number}")
    for row, (name, stack) in zip(panels, maps.items(), strict=True):
        for panel, weights in zip(row, stack, strict=True):
            hidden = np.triu(np.ones_like(weights, dtype=bool), 1) if causal else np.zeros_like(weights, dtype=bool)
            norm = PowerNorm(0.5, vmin=0.0, vmax=float(weights.max()))
            panel.imshow(np.ma.masked_array(weights, hidden), cmap="viridis", norm=norm, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
        row[0].set_ylabel(STYLE[name].label)
    return figure
