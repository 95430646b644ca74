"""A few steps of every recipe, held against stored losses, which may change only together with ``training.numbers``.

``GOLDEN_STEPS=write python -m pytest tests/training/test_golden_steps.py`` stores the losses of new recipes and of
those whose number was raised, and refuses to store others.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from filelock import FileLock
from mechanism_cases import CAUSAL, SMALL
from training_cases import classifier, config, fake_reading

from transnormer_lib.attention import names
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.files import write_text
from transnormer_lib.models.config import Activation, Positions
from transnormer_lib.training import numbers
from transnormer_lib.training.config import RunConfig, Schedule
from transnormer_lib.training.trainer import train

STORED = Path(__file__).with_name("golden_steps.json")
# Another processor rounds otherwise: with AVX2 losses moved by 1e-7, without vector instructions by 1.4e-5 at most.
TOLERANCE = 5e-5
STEPS = 4

Recipe = Callable[[], RunConfig]


def _model(task: str = "causal", **fields: Any) -> RunConfig:
    run = config("vanilla", task, dropout=0.0, steps=STEPS)
    return replace(run, model=replace(run.model, **fields))


def _mechanism(name: str, task: str) -> RunConfig:
    return _model(task, attention=(name, name), attention_options={name: SMALL.get(name, {})} if name in SMALL else {})


def _optimizer(**fields: Any) -> RunConfig:
    run = config("transnormer-t2", dropout=0.0, steps=STEPS)
    return replace(run, optimizer=replace(run.optimizer, **fields))


def _recipes() -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    for name in names():
        for task in ("causal", "masked") if name in CAUSAL else ("masked",):
            found[f"{name}, {task}"] = lambda name=name, task=task: _mechanism(name, task)
    for norm, fields in {"scale": {}, "rms": {}, "rms, outside": {"norm_eps_placement": "outside"}}.items():
        found[f"norm {norm}"] = lambda norm=norm, fields=fields: _model(norm=norm.split(",")[0], **fields)
    for activation in get_args(Activation):
        for kind in ("ffn", "glu"):
            found[f"{kind}, {activation}"] = lambda kind=kind, activation=activation: _model(
                feed_forward=kind, activation=activation
            )
    for positions in get_args(Positions):
        found[f"positions {positions}"] = lambda positions=positions: _model(
            positions=positions, tied=positions != "beside"
        )
    for name in ("rope", "lrpe"):
        found[f"rotary {name}"] = lambda name=name: _model(rotary=name)
    for field, value in {
        "dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2, "scale_embedding": False, "tied": False,
        "output_bias": True, "init": "normal-0.02", "norm_placement": "post", "attention": ("softmax+linear", "norm"),
    }.items():  # fmt: skip
        found[f"model {field}"] = lambda field=field, value=value: _model(**{field: value})
    for schedule in sorted(set(get_args(Schedule)) - {"plateau"}):
        drop = {"drop_after": 2, "end_learning_rate": 1e-3} if schedule == "drop" else {}
        found[f"schedule {schedule}"] = lambda schedule=schedule, drop=drop: _optimizer(
            schedule=schedule, warmup_start=0.0, **drop
        )
    found["schedule plateau"] = lambda: replace(  # whose rate is halved after the second step
        run := _optimizer(learning_rate=1.0),
        optimizer=replace(run.optimizer, schedule="plateau"),
        evaluations=run.steps,
    )
    found["RAdam"] = lambda: _optimizer(rule="radam", betas=(0.6, 0.7))  # rectified from the third step on
    found["cycled momentum"] = lambda: _optimizer(schedule="onecycle", cycle_momentum=True)
    found["clipped by value"] = lambda: _optimizer(clip_norm=0.0, clip_value=1e-3)
    found["weight decay"] = lambda: _optimizer(weight_decay=0.5)
    found["micro-batches"] = lambda: replace(_optimizer(), accumulate=2)
    found["another masking"] = lambda: replace(
        run := _model("masked"), data=replace(run.data, masking=MaskingConfig(0.4, 0.5, 0.5))
    )
    found["classifier"] = lambda: classifier(dropout=0.0, steps=STEPS)
    found["classifier of pairs"] = lambda: classifier(
        data={"task_name": "same-article"}, pairs=True, dropout=0.0, steps=STEPS
    )
    for kind in ("choice", "span"):
        found[f"classifier, {kind}"] = lambda kind=kind: classifier(kind=kind, dropout=0.0, steps=STEPS)
    return found


RECIPES = _recipes()


def _stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def _measured(run: RunConfig) -> dict[str, Any]:
    record = train(run).record
    final = {name: value for name, value in record["validation"][-1].items() if name != "step"}
    return {
        "arithmetic": numbers.arithmetic(run.model.mechanisms),
        "train_loss": record["train_loss"],
        "evaluation": numbers.EVALUATION,
        "validation": final,
    }


def _close(ours: Any, stored: Any) -> bool:
    return bool(ours == pytest.approx(stored, rel=TOLERANCE, abs=TOLERANCE))


def _store(recipe: str, found: dict[str, Any]) -> None:
    with FileLock(f"{STORED}.lock"):
        before = _stored()
        write_text(STORED, json.dumps(before | {recipe: found}, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("recipe", RECIPES)
def test_losses_change_only_with_the_numbers(recipe: str) -> None:
    run = RECIPES[recipe]()
    with pytest.MonkeyPatch.context() as patch:
        if run.head is not None and run.head.kind != "label":
            fake_reading(patch, run.head.kind)  # no embedded task has these kinds
        found, stored = _measured(run), _stored().get(recipe)
    writing = os.environ.get("GOLDEN_STEPS") == "write"
    if writing and (stored is None or found["arithmetic"] != stored["arithmetic"]):
        return _store(recipe, found)
    assert stored is not None, "a new recipe: GOLDEN_STEPS=write stores its losses"
    assert found["arithmetic"] == stored["arithmetic"], "a number was raised: GOLDEN_STEPS=write stores the new losses"
    assert _close(found["train_loss"], stored["train_loss"]), (
        "training has other results: raise the number in training/numbers.py, of the mechanism or of TRAINING"
    )
    if writing and found["evaluation"] != stored["evaluation"]:
        return _store(recipe, found)
    assert found["evaluation"] == stored["evaluation"], "EVALUATION was raised: GOLDEN_STEPS=write stores the results"
    assert _close(found["validation"], stored["validation"]), (
        "evaluation has other results: raise EVALUATION in training/numbers.py"
    )
    return None


def test_every_stored_recipe_and_every_number_is_used() -> None:
    assert set(_stored()) == set(RECIPES)
    assert set(numbers.MECHANISMS) <= set(names())
