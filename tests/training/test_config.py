"""Configs survive JSON unchanged and refuse unknown fields and bad values."""

import json
import re
from dataclasses import asdict, replace
from typing import Any

import pytest
from training_cases import config

from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.strict import from_plain
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_json_round_trip_is_the_identity(name: str) -> None:
    original = config(
        name,
        "masked",
        data=DataConfig(task="masked", length=32, masking=MaskingConfig(0.3, 0.5, 0.25)),
        waypoints=(1, 4),
        accumulate=4,
        precision="bf16",
        gradients="norms",
    )
    assert from_plain(RunConfig, json.loads(json.dumps(asdict(original)))) == original


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("optimizer", "learning_rat"), 1e-3, "optimizer.learning_rat=0.001"),
        (("steps",), "many", "steps='many'"),
        (("steps",), 2.5, "steps=2.5"),
        (("steps",), True, "steps=True"),
        (("data", "task"), "sorting", "data.task='sorting'"),
        (("seed",), -1, "seed=-1: must be a whole number of at least 0"),
        (("waypoints",), [3, 2], "waypoints=(3, 2): must be rising steps between 0 and steps=8"),
        (("waypoints",), [9], "waypoints=(9,): must be rising"),
        (("accumulate",), 3, "accumulate=3: must divide data.batch_size=4"),
        (("precision",), "fp8", "precision='fp8'"),
        (("gradients",), "all", "gradients='all'"),
        (("data", "masking", "selected"), 0.0, "selected=0.0: must be in (0, 1]"),
        (("data", "masking", "select"), 0.5, "data.masking.select=0.5"),
        (("data", "masking", "selected"), 0.5, "only task='masked' masks"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_in_plain_values_is_one_line_with_field_and_value(
    path: tuple[str, ...], value: Any, message: str
) -> None:
    values = json.loads(json.dumps(asdict(config())))
    target = values
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        from_plain(RunConfig, values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a run"}, "name='a run'"),
        ({"name": 400 * "a"}, "name='a+': must be at most 200 bytes long"),
        ({"name": 101 * "ü"}, "name='ü+': must be at most 200 bytes long"),
        ({"data": DataConfig(length=64)}, "data.length=64: exceeds model.max_length=32"),
        ({"data": DataConfig(length=32, task="masked")}, "data.task='masked'"),
        ({"evaluations": 0}, "evaluations=0"),
        ({"evaluations": 10**9}, "evaluations=1000000000: must be at most 100000"),
        ({"evaluations": 2**63 - 1}, "evaluations=9223372036854775807: must be at most 100000"),
        ({"steps": 2}, "optimizer.warmup=2: must be less than steps=2"),
    ],
    ids=["name", "long name", "wide letters", "length", "task", "evaluations", "a billion", "2^63 - 1", "warmup"],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(config(), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_norm": 1.0, "clip_value": 1.0}, "clip_value=1.0: clip by norm or by value, not both"),
        ({"warmup_start": 1e-7}, "warmup_start=1e-07: needs a warm-up"),
        ({"warmup_start": 1.0, "warmup": 2}, "warmup_start=1.0: exceeds learning_rate=0.0005"),
        ({"warmup_start": 1e-7, "warmup": 2, "schedule": "onecycle"}, "warmup_start=1e-07: needs a warm-up"),
        ({"end_learning_rate": 1e-5}, "end_learning_rate=1e-05: only 'linear', 'cosine' and 'drop'"),
        ({"drop_after": 3}, "drop_after=3: schedule='drop' needs one, and no other schedule has one"),
        ({"schedule": "drop"}, "drop_after=0: schedule='drop' needs one"),
        ({"schedule": "drop", "drop_after": 3, "warmup": 4}, "drop_after=3: must not be less than warmup=4"),
        ({"rule": "adam"}, "rule='adam': must be one of 'adamw', 'radam'"),
        ({"schedule": "step"}, "schedule='step': must be one of 'constant'"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a positive finite number"),
        ({"weight_decay": float("inf")}, "weight_decay=inf: must be a finite number and not negative"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_optimiser_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        OptimizerConfig(**fields)


def test_configs_and_the_store_import_without_torch() -> None:
    import subprocess
    import sys

    code = "import sys, transnormer_lib.training.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_a_text_has_varied_lengths() -> None:
    assert DataConfig(length=32, shortest=8).shortest == 8
    for wrong in ({"length": 32, "shortest": 33}, {"task": "context", "task_name": "recall-4", "shortest": 8}):
        with pytest.raises(ValueError, match="shortest="):
            DataConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({1: 2, "1": 3}, "keys"),
        ({"data": {"bands": [{"a": 1}, {2: 1, "2": 1}]}}, "data.bands"),
        ({None: 1, "null": 2}, "keys"),
    ],
    ids=["at-the-top", "within", "none"],
)
def test_keys_that_are_one_in_json_are_refused(values: dict[Any, Any], where: str) -> None:
    with pytest.raises(ValueError, match=f"^{where}: .+ and .+ are one key$"):
        from_plain(RunConfig, values)


def test_a_mapping_that_holds_itself_is_refused() -> None:
    values: dict[str, Any] = {}
    values["data"] = values
    with pytest.raises(ValueError, match="Circular reference"):
        from_plain(RunConfig, values)
