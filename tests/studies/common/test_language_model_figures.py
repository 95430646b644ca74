"""The figures of losses and of decoding cost show what they are given, diverged runs too."""

import math

import pandas as pd
import pytest

from transnormer_lib.analysis.decoding import StepCost
from transnormer_lib.studies.common import figures as draw


def test_every_row_has_a_line_and_a_text_counts_diverged_runs() -> None:
    bits = {"vanilla": [2.0, 2.5], "linear": [2.1, math.inf], "transnormer-t1+released": [math.inf, math.inf]}
    (axes,) = draw.losses(bits, {"2-gram": 3.5}, unit="bits per byte").axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["vanilla", "linear, 1+elu", "TransNormer T1, released"]
    assert {text.get_text() for text in axes.texts} == {"1 of 2 diverged", "2 of 2 diverged", "2-gram"}
    assert all(math.isfinite(float(x)) for line in axes.lines for x in line.get_xdata())


def test_the_released_row_of_an_architecture_has_hollow_points_of_the_same_colour() -> None:
    (axes,) = draw.losses({"linear-matched": [2.0], "linear-matched+released": [2.1]}, {}, unit="bits per byte").axes
    filled, hollow = (line for line in axes.lines if line.get_linestyle() == "None")
    assert filled.get_color() == hollow.get_color()
    assert (filled.get_markerfacecolor(), hollow.get_markerfacecolor()) == (filled.get_color(), "none")


def test_a_row_without_a_style_is_refused() -> None:
    with pytest.raises(ValueError, match="row='a-model': has no style"):
        draw.row_style("a-model")


def test_both_panels_of_the_decoding_cost_hold_every_model() -> None:
    models = {"vanilla": (4, 8), "linear": (4, 4)}
    costs = [StepCost(m, p, (1e-3, 3e-3, 2e-3), n[p > 1]) for m, n in models.items() for p in (1, 2)]
    above, below = draw.decoding_cost(costs).axes
    assert [line.get_ydata().tolist() for line in above.lines] == [[2.0, 2.0], [2.0, 2.0]]
    assert [list(line.get_ydata()) for line in below.lines] == [[4, 8], [4, 4]]


def test_learning_curves_have_a_panel_for_the_released_rows_and_leave_out_what_diverged() -> None:
    lines = [
        {"row": row, "seed": seed, "step": step, "bits": math.inf if row == "linear" and step == 10 else 4.0 - seed}
        for row in ("vanilla", "linear", "transnormer-t2+released")
        for seed in (0, 1)
        for step in (0, 10)
    ]
    above, below = draw.learning_curves(pd.DataFrame(lines), {"two-sided 3-gram": 3.5}, unit="bits per byte").axes
    assert [text.get_text() for text in above.texts] == ["two-sided\n3-gram"]  # beside it is the legend
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["vanilla", "linear, 1+elu"]
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["TransNormer T2"]
    drawn = {line.get_label(): list(line.get_xdata()) for line in above.lines}
    assert (drawn["vanilla"], drawn["linear, 1+elu"]) == ([0, 10], [0])


def test_without_released_rows_there_is_one_panel() -> None:
    curves = pd.DataFrame([{"row": "vanilla", "seed": 0, "step": 1, "bits": 3.0}])
    assert len(draw.learning_curves(curves, {}, unit="bits per byte").axes) == 1
