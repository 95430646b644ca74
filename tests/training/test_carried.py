"""Records carried to another store serve what reads records; what needs a model trains it."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_cases import config

from transnormer_lib.training import carried, numbers, trainer
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunFailed

SMALL = config(steps=2)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Run, Path]:
    """A stored run and the file with its record."""
    run, file = RunStore(tmp_path / "here").get(SMALL), tmp_path / "records.json.gz"
    assert carried.write([run], file) == 1
    return run, file


@pytest.fixture
def there(made: tuple[Run, Path], tmp_path: Path) -> RunStore:
    """Another store, to which the record was carried."""
    store = RunStore(tmp_path / "there")
    assert carried.read(made[1], store) == (1, 0)
    return store


def _no_training(*_: Any, **__: Any) -> None:
    raise AssertionError("trained")


def test_a_carried_record_is_found_and_not_trained(
    made: tuple[Run, Path], there: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "train", _no_training)
    assert there.get(SMALL, weights=False).record == made[0].record
    found = there.find(SMALL)
    assert found is not None
    assert not found.has_weights
    assert there.names() == [made[0].path.name]


@pytest.mark.parametrize("curve", [[5.5478515625, 0.1, 1e-30], [5.0, float(1 / 3)], [2.5, float("inf")], []], ids=str)
def test_a_curve_comes_back_to_the_last_bit(curve: list[float], made: tuple[Run, Path], tmp_path: Path) -> None:
    run, file = made
    as_float32 = [float(np.float32(loss)) for loss in curve]
    for number, losses in enumerate((curve, as_float32)):
        carried.write([replace(run, record={**run.record, "train_loss": losses})], file)
        store = RunStore(tmp_path / str(number))
        carried.read(file, store)
        assert store.load(run.path.name).record["train_loss"] == losses


def test_what_needs_the_model_trains_it_and_gets_the_same_losses(made: tuple[Run, Path], there: RunStore) -> None:
    found = there.find(SMALL)
    assert found is not None
    with pytest.raises(RunFailed, match="only its record was imported; train it for its weights"):
        found.model()
    trained = there.get(SMALL)
    assert trained.has_weights
    assert trained.record["train_loss"] == made[0].record["train_loss"]
    assert [path.name for path in there.root.glob(".*") if path.is_dir()] == []  # nothing is left beside it


def test_a_run_that_starts_from_a_carried_one_trains_that_one(there: RunStore) -> None:
    there.get(replace(SMALL, name="next", start_from=SMALL))
    found = there.find(SMALL)
    assert found is not None
    assert found.has_weights


def test_a_record_of_another_evaluation_does_not_serve(there: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "EVALUATION", numbers.EVALUATION + 1)
    assert there.get(SMALL, weights=False).has_weights


def test_reading_again_adds_nothing_and_equal_runs_give_equal_bytes(
    made: tuple[Run, Path], there: RunStore, tmp_path: Path
) -> None:
    run, file = made
    assert carried.read(file, there) == (0, 1)
    again = tmp_path / "again.json.gz"
    carried.write([there.load(run.path.name)], again)
    assert again.read_bytes() == file.read_bytes()


def _edited(content: Any) -> Any:
    for run in content.values():
        run["config"]["seed"] = 7
    return content


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (_edited, "its config is that of test-"),
        (lambda content: [content], "holds no records of runs"),
        (lambda content: {name: {} for name in content}, "holds no records of runs: 'config'"),
    ],
    ids=["another config", "another form", "no config"],
)
def test_a_file_of_something_else_is_refused_in_one_line(
    edit: Callable[[Any], Any], why: str, made: tuple[Run, Path], tmp_path: Path
) -> None:
    _, file = made
    file.write_bytes(gzip.compress(json.dumps(edit(json.loads(gzip.decompress(file.read_bytes())))).encode()))
    store = RunStore(tmp_path / "other")
    with pytest.raises(ValueError, match=r"file='.*': holds no records of runs") as refusal:
        carried.read(file, store)
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert store.names() == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no records of runs: .*No such file"):
        carried.read(tmp_path / "none", RunStore(tmp_path))
