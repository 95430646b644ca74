"""The figures of speed and memory: cost against length, and the circles of Figure 1."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from transnormer_lib.analysis.arena_speed import Cell
from transnormer_lib.choices import VARIANTS
from transnormer_lib.show.figures import BLACK, BLUE, GREY, STYLE
from transnormer_lib.studies.speed.models import model_of


def _ours(row: str) -> bool:
    return model_of(row) in VARIANTS


@dataclass(frozen=True)
class Line:
    """The cost of one row by length: median, smallest and largest value."""

    row: str
    values: Mapping[int, tuple[float, float, float]]
    stopped: str | None = None  # why there is no longer length: "memory" or "time"


def seconds_of(cells: Sequence[Cell], part: str) -> list[Line]:
    """Lines of the time of a step in milliseconds, median and range over the rounds."""
    return _lines(cells, part, lambda cell: [1e3 * seconds for seconds in cell.seconds])


def memory_of(cells: Sequence[Cell], part: str) -> list[Line]:
    """Lines of the peak of memory in MB."""
    return _lines(cells, part, lambda cell: [] if cell.peak_bytes is None else [cell.peak_bytes / 1e6])


def _lines(cells: Sequence[Cell], part: str, values: Callable[[Cell], list[float]]) -> list[Line]:
    lines = []
    for row in dict.fromkeys(cell.row for cell in cells):
        mine = sorted((cell for cell in cells if (cell.row, cell.part) == (row, part)), key=lambda cell: cell.length)
        found = {cell.length: values(cell) for cell in mine}
        stopped = next((cell.missing for cell in mine if cell.missing), None)
        drawn = {n: (statistics.median(v), min(v), max(v)) for n, v in found.items() if v}
        lines.append(Line(row, drawn, stopped))
    return lines


def printed(seconds: Mapping[str, Mapping[int, float]], lengths: Sequence[int]) -> list[Line]:
    """Lines of published seconds of a step, in milliseconds; a line that ends early is followed by dashes."""
    return [
        Line(
            row, {n: (1e3 * s, 1e3 * s, 1e3 * s) for n, s in own.items()}, "memory" if len(own) < len(lengths) else None
        )
        for row, own in seconds.items()
    ]


def by_length(panels: Mapping[str, Sequence[Line]], *, ylabel: str) -> Figure:
    """A panel per title, both axes logarithmic. Above a last point, a cross means no memory beyond, a bar too slow."""
    figure, axes = plt.subplots(1, len(panels), figsize=(6.8, 4.7), sharey=True, layout="constrained", squeeze=False)
    rows: dict[str, Any] = {}
    for panel, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for line in lines:
            if line.values:
                rows.setdefault(line.row, _draw(panel, line))
        lengths = sorted({n for line in lines for n in line.values})
        panel.set(xscale="log", yscale="log", title=title, xlabel="tokens")
        panel.set_xticks(lengths, [short(n) for n in lengths], rotation=60 if len(lengths) > 6 else 0)
        panel.minorticks_off()
    axes[0][0].set_ylabel(ylabel)
    axes[0][0].yaxis.set_major_formatter("{x:g}")
    figure.legend(rows.values(), [STYLE[row].label for row in rows], loc="outside lower center", ncols=3)
    return figure


def _draw(axes: Axes, line: Line) -> Any:
    style, lengths = STYLE[line.row], sorted(line.values)
    middle, low, high = zip(*(line.values[n] for n in lengths), strict=True)
    wide = {"linewidth": 2.4, "zorder": 4} if _ours(line.row) else {"linewidth": 1.2}
    axes.fill_between(lengths, low, high, color=style.colour, alpha=0.15, linewidth=0)
    (drawn,) = axes.plot(lengths, middle, **{**style.line(), **wide})
    if line.stopped:
        axes.annotate(
            "×" if line.stopped == "memory" else "‒", (lengths[-1], middle[-1]), xytext=(0, 5),
            textcoords="offset points", ha="center", color=style.colour, fontweight="bold",
        )  # fmt: skip
    return drawn


def short(length: int) -> str:
    """A length at an axis."""
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)


@dataclass(frozen=True)
class Bubble:
    """One method: steps per second, score in percent, and bytes where its memory is known."""

    row: str
    speed: float
    score: float
    memory: float | None = None


def measured_bubbles(cells: Sequence[Cell], scores: Mapping[str, float], length: int, part: str) -> list[Bubble]:
    """The rows of ``scores`` that were measured at ``length``."""
    return [
        Bubble(cell.row, 1.0 / cell.median, scores[cell.row], cell.peak_bytes)
        for cell in cells
        if cell.row in scores and (cell.length, cell.part) == (length, part) and cell.seconds
    ]


def bubbles_in_words(panels: Mapping[str, Sequence[Bubble]], row: str) -> str:
    """The places of a row by speed and by score, in every panel that has it."""
    said = []
    for points in panels.values():
        for own in (point for point in points if point.row == row):
            speed = 1 + sum(point.speed > own.speed for point in points)
            score = 1 + sum(point.score > own.score for point in points)
            said.append(f"{speed} and {score} of {len(points)}")
    return f"Place of {row} by speed and score, panel by panel: {'; '.join(said) or 'it is in none'}."


def bubbles(panels: Mapping[str, Sequence[Bubble]], *, xlabel: str, ylabels: Sequence[str]) -> Figure:
    """Figure 1: speed across, score upwards, memory as the circle's area; TransNormer blue and hatched.

    ``ylabels`` name the score of each panel.
    """
    figure, axes = plt.subplots(len(panels), 1, figsize=(6.8, 3.7 * len(panels)), layout="constrained", squeeze=False)
    for panel, (title, points), ylabel in zip(axes[:, 0], panels.items(), ylabels, strict=True):
        known = [point.memory for point in points if point.memory is not None]
        for point in points:
            ours = _ours(point.row)
            area = 60.0 if point.memory is None else max(900.0 * point.memory / max(known), 12.0)
            panel.scatter(
                [point.speed], [point.score], s=area, color="white" if ours else GREY, alpha=1.0 if ours else 0.45,
                edgecolor=BLUE if ours else BLACK, hatch="////" if ours else None, zorder=3,
            )  # fmt: skip
        panel.set(title=title, ylabel=ylabel, xscale="log")
        _log_ticks(panel, [point.speed for point in points])
        panel.margins(x=0.16, y=0.16)
        figure.canvas.draw()
        _name(panel, points)
    axes[-1, 0].set_xlabel(xlabel)
    return figure


def _log_ticks(axes: Axes, values: Sequence[float]) -> None:
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if max(values) / min(values) < 100 else (1.0,)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _name(axes: Axes, points: Sequence[Bubble]) -> None:
    """Put each point's name at the nearest place around it where it covers no point and no name set before."""
    figure: Any = axes.figure
    scale = figure.dpi / 72  # pixels per point; offsets are in points
    centres = [axes.transData.transform((point.speed, point.score)) for point in points]
    taken: list[Bbox] = []
    for point, (x, y) in zip(points, centres, strict=True):
        text: Any = axes.annotate(
            STYLE[point.row].label, (point.speed, point.score), textcoords="offset points", xytext=(0, 0),
            fontsize="small", color=BLUE if _ours(point.row) else BLACK, va="center", zorder=5,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkB": 2},
        )  # fmt: skip
        size = text.get_window_extent(figure.canvas.get_renderer())
        places: list[tuple[int, int, float, float, str, Bbox]] = []
        for distance, angle in product((16, 24, 34, 46, 60), range(0, 360, 30)):
            across, up = distance * math.cos(math.radians(angle)), distance * math.sin(math.radians(angle))
            side = "left" if across > 1 else "right" if across < -1 else "center"
            left = x + scale * across - size.width * {"left": 0.0, "center": 0.5, "right": 1.0}[side]
            box = Bbox.from_bounds(left, y + scale * up - size.height / 2, size.width, size.height).padded(2)
            lost = sum(box.overlaps(other) for other in taken) + sum(box.contains(*other) for other in centres)
            lost += not (axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1)
            lost += not (axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1)
            places.append((lost, len(places), across, up, side, box))
            if not lost:
                break
        _, _, across, up, side, box = min(places, key=lambda place: place[:2])
        text.set_position((across, up))
        text.set_ha(side)
        taken.append(box)
