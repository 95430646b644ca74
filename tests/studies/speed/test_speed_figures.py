"""The figures of speed show every value, and names that can be read."""

import itertools

import matplotlib as mpl
import pytest

mpl.use("agg")
from matplotlib.text import Annotation

from transnormer_lib.analysis.arena_speed import Cell
from transnormer_lib.choices import VARIANTS
from transnormer_lib.show.figures import STYLE
from transnormer_lib.studies.speed import figures as draw
from transnormer_lib.studies.speed import published
from transnormer_lib.studies.speed.models import ADDED, PLAIN, TABLE_7

CELLS = (
    Cell("vanilla", 1024, "training", (0.2, 0.1, 0.4), 6_000_000),
    Cell("vanilla", 2048, "training", missing="memory", reason="none"),
    Cell("linear", 1024, "training", (0.1,)),
    Cell("linear", 2048, "training", (0.2,), 2_000_000),
)


def test_lines_hold_the_median_and_range_of_rounds_and_where_a_row_ends() -> None:
    vanilla, linear = draw.seconds_of(CELLS, "training")
    assert vanilla.values == {1024: pytest.approx((200.0, 100.0, 400.0))}
    assert (vanilla.stopped, linear.stopped) == ("memory", None)
    assert draw.memory_of(CELLS, "training")[1].values == {2048: (2.0, 2.0, 2.0)}


def test_a_published_row_with_dashes_ends_where_they_begin() -> None:
    lines = {line.row: line for line in draw.printed({"a": {1: 0.1}, "b": {1: 0.1, 2: 0.2}}, (1, 2))}
    assert (lines["a"].stopped, lines["b"].stopped) == ("memory", None)


def test_every_row_is_drawn_once_a_panel_and_named_once() -> None:
    figure = draw.by_length({part: draw.seconds_of(CELLS, "training") for part in ("one", "two")}, ylabel="ms")
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [STYLE[row].label for row in ("vanilla", "linear")]
    assert [text.get_text() for text in figure.axes[0].texts] == ["×"]


def test_names_beside_the_circles_of_figure_1_do_not_overlap() -> None:
    scores = published.average_scores()
    points = [
        draw.Bubble(row, speed, scores[row], 1e6 * speed)
        for row in published.PUBLISHED
        if (speed := published.speed(row, 2048, "training"))
    ]
    figure = draw.bubbles({"published": points}, xlabel="speed", ylabels=["score"])
    figure.canvas.draw()
    names = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert sorted(text.get_text() for text in names) == sorted(STYLE[point.row].label for point in points)
    boxes = [text.get_bbox_patch() or text for text in names]
    extents = [mpl.text.Text.get_window_extent(box) for box in boxes]  # type: ignore[arg-type]
    overlapping = [(i, j) for (i, a), (j, b) in itertools.combinations(enumerate(extents), 2) if a.overlaps(b)]
    assert overlapping == []


def test_circles_have_areas_in_proportion_to_memory() -> None:
    points = [draw.Bubble("vanilla", 1.0, 50.0, 4e8), draw.Bubble("linear", 2.0, 60.0, 1e8)]
    figure = draw.bubbles({"ours": points}, xlabel="", ylabels=[""])
    large, small = [collection.get_sizes()[0] for collection in figure.axes[0].collections]  # type: ignore[attr-defined]
    assert large / small == pytest.approx(4.0)


@pytest.mark.parametrize("row", [*VARIANTS, *PLAIN])
def test_transnormer_is_marked_with_and_without_kernels_and_1_plus_elu_is_not(row: str) -> None:
    figure = draw.bubbles({"ours": [draw.Bubble(row, 1.0, 50.0)]}, xlabel="", ylabels=[""])
    assert bool(figure.axes[0].collections[0].get_hatch()) == row.startswith("transnormer")


@pytest.mark.parametrize("row", [*TABLE_7, *ADDED, *PLAIN])
def test_every_row_that_is_measured_has_a_style(row: str) -> None:
    assert STYLE[row].label


def test_only_measured_rows_with_a_score_become_circles() -> None:
    found = draw.measured_bubbles(CELLS, {"vanilla": 57.37}, 1024, "training")
    assert [(b.row, b.speed, b.score, b.memory) for b in found] == [("vanilla", 5.0, 57.37, 6_000_000)]


def test_places_in_figure_1_are_told_for_every_panel_that_has_the_row() -> None:
    first = [draw.Bubble("linear", 2.0, 40.0), draw.Bubble("vanilla", 1.0, 50.0), draw.Bubble("flash", 0.5, 45.0)]
    said = draw.bubbles_in_words({"print": first, "here": first[1:], "ours": first[:1]}, "vanilla")
    assert said == "Place of vanilla by speed and score, panel by panel: 2 and 1 of 3; 1 and 1 of 2."
    assert draw.bubbles_in_words({"print": first}, "gau").endswith("panel by panel: it is in none.")
