"""The figures of Tables 8 to 12 show our runs and the printed numbers, line by line."""

import math

import pytest

from transnormer_lib.studies.ablations import figures as draw

VARIANTS = ("transnormer-t1", "transnormer-t2")
LOSSES = {
    "TransNormer": dict(zip(VARIANTS, ([3.0, 3.1], [2.9, math.inf]), strict=True)),
    "FFN": dict.fromkeys(VARIANTS, ()),
}
PUBLISHED = {"TransNormer": dict(zip(VARIANTS, (3.82, 3.81), strict=True)), "FFN": dict.fromkeys(VARIANTS)}


def points(axes, marker: str) -> list[float]:
    drawn = [line for line in axes.lines if line.get_marker() == marker]
    return [float(x) for line in drawn for x in line.get_xdata()]


def test_every_run_and_every_printed_number_is_a_point() -> None:
    left, right = draw.question(LOSSES, PUBLISHED, {"2-gram": 3.5}, unit="bits per byte").axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["TransNormer", "FFN"]
    assert points(left, "^") == [3.0, 3.1]
    assert points(left, "v") == [2.9]
    assert (points(right, "^"), points(right, "v")) == ([3.82], [3.81])
    assert "1 of 2 diverged" in {text.get_text() for text in left.texts}


def test_lines_of_a_different_table_are_refused() -> None:
    with pytest.raises(ValueError, match="must have the lines of published="):
        draw.question(LOSSES, {"TransNormer": PUBLISHED["TransNormer"]}, {}, unit="bits")
