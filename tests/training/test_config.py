"""Configs survive JSON unchanged and refuse what they do not know."""

import json
from dataclasses import replace
from typing import Any

import pytest

from transnormer_lib.models.config import architecture
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig, run_config


def config(name: str = "transnormer-t2", **fields: Any) -> RunConfig:
    model = architecture(name, kind="decoder", vocab_size=258, max_length=32, dim=16, heads=2, layers=2, block_size=8)
    values: dict[str, Any] = {
        "name": "a-run",
        "model": model,
        "data": DataConfig(length=32),
        "optimizer": OptimizerConfig(),
        "steps": 3,
        "seed": 0,
    }
    return RunConfig(**(values | fields))


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_json_round_trip_is_the_identity(name: str) -> None:
    original = config(name)
    assert run_config(json.loads(json.dumps(original.to_dict()))) == original


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("optimizer", "learning_rat"), 1e-3, "optimizer.learning_rat=0.001"),
        (("steps",), "many", "steps='many'"),
        (("steps",), 2.5, "steps=2.5"),
        (("steps",), True, "steps=True"),
        (("data", "task"), "sorting", "data.task='sorting'"),
        (("seed",), -1, "seed=-1: must not be negative"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_in_plain_values_is_one_line_with_field_and_value(
    path: tuple[str, ...], value: Any, message: str
) -> None:
    values = json.loads(json.dumps(config().to_dict()))
    target = values
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(ValueError, match=message.replace(".", r"\.")) as caught:
        run_config(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a run"}, "name='a run'"),
        ({"data": DataConfig(length=64)}, "data.length=64: exceeds model.max_length=32"),
        ({"data": DataConfig(length=32, task="masked")}, "data.task='masked'"),
        ({"evaluations": 0}, "evaluations=0"),
    ],
    ids=["name", "length", "task", "evaluations"],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(config(), **fields)
