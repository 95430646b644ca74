"""The figures of notebook 12: sheets of pictures, learning curves, and what a pixel and an image cost."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from transnormer_lib.analysis.pixel_speed import Timing, throughputs
from transnormer_lib.show.figures import BLACK, GREY, ORANGE, STYLE, VERMILION, Style
from transnormer_lib.studies.image_generation.results import Curve, Sheet
from transnormer_lib.studies.image_generation.speed import CACHED, LINEAR, LSH_1, LSH_4, SOFTMAX, Factors, step_seconds

_ROWS: Mapping[str, Style] = {
    "softmax": STYLE["softmax"],
    "linear": STYLE["linear"],
    "lsh-1": Style(ORANGE, "^", (2, 1), "LSH, 1 round"),
    "lsh-4": Style(GREY, "v", (2, 1), "LSH, 4 rounds"),
}
_WAYS: Mapping[str, Style] = {
    LINEAR: Style(VERMILION, "s", (5, 2), LINEAR),
    CACHED: Style(BLACK, "o", "", CACHED),
    SOFTMAX: Style(BLACK, "h", (1, 1), SOFTMAX),
    LSH_1: Style(ORANGE, "^", (2, 1), LSH_1),
    LSH_4: Style(GREY, "v", (2, 1), LSH_4),
}


def mosaic(images: NDArray[np.uint8], shape: tuple[int, int, int], columns: int, gap: int = 1) -> NDArray[np.uint8]:
    """One picture [H, W, channels] of images [n, values] side by side, ``columns`` in a line, with light gaps."""
    height, width, channels = shape
    lines = -(-len(images) // columns)
    sheet = np.full((lines * (height + gap) - gap, columns * (width + gap) - gap, channels), 200, np.uint8)
    for index, image in enumerate(images):
        top, left = index // columns * (height + gap), index % columns * (width + gap)
        sheet[top : top + height, left : left + width] = image.reshape(shape)
    return sheet


def _picture(axes: Axes, picture: NDArray[np.uint8]) -> None:
    grey = picture.shape[-1] == 1
    axes.imshow(picture[..., 0] if grey else picture, cmap="gray" if grey else None, vmin=0, vmax=255)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def samples(sheet: Sheet) -> Figure:
    """Unconditional samples, one panel per row."""
    figure, axes = plt.subplots(1, len(sheet.samples), figsize=(2.3 * len(sheet.samples), 2.5), squeeze=False)
    for panel, (row, images) in zip(axes[0], sheet.samples.items(), strict=True):
        _picture(panel, mosaic(images, sheet.shape, columns=4))
        panel.set_title(_ROWS[row].label)
    return figure


def completions(sheet: Sheet) -> Figure:
    """Line by line: the upper halves that were given, each row's completions, the images themselves."""
    given = sheet.originals.copy()
    given[:, given.shape[1] // 2 :] = 110
    lines = {
        "given": given,
        **{_ROWS[row].label: made for row, made in sheet.completions.items()},
        "original": sheet.originals,
    }
    figure, axes = plt.subplots(len(lines), 1, figsize=(6.8, 0.62 * len(lines) + 0.2), squeeze=False)
    for panel, (name, images) in zip(axes[:, 0], lines.items(), strict=True):
        _picture(panel, mosaic(images, sheet.shape, columns=len(images)))
        panel.set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def curves(of: Sequence[Curve], floor: tuple[str, float]) -> Figure:
    """Validation loss of every run against steps, and against seconds of training."""
    figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.2), sharey=True, layout="constrained")
    for panel, label in zip(axes, ("steps", "seconds"), strict=True):
        named = set()
        for curve in of:
            style = _ROWS[curve.row]
            line = style.line() | ({"label": "_"} if curve.row in named else {})
            named.add(curve.row)
            panel.plot(getattr(curve, label), curve.bits, **line)
        panel.axhline(floor[1], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        panel.set(xlabel="optimiser steps" if label == "steps" else "seconds of training")
    axes[0].set_ylabel("bits per dimension")
    axes[0].annotate(floor[0], (0.02, floor[1]), xycoords=("axes fraction", "data"), xytext=(0, 3),
                     textcoords="offset points", fontsize="small")  # fmt: skip
    axes[1].legend()
    return figure


def steps(times: Sequence[Timing]) -> Figure:
    """Microseconds of one pixel of one image against its position, each way at the largest batch timed everywhere."""
    figure, axes = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
    for way, style in _WAYS.items():
        mine = [timing for timing in times if timing.way == way]
        if not mine:
            continue
        seconds = step_seconds(times, way)
        batch = max((t for t in mine if len(t.seconds) == len(seconds)), key=lambda t: t.batch).batch
        points = {at: 1e6 * median(values) / batch for at, values in seconds.items()}
        line = style.line() | {"label": f"{style.label}, {batch} at once"}
        axes.plot(list(points), list(points.values()), **line)
    axes.set(xscale="log", yscale="log", xlabel="position of the pixel", ylabel="µs per pixel and image")
    axes.legend(fontsize="small")
    return figure


def throughput(times: Sequence[Timing], lengths: Sequence[int], of: Mapping[int, Factors]) -> Figure:
    """Images per second of every way, and the lead over softmax without a cache split into its factors, by length."""
    figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.6), layout="constrained")
    best = {pixels: throughputs(times, pixels) for pixels in lengths}
    for way, style in _WAYS.items():
        here = [pixels for pixels in lengths if way in best[pixels]]
        axes[0].plot(here, [median(best[pixels][way].per_round) for pixels in here], **style.line())
    axes[0].set(xscale="log", yscale="log", xlabel="values per image", ylabel="images per second")
    axes[0].legend(fontsize="small")
    parts = {"cache": "missing cache", "recurrence": "recurrence", "batch": "batch that fits"}
    for marker, (name, label) in zip("oD^", parts.items(), strict=True):
        axes[1].plot(list(of), [median(getattr(f, name)) for f in of.values()], marker=marker, label=label)
    axes[1].plot(list(of), [median(f.whole) for f in of.values()], color=BLACK, marker="s", label="all three")
    axes[1].set(xscale="log", yscale="log", xlabel="values per image", ylabel="times faster than softmax, recomputed")
    axes[1].legend(fontsize="small")
    for panel in axes:
        panel.set_xticks(list(lengths), [f"{pixels:,}" for pixels in lengths])
        panel.minorticks_off()
    return figure
