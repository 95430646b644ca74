"""The table, the figure and the sentences of scores: every run counts, and diverged ones are counted in words."""

import math

import pytest

from transnormer_lib.show.figures import STYLE
from transnormer_lib.studies.common import scores

SCRATCH = "linear, from scratch"
COLUMNS = {
    "digits-7": {"vanilla": [20.0, 30.0], "flash": [40.0, -math.inf], "informer": [-math.inf, -math.inf]},
    "CoLA": {"linear": [10.0, 20.0], SCRATCH: [0.0, 1.0]},
}
FLOORS: dict[str, dict[str, float]] = {"digits-7": {"chance": 10.0, "bag of tokens": 30.0}, "CoLA": {}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([20.0, 30.0], "25.0 (20.0 to 30.0)"),
        ([40.0, -math.inf], "40.0 (40.0 to 40.0, 1 diverged)"),
        ([-math.inf] * 2, "2 diverged"),
    ],
)
def test_a_cell_has_mean_and_range_of_the_runs_that_finished(values: list[float], said: str) -> None:
    assert scores.cell(values) == said


def test_the_table_has_a_line_per_row_and_the_shortcuts_last() -> None:
    lines = scores.table(COLUMNS, FLOORS, {"weights": {"vanilla": 7}})
    assert [line["model"] for line in lines] == ["vanilla", "flash", "informer", "linear", SCRATCH, *FLOORS["digits-7"]]
    assert lines[0] == {"model": "vanilla", "digits-7": "25.0 (20.0 to 30.0)", "CoLA": None, "weights": 7}
    assert lines[-1] == {"model": "bag of tokens", "digits-7": "30.0", "CoLA": None, "weights": None}


def test_the_sentences_count_diverged_runs_and_those_behind_the_best_shortcut_apart() -> None:
    said = scores.sentences("digits-7", COLUMNS["digits-7"], FLOORS["digits-7"], [("vanilla", "another")])
    assert said == [
        "digits-7, mean, highest first: flash 40.0, vanilla 25.0.",
        "digits-7, runs that diverged: flash 1 of 2, informer 2 of 2.",
        "digits-7, runs that do not beat the shortcut bag of tokens (30.0): vanilla 2 of 2.",
    ]


def test_without_shortcuts_the_sentences_name_none() -> None:
    said = scores.sentences("CoLA", COLUMNS["CoLA"], {}, [("linear", SCRATCH)])
    assert said[0] == f"CoLA, mean, highest first: linear 15.0, {SCRATCH} 0.5."
    assert said[1].startswith(f"CoLA, linear against {SCRATCH}: ")


def test_every_column_has_a_panel_and_every_row_a_line() -> None:
    panels = scores.figure(COLUMNS, FLOORS, xlabel="percent").axes
    assert [axes.get_xlabel() for axes in panels] == ["digits-7: percent", "CoLA: percent"]
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["vanilla", "FLASH", "informer"]
    assert {text.get_text() for text in panels[0].texts} == {"1 of 2 diverged", "2 of 2 diverged", "bag of tokens"}
    drawn = [line for axes in panels for line in axes.lines]
    assert all(math.isfinite(float(x)) for line in drawn for x in line.get_xdata())
    assert sum(line.get_markerfacecolor() == "none" for line in drawn) == 1


def test_a_variant_is_drawn_like_its_model_under_its_own_name() -> None:
    variant = scores.style(SCRATCH)
    assert variant._replace(label="") == STYLE["linear"]._replace(label="")
    assert variant.label == f"{STYLE['linear'].label}, from scratch"


def test_the_words_have_the_means_and_the_shortcuts() -> None:
    assert scores.in_words(COLUMNS, FLOORS).startswith("digits-7: vanilla 25.0, flash 40.0, informer -inf, chance 10.0")
