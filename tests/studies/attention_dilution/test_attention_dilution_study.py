"""The runs behind Figure 2 and Table 3, and what is said about their locality."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tiny_study import LANGUAGE_MODEL, NO_SEARCH

from transnormer_lib.analysis.dilution import Locality
from transnormer_lib.studies.attention_dilution import results
from transnormer_lib.studies.attention_dilution import runs as study
from transnormer_lib.studies.attention_dilution.results import MeasuredAttention
from transnormer_lib.studies.common.parameters import read

PARAMETERS = read(
    study.Parameters,
    {
        **LANGUAGE_MODEL,
        **NO_SEARCH,
        "architectures": ["vanilla", "linear"],
        "mixtures": ["linear", "vanilla-linear"],
        "others": [],
        "rotary": "none",
        "positions": "learned",
        "longest": 0,
        "seeds": [1, 0],
        "sequences": 2,
        "attention_dropout": 0.1,
        "waypoints": [],
    },
)
RUN = cast(Any, SimpleNamespace(record={}))


def locality(*areas: float) -> Locality:
    """A locality with these areas per layer, and curves that start at the first of them."""
    sizes = np.tile(np.linspace(areas[0], 1, 3), (len(areas), 1))
    return Locality(sizes, np.array(areas), np.zeros((len(areas), 2, 2)), 0.0)


def measured(row: str, trained: float) -> list[MeasuredAttention]:
    """Two seeds, the later one first, whose early layer has the area ``trained`` + seed / 10 after training."""
    return [
        MeasuredAttention(row, seed, 3.0, RUN, locality(trained + seed / 10, 0.5), locality(0.4, 0.4), 0.0)
        for seed in (1, 0)
    ]


@pytest.mark.parametrize("task", ["causal", "masked"])
def test_a_row_of_both_figure_and_table_is_trained_once_per_seed(task: Any) -> None:
    parameters = replace(PARAMETERS, task=task)
    assert study.rows(parameters) == ["vanilla", "linear", "vanilla-linear"]
    names = [config.name for config in study.runs(parameters)]
    assert names == [f"{task}-{row}-seed{seed}" for row in study.rows(parameters) for seed in (1, 0)]


def test_areas_of_half_the_layers_come_in_the_order_of_the_seeds() -> None:
    found = measured("vanilla", 0.6)
    assert results.half_areas(found, "early") == {"vanilla": pytest.approx([0.6, 0.7])}
    assert results.half_areas(found, "late") == {"vanilla": [0.5, 0.5]}
    assert results.half_areas(found, "early", "untrained") == {"vanilla": [0.4, 0.4]}


def test_a_row_has_no_distance_from_itself_and_the_tables_have_a_line_per_row() -> None:
    found = [*measured("vanilla", 0.6), *measured("linear", 0.2)]
    assert results.distances(found, "vanilla") == {"vanilla": [0, 0], "linear": pytest.approx([0.2, 0.2])}
    (vanilla, linear) = results.area_table(found, reference=0.5)
    assert (vanilla["model"], vanilla["untrained"], linear["range"]) == ("vanilla", 0.4, "0.350 to 0.400")
    assert len(results.layer_areas(found)) == 2 * 2 * 2 * 2
    assert len(results.curves(found)) == 2 * 2 * 2 * 3


def test_the_conclusions_follow_the_areas_and_the_losses() -> None:
    mixtures = {"linear": [3.0, 3.2], "vanilla-linear": [2.0, 2.1]}
    lines = results.conclusions(measured("transnormer-t2", 0.6), mixtures, reference=0.5)
    assert lines[0] == "transnormer-t2: area 0.575 after training, 0.400 before it; complete dilution has 0.500."
    assert "DiagAttention layers have area 0.650 (0.400 before training), its NormAttention layers 0.500" in lines[1]
    assert lines[-1] == "Table 3's rows from the lowest loss: vanilla-linear, linear."


def test_locality_goes_with_the_loss_seed_by_seed() -> None:
    def row(name: str, area: float, losses: tuple[float, float]) -> list[MeasuredAttention]:
        of = zip(measured(name, area), losses, strict=True)
        return [replace(m, row=name, validation=loss) for m, loss in of]

    found = [m for n in range(5) for m in row(f"row-{n}", 0.5 + n / 100, (4.0 - n, 3.0 + n))]
    assert results.locality_with_loss(found) == pytest.approx([-1.0, 1.0])  # seed 0, then seed 1
    assert results.locality_with_loss(found[:8]) == []
    diverged = [replace(m, validation=math.inf) if m.row == "row-3" else m for m in found]
    assert results.locality_with_loss(diverged) == []
    assert [line["model"] for line in results.dilution_and_loss(found)] == [f"row-{n}" for n in reversed(range(5))]


def test_the_most_and_the_least_local_row_are_told_by_their_mean_areas() -> None:
    found = [*measured("vanilla", 0.6), *measured("linear", 0.2)]
    assert results.most_local(found, 0.5) == (
        "After training vanilla is the most local (area 0.575, untrained 0.400), linear the least (0.375, untrained "
        "0.400); complete dilution has 0.500."
    )
    assert "the least" not in results.most_local(found[:2], 0.5)
    assert "vanilla 0.650 and 0.500, linear 0.250 and 0.500;" in results.halves(found, 0.5)


@pytest.mark.parametrize(("reach", "share"), [(1, 0.625), (2, 0.75), (9, 1.0)])
def test_weight_is_near_up_to_its_distance_from_the_query(reach: int, share: float) -> None:
    weights = np.array([[1.0, 0.5, 0.5], [0.0, 0.5, 0.0], [0.5, 0.0, 1.0]])
    assert results.near(weights, reach) == pytest.approx(share)
    said = results.near_in_words({"vanilla": np.stack([np.eye(3), weights])}, reach)
    assert "vanilla 100% and" in said


def test_a_map_without_weight_has_no_share() -> None:
    assert math.isnan(results.near(np.zeros((2, 2)), 1))
