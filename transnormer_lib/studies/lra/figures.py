"""The figures of the Long Range Arena: Table 6's averages, and what the tasks look like."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from transnormer_lib.analysis.listops_steps import Step
from transnormer_lib.data.pathfinder import Scenes
from transnormer_lib.show.figures import BLUE, GREY, VERMILION


def published_averages(averages: Mapping[str, float], marked: Sequence[str]) -> Figure:
    """The average column of Table 6 as points, highest on top; ``marked`` methods in colour and with a triangle."""
    ranked = sorted(averages, key=lambda name: -averages[name])
    figure, axes = plt.subplots(figsize=(6.8, 0.27 * len(ranked) + 0.9))
    for height, name in enumerate(ranked):
        ours = name in marked
        axes.plot([averages[name]], [height], "v" if ours else "o", color=BLUE if ours else GREY)
        axes.annotate(f"{averages[name]:.2f}", (averages[name], height), xytext=(7, 0), textcoords="offset points",
                      va="center", fontsize="small")  # fmt: skip
    axes.set_yticks(range(len(ranked)), ranked)
    axes.set(xlabel="average of Table 6, percent (published)", ylim=(len(ranked) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    return figure


def tree(steps: Sequence[Step]) -> Figure:
    """A ListOps tree with the value of every operator: the root on top, arguments from left to right.

    ``steps`` are all nodes, a parent before its children (``analysis.listops_steps``).
    """
    depth = max(step.depth for step in steps)
    across = {step.number: step.place for step in steps}
    figure, axes = plt.subplots(figsize=(6.8, 1.0 * depth + 1.0))
    for step in steps:
        at = (across[step.number], -step.depth)
        if step.parent is not None:
            above = (across[step.parent], 1 - step.depth)
            axes.plot([above[0], at[0]], [above[1], at[1]], color=GREY, linewidth=1.0, zorder=1)
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": BLUE if step.operator else GREY}
        text = f"{step.operator} = {step.value}" if step.operator else str(step.value)
        axes.text(*at, text, ha="center", va="center", bbox=box, zorder=2, fontsize="medium" if step.operator else None)
    last = max(across.values())
    axes.set(xlim=(-0.7, last + 0.7), ylim=(-depth - 0.5, 0.5))
    axes.axis("off")
    return figure


def pathfinder(scenes: Scenes, count: int) -> Figure:
    """``count`` images of each label: above as the model reads them, below with the two long snakes coloured."""
    chosen = [int(i) for label in (1, 0) for i in np.flatnonzero(scenes.labels == label)[:count]]
    if len(chosen) != 2 * count:
        raise ValueError(f"count={count!r}: the scenes have fewer images of one label")
    figure, panels = plt.subplots(2, len(chosen), figsize=(6.8, 6.8 * 2.25 / len(chosen)), layout="constrained")
    for column, index in enumerate(chosen):
        above, below = panels[:, column]
        above.imshow(scenes.images[index], cmap="gray", vmin=0, vmax=255)
        below.imshow(255 - scenes.images[index] // 4, cmap="gray", vmin=0, vmax=255)
        for snake, colour, dashes in zip(scenes.snakes[index], (BLUE, VERMILION), ("-", ":"), strict=True):
            middles = snake.mean(axis=1)  # of the dashes, [contour_length, 2]
            below.plot(middles[:, 1], middles[:, 0], dashes, color=colour, linewidth=1.8)
        below.plot(scenes.markers[index, :, 1], scenes.markers[index, :, 0], "o", color="#000000", markersize=4)
        above.set_title(f"label {scenes.labels[index]}: " + ("one snake" if scenes.labels[index] else "two snakes"))
        for axes in (above, below):
            axes.set(xticks=[], yticks=[])
    return figure


def image_as_sequence(image: NDArray[Any], row: int, block: int) -> Figure:
    """Left: an image [M, M] with one pixel row framed. Right: its grey values in the order in which a model reads them;
    vertical lines separate blocks of ``block`` tokens."""
    size = image.shape[1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.4), width_ratios=[1, 2.6], layout="constrained")
    left.imshow(image, cmap="gray", vmin=0, vmax=int(image.max()))
    left.add_patch(plt.Rectangle((-0.5, row - 0.5), size, 1, fill=False, edgecolor=VERMILION, linewidth=1.8))
    left.set(xticks=[], yticks=[])
    flat = image.reshape(-1)
    right.plot(np.arange(flat.size), flat, color=GREY, linewidth=0.9)
    here = np.arange(row * size, (row + 1) * size)
    right.plot(here, flat[here], color=VERMILION, linewidth=1.8)
    for end in range(block, flat.size, block):
        right.axvline(end - 0.5, color=GREY, linewidth=0.4, alpha=0.6)
    right.set(xlabel="position in the sequence", ylabel="grey value", xlim=(0, flat.size - 1))
    return figure
