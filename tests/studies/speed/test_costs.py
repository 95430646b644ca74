"""Cost by length: formulas equal to the counts at every length, and crossovers that hold on both of their sides."""

import random

import matplotlib as mpl
import pytest

mpl.use("agg")
from matplotlib import pyplot as plt

from transnormer_lib.analysis.arena_speed import PARTS, Cell
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.studies.speed import costs
from transnormer_lib.studies.speed.models import model, quadratic_operations
from transnormer_lib.studies.speed.results import Results

# T2 overtakes softmax attention between 256 and 512 tokens; 1+elu was not measured in training.
SECONDS = {"vanilla": {256: 1e-3, 512: 4e-3}, "transnormer-t2": {256: 2e-3, 512: 3e-3}, "linear": {256: 1e-3}}
RESULTS = Results(
    tuple(
        Cell(row, n, part, (seconds,))
        for part in PARTS
        for row, by_length in SECONDS.items()
        for n, seconds in by_length.items()
        if (row, part) != ("linear", "training")
    )
)


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("row", costs.ROWS)
def test_the_formula_is_the_count_of_the_model(row: str, width: int) -> None:
    config = model(row, max(costs.LENGTHS), width)
    found = costs.operations(row, width)
    for n in random.Random(0).sample(range(1, 65_537), 8):
        assert found.at(n) == forward_flops(config.model, n, head=ClassifierHead(config.classes)), n


@pytest.mark.parametrize("row", costs.ROWS)
def test_the_formula_grows_as_the_notebook_says(row: str) -> None:
    assert costs.operations(row).squared == quadratic_operations(row)


@pytest.mark.parametrize("width", costs.WIDTHS)
def test_from_its_crossover_on_t2_needs_fewer_operations_and_not_one_token_before(width: int) -> None:
    from_length = costs.fewer_from("transnormer-t2", "vanilla", width)
    assert from_length is not None
    ours, softmax = (costs.operations(row, width) for row in ("transnormer-t2", "vanilla"))
    assert ours.at(from_length - 1) >= softmax.at(from_length - 1)
    assert all(ours.at(n) < softmax.at(n) for n in range(from_length, from_length + 200))


def test_softmax_attention_never_needs_fewer_again() -> None:
    assert costs.fewer_from("vanilla", "transnormer-t2") is None


def test_the_sentence_names_where_t2_becomes_faster() -> None:
    words = costs.in_words(RESULTS)
    assert words.startswith("TransNormer T2 needs fewer operations from 32 tokens on than softmax attention (vanilla);")
    between = costs.faster_from(RESULTS, "inference")
    assert between.startswith("in inference it is faster from ")
    assert 256 < int(between.split()[6]) < 512
    slower = Results(tuple(cell for cell in RESULTS.cells if cell.length == 256))
    assert costs.faster_from(slower, "training").endswith("not faster at the longest length of both, 256 tokens")
    alone = Results(tuple(cell for cell in RESULTS.cells if cell.row != "vanilla"))
    assert costs.faster_from(alone, "training") == "in training they were not measured at one length"


def test_the_data_hold_what_was_measured_and_nothing_else() -> None:
    data = costs.movable(RESULTS).data
    assert [row["label"] for row in data["rows"]] == ["vanilla", "linear, 1+elu", "TransNormer T2"]
    assert data["rows"][0]["seconds"]["training"] == [(256, 1e-3), (512, 4e-3)]
    assert data["rows"][1]["seconds"] == {"inference": [(256, 1e-3)], "training": []}
    figure = costs.figure(RESULTS)
    assert [panel.get_title() for panel in figure.axes] == ["operations, forward pass", "inference, ms", "training, ms"]
    plt.close(figure)
