"""The numbers that a figure draws, as CSV: what a reader takes away to draw it anew."""

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from matplotlib.collections import PolyCollection

from transnormer_lib.show.data_uri import data_uri
from transnormer_lib.show.templating import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 200_000  # characters; a page holds several figures and stays below two megabytes
_COLUMNS = ("panel", "series", "x", "y", "value")

Row = tuple[str, str, Any, Any, Any]


def drawn(fig: "Figure") -> str:
    """The lines, points, bars, intervals, bands and pictures of ``fig`` as CSV.

    One line a point: the panel by its title, or by its vertical axis, the series by its label, and the place. Where an
    axis has words at its ticks, the place is the word. A band is its outline. A picture has one line a row, with the
    values of all its columns in three digits, more than its colours tell, apart by spaces; where its columns have
    words, one line a value. Empty where nothing is drawn in the panels' own units.
    """
    panels = [ax for ax in fig.axes if not hasattr(ax, "_colorbar")]  # a colour bar is a legend, not data
    rows = [row for number, ax in enumerate(panels, 1) for row in _named(ax, _of_panel(ax, _name(ax, number)))]
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([[_text(cell) for cell in row] for row in rows])
    return text.getvalue()


def link(fig: "Figure", name: str) -> Markup:
    """A link that saves :func:`drawn` as ``NAME.csv``; empty for a figure without numbers, or with too many."""
    text = drawn(fig)
    if not text or len(text) > LARGEST:
        return Markup()
    return render("show/templates/values.html.j2", name=name, source=data_uri("text/csv;charset=utf-8", text))


def _named(ax: "Axes", rows: Iterator[Row]) -> Iterator[Row]:
    """The rows with the words that stand at an axis' ticks in place of the numbers."""
    words_x, words_y = _words(ax.xaxis), _words(ax.yaxis)
    for panel, series, x, y, value in rows:
        yield panel, series, words_x.get(x, x), words_y.get(y, y), value


def _words(axis: Any) -> dict[Any, str]:
    """The words at the ticks of an axis, by their places; a text that begins with no letter is a number's."""
    places = list(axis.get_majorticklocs())
    texts = axis.get_major_formatter().format_ticks(places)
    return {place: text for place, text in zip(places, texts, strict=True) if text[:1].isalpha()}


def _of_panel(ax: "Axes", panel: str) -> Iterator[Row]:
    for line in ax.lines:
        inside = line.get_transform() == ax.transData  # a line across the whole panel has one coordinate only
        xs, ys = (np.asarray(values, dtype=object) for values in line.get_data(orig=False))
        if inside:
            yield from ((panel, _label(line), x, y, "") for x, y in zip(xs, ys, strict=True))
        elif line.get_transform() == ax.get_yaxis_transform():
            yield panel, _label(line), "", ys[0], ""
        elif line.get_transform() == ax.get_xaxis_transform():
            yield panel, _label(line), xs[0], "", ""
    for container in ax.containers:
        if hasattr(container, "patches"):
            upright = getattr(container, "orientation", "vertical") != "horizontal"
            for bar in container.patches:
                middle = (bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2)
                end = (
                    (middle[0], bar.get_y() + bar.get_height())
                    if upright
                    else (bar.get_x() + bar.get_width(), middle[1])
                )
                yield panel, _label(container), *end, ""
    for collection in ax.collections:
        yield from _of_collection(ax, panel, collection)
    for image in ax.images:
        values: Any = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
        yield from _of_grid(ax, panel, _label(image), values)


def _of_collection(ax: "Axes", panel: str, collection: Any) -> Iterator[Row]:
    label = _label(collection)
    if hasattr(collection, "get_segments"):  # the whiskers of intervals
        for segment in collection.get_segments():
            yield from ((panel, label, x, y, "") for x, y in segment)
    elif hasattr(collection, "get_coordinates"):  # a heat map
        values: Any = np.ma.filled(np.ma.asarray(collection.get_array(), dtype=float), np.nan)
        rows, columns = (size - 1 for size in collection.get_coordinates().shape[:2])
        yield from _of_grid(ax, panel, label, values.reshape(rows, columns))
    elif isinstance(collection, PolyCollection):  # a band between two curves
        for path in collection.get_paths():
            yield from ((panel, label, x, y, "") for x, y in np.asarray(path.vertices))
    elif len(collection.get_offsets()) and collection.get_offset_transform() == ax.transData:
        yield from ((panel, label, x, y, "") for x, y in np.ma.filled(collection.get_offsets(), np.nan))


def _of_grid(ax: "Axes", panel: str, label: str, values: "np.ndarray[Any, Any]") -> Iterator[Row]:
    if values.ndim != 2:  # a picture in colours has no numbers to take away
        return
    named = _words(ax.xaxis)
    for row, line in enumerate(values):
        if named:
            yield from ((panel, label, column, row, value) for column, value in enumerate(line))
        else:
            yield panel, label, "", row, " ".join(_text(value, 3) for value in line)


def _name(ax: "Axes", number: int) -> str:
    return ax.get_title() or ax.get_title(loc="left") or ax.get_ylabel() or f"panel {number}"


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _text(value: Any, digits: int = 6) -> str:
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else f"{number:.{digits}g}"
