"""The figures of Table 5 show what they are given, diverged runs too."""

import math

from transnormer_lib.studies.glue import figures as draw


def test_the_leads_have_a_line_per_column_and_one_for_the_average() -> None:
    by_row = {row: {"QQP": 1.0, "CoLA": -2.0} for row in ("transnormer-t1", "transnormer-t2")}
    average = dict.fromkeys(by_row, 0.5)
    (axes,) = draw.leads(by_row, {"QQP": 0.3, "CoLA": None}, average).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["QQP", "CoLA", "average"]
    assert len(axes.patches) == 1  # a bar where there is an error
    points = [line for line in axes.lines if line.get_label().startswith("TransNormer")]
    assert [list(line.get_xdata()) for line in points] == [[1.0, -2.0, 0.5]] * 2


def test_scores_have_a_panel_per_column_and_tell_diverged_runs_in_words() -> None:
    scratch = ", from scratch"
    panels = {
        "QQP": {"linear": [60.0, -math.inf], f"linear{scratch}": [50.0, 55.0]},
        "CoLA": {"linear": [10.0, 20.0], f"linear{scratch}": [0.0, 1.0]},
    }
    figure = draw.scores(panels, {"QQP": {"most common label": 63.0}, "CoLA": {}}, scratch=scratch)
    assert [axes.get_title() for axes in figure.axes] == list(panels)
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["1 of 2 diverged"]
    drawn = [line for axes in figure.axes for line in axes.lines]
    assert all(math.isfinite(float(x)) for line in drawn for x in line.get_xdata())
    hollow = [line for line in drawn if line.get_markerfacecolor() == "none"]
    assert len(hollow) == 2


def test_a_row_without_a_style_of_its_own_is_drawn_under_its_name() -> None:
    (axes,) = draw.scores({"QQP": {"another": [1.0]}}, {"QQP": {}}, scratch=", from scratch").axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["another"]
