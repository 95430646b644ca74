"""The values of a figure: every kind of mark comes back as it was drawn, as CSV that a link saves."""

import csv
import io
import re
from urllib.parse import unquote

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show import figures, values


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def rows(fig: Figure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(values.drawn(fig))))


def places(fig: Figure, series: str) -> list[tuple[float, float]]:
    return [(float(row["x"]), float(row["y"])) for row in rows(fig) if row["series"] == series]


def test_lines_and_points_come_back_by_panel_and_series() -> None:
    fig, (left, right) = plt.subplots(1, 2)
    left.set_title("loss, by step")
    left.plot([1, 2, 3], [0.5, 0.25, 0.125], label="softmax")
    right.set_ylabel("seconds")
    right.scatter([4, 5], [6, 7], label='linear "1+elu"')
    assert places(fig, "softmax") == [(1, 0.5), (2, 0.25), (3, 0.125)]
    assert places(fig, 'linear "1+elu"') == [(4, 6), (5, 7)]
    assert {row["panel"] for row in rows(fig)} == {"loss, by step", "seconds"}


def test_a_line_across_the_panel_has_one_coordinate() -> None:
    fig, ax = plt.subplots()
    ax.axhline(3.5, label="floor")
    ax.axvline(128, label="trained")
    found = {row["series"]: (row["x"], row["y"]) for row in rows(fig)}
    assert found == {"floor": ("", "3.5"), "trained": ("128", "")}


@pytest.mark.parametrize("upright", [True, False], ids=["upright", "lying"])
def test_bars_come_back_at_their_ends(upright: bool) -> None:
    fig, ax = plt.subplots()
    (ax.bar if upright else ax.barh)([0, 1], [3.0, 5.0], label="ours")
    expected = [(0, 3), (1, 5)] if upright else [(3, 0), (5, 1)]
    np.testing.assert_allclose(places(fig, "ours"), expected)


def test_intervals_come_back_at_both_ends() -> None:
    fig, ax = plt.subplots()
    ax.errorbar([1.0], [2.0], yerr=[[0.5], [0.25]], label="mean")
    assert {(float(row["x"]), float(row["y"])) for row in rows(fig)} >= {(1, 1.5), (1, 2.25), (1, 2)}


@pytest.mark.parametrize("draw", ["imshow", "pcolormesh"])
def test_a_picture_of_numbers_comes_back_row_by_row(draw: str) -> None:
    fig, ax = plt.subplots()
    numbers = np.arange(6.0).reshape(2, 3)
    getattr(ax, draw)(numbers)
    assert [(row["x"], row["y"]) for row in rows(fig)] == [("", "0"), ("", "1")]
    np.testing.assert_array_equal([row["value"].split() for row in rows(fig)], numbers.astype(int).astype(str))


def test_a_picture_with_words_at_its_columns_comes_back_value_by_value() -> None:
    fig, ax = plt.subplots()
    ax.imshow(np.arange(4.0).reshape(2, 2))
    ax.set_xticks([0, 1], ["query", "key"])
    found = [(row["x"], row["y"], row["value"]) for row in rows(fig)]
    assert found == [("query", "0", "0"), ("key", "0", "1"), ("query", "1", "2"), ("key", "1", "3")]


@pytest.mark.parametrize("by", ["category", "ticks"])
def test_a_place_with_a_word_at_its_tick_is_named(by: str) -> None:
    fig, ax = plt.subplots()
    if by == "category":
        ax.scatter([1.5, 2.5], ["linear", "softmax"])
    else:
        ax.scatter([1.5, 2.5], [0, 1])
        ax.set_yticks([0, 1], ["linear", "softmax"])
    assert [(row["x"], row["y"]) for row in rows(fig)] == [("1.5", "linear"), ("2.5", "softmax")]


def test_ticks_with_numbers_do_not_replace_the_numbers() -> None:
    fig, ax = plt.subplots()
    ax.plot([1024, 2097153], [1, 2], label="ours")
    ax.set_xticks([1024, 2097153], ["1,024", "2M"])
    assert {row["x"] for row in rows(fig)} >= {"1024"}


def test_a_band_comes_back_with_both_edges() -> None:
    fig, ax = plt.subplots()
    ax.fill_between([1, 2], [3, 4], [5, 6], label="range")
    assert set(places(fig, "range")) >= {(1, 3), (2, 4), (1, 5), (2, 6)}


def test_a_colour_bar_is_no_data() -> None:
    fig, ax = plt.subplots()
    fig.colorbar(ax.imshow(np.zeros((2, 2))))
    assert len(rows(fig)) == 2


def test_large_whole_numbers_keep_their_digits() -> None:
    fig, ax = plt.subplots()
    ax.plot([2097153.0], [0.1234567], label="ours")
    assert [(row["x"], row["y"]) for row in rows(fig)] == [("2097153", "0.123457")]


def test_the_link_holds_the_values_and_stands_below_the_figure() -> None:
    fig, ax = plt.subplots()
    ax.plot([1, 2], [3, 4], label="ours")
    text = values.drawn(fig)
    html = figures.element(fig, caption="What it shows.", alt="A line.", name="demo").html
    saved = re.search(r'download="demo.csv" href="data:text/csv;charset=utf-8,([^"]+)"', html)
    assert saved is not None
    assert unquote(saved[1]) == text


def test_a_figure_without_numbers_or_with_too_many_has_no_link() -> None:
    fig, ax = plt.subplots()
    assert values.link(fig, "demo") == ""
    ax.imshow(np.zeros((400, 400)))
    assert len(values.drawn(fig)) > values.LARGEST
    assert values.link(fig, "demo") == ""
