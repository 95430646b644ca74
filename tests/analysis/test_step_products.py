"""The products that a step is compared with are those of the step: no more, no fewer."""

import json
import statistics
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib.analysis import step_products
from transnormer_lib.analysis.step_products import StepRatio, products, step_ratios
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.stepper import Stepper


def decoder(name: str, **fields: Any) -> LanguageModel:
    size = {"vocab_size": 11, "max_length": 200, "dim": 16, "heads": 2, "layers": 2, "block_size": 8}
    return build_model(architecture(name, kind="decoder", **size, **fields), seed=0).eval()


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("position", [5, 12])
@pytest.mark.parametrize("fields", [{}, {"tied": False}])
@pytest.mark.parametrize("name", ["linear", "norm-t1", "transnormer-t1", "transnormer-t2"])
def test_the_products_are_those_of_a_step(name: str, position: int, batch: int, fields: dict[str, Any]) -> None:
    model, ids = decoder(name, **fields), torch.zeros(batch, position, dtype=torch.int64)
    _, states = model.prefill(ids)
    step = counted(lambda: Stepper(model).step(ids[:, 0], states))
    assert counted(products(model, batch, [position])) == step > 0


def test_the_products_of_a_cache_grow_with_the_position() -> None:
    call = products(decoder("vanilla"), 2, [10, 20])
    first, second = counted(call), counted(call)
    # Two products over ten more tokens, in two layers, two sequences and two heads of 8 numbers.
    assert second - first == 2 * 2 * 10 * 8 * (2 * 2 * 2)


def test_every_model_and_batch_has_a_ratio_per_round() -> None:
    models = {name: decoder(name) for name in ("linear", "vanilla")}
    told: list[str] = []
    rows = step_ratios(models, [1, 2], position=4, rounds=2, told=told.append)
    assert [line.partition(",")[0] for line in told] == [f"model and batch {number} of 4" for number in (1, 2, 3, 4)]
    assert [(row.model, row.batch) for row in rows] == [(name, batch) for name in models for batch in (1, 2)]
    assert all(len(row.products) == len(row.prepared) == len(row.plain) == 2 for row in rows)


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    row = StepRatio("linear", 1, products=(1.0, 2.0, 4.0), prepared=(3.0, 3.0, 4.0), plain=(5.0, 6.0, 7.0))
    assert row.ratios(row.prepared) == [3.0, 1.5, 1.0]
    assert row.ratio == 1.5


def test_text_and_json_hold_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_products, "image_model", lambda name, max_length: decoder(name))
    result = step_products.benchmark([4], rounds=1)
    values = json.loads(result.as_json())
    assert [row["model"] for row in values["rows"]] == [row.model for row in result.rows]
    assert len(result.as_text().splitlines()) == 3 + len(result.rows)
    assert all(statistics.median(row["products"]) > 0 for row in values["rows"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": 0}, "position=0: must be a whole number of at least 1"),
        ({"rounds": 0}, "rounds=0: must be a whole number of at least 1"),
        ({"batches": [0]}, "batch=0: must be a whole number of at least 1"),
        ({"position": 199}, "position=199: leaves no room for 26 steps of 'linear'"),
    ],
    ids=["position", "rounds", "batch", "room"],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step_ratios({"linear": decoder("linear")}, **{"position": 4, "rounds": 1} | options)


def test_a_mechanism_whose_state_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="attention='gau': what a step reads of its state is not known here"):
        products(decoder("gau"), 1, [4])
