"""Figures of the speech study."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from transnormer_lib.data.speech import SpeechTask, normalised
from transnormer_lib.data.spoken_digits import SpokenDigits
from transnormer_lib.show.figures import GREY
from transnormer_lib.studies.common.figures import band, row_points, row_style


def utterance(task: SpeechTask, seed: int) -> tuple[Figure, str]:
    """One training utterance as the models see it, and what it says."""
    frames, symbols = task.example("train", np.random.default_rng(seed))
    figure, axes = plt.subplots(figsize=(6.8, 2.6))
    _drawn(figure, axes, frames).set(ylabel="filterbank")
    return figure, "".join(task.symbols[symbol] for symbol in symbols)


def string(task: SpokenDigits, seed: int) -> tuple[Figure, str]:
    """One training string as the models see it, with the digits above their recordings; and the digits."""
    parts = task.string("train", np.random.default_rng(seed))
    pieces = [piece for number, pause in parts for piece in (pause, task.recordings.recording(number))]
    frames, ends = normalised(np.concatenate(pieces)), np.cumsum([len(piece) for piece in pieces])
    figure, axes = plt.subplots(figsize=(6.8, 2.6))
    _drawn(figure, axes, frames).set(ylabel="coefficient")
    said = ""
    for (number, _), (start, end) in zip(parts, list(pairwise([0, *ends]))[1::2], strict=True):
        digit = str(task.recordings.digits[number])
        axes.axvline(start - 0.5, color="white", linewidth=1)
        axes.axvline(end - 0.5, color="white", linewidth=1, linestyle=":")
        axes.text((start + end) / 2, 12.8, digit, ha="center", va="bottom")
        said += digit
    return figure, said


def _drawn(figure: Figure, axes: Axes, frames_NF: NDArray[np.float32]) -> Axes:
    drawn = axes.imshow(frames_NF.T, aspect="auto", origin="lower", cmap="cividis", vmin=-3, vmax=3)
    axes.set(xlabel="frame")
    figure.colorbar(drawn, ax=axes, label="deviations from the mean")
    return axes


def errors(by_row: Mapping[str, Sequence[float]], lines: Mapping[str, float]) -> Figure:
    """Error rates in percent: one line per row with a point per run, and vertical lines by name."""
    figure, axes = plt.subplots(figsize=(6.8, 0.42 * len(by_row) + 1.2))
    for height, (row, values) in enumerate(by_row.items()):
        row_points(axes, height, values, row_style(row))
    for name, value in lines.items():
        axes.axvline(value, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(name, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3), va="bottom", ha="center",
                      textcoords="offset points", fontsize="small")  # fmt: skip
    axes.set(xlabel="error rate on the test, %", ylim=(len(by_row) - 0.4, -0.6))
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(by_row)), [row_style(row).label for row in by_row])
    axes.tick_params(axis="y", length=0)
    return figure


def curves(frame: pd.DataFrame, floor: float) -> Figure:
    """Validation error in percent against steps, the mean and range over seeds; the floor is dashed."""
    figure, axes = plt.subplots()
    for row in frame.row.unique():
        band(axes, frame[frame.row == row], "step", "error", row_style(row))
    axes.axhline(floor, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="constant string")
    axes.set(xlabel="optimiser step", ylabel="error rate on validation, %")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def step_times(ratios: Mapping[str, NDArray[np.float64]], printed: Mapping[str, float]) -> Figure:
    """The time of a step over linear attention's: a point per round, and what Table 3 prints as a cross."""
    figure, axes = plt.subplots(figsize=(6.8, 0.42 * len(ratios) + 1.2))
    for height, (row, values) in enumerate(ratios.items()):
        row_points(axes, height, list(values), row_style(row))
        axes.plot([printed[row]], [height], "x", color="black", markersize=9)
    axes.set(xlabel="time over linear attention's (cross: Table 3)", ylim=(len(ratios) - 0.4, -0.6))
    axes.set_yticks(range(len(ratios)), [row_style(row).label for row in ratios])
    axes.tick_params(axis="y", length=0)
    return figure
