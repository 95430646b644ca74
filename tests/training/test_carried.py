"""Records carried to another store serve what reads records; what needs a model trains it."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_cases import config, whole_record

from transnormer_lib import sums
from transnormer_lib.report.runs import entries
from transnormer_lib.training import carried, numbers, trainer
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunDamaged, RunFailed, write_record

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
        carried.write([replace(run, record={**run.record, "train_loss": losses, "steps": len(losses)})], file)
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


SPOILED: dict[str, tuple[dict[str, Any], str]] = {
    "only its beginning": ({}, "steps: is missing"),
    "no provenance": ({"provenance": None}, "provenance=None: must be a mapping"),
    "no commit": ({"provenance": {"device": "x"}}, "must be a mapping with commit, dirty, device, versions"),
    "an unknown status": ({"status": "banana"}, "status='banana': must be one of 'finished', 'diverged'"),
    "outside a band": ({"status": "outside-band"}, "status='outside-band': must be one of"),
    "steps as text": ({"steps": "2"}, "steps='2': must be a whole number of at least 0"),
    "a negative time": ({"seconds": -1.0}, "seconds=-1.0: must be a finite number and not negative"),
    "a shorter curve": ({"train_loss": [5.0]}, "train_loss: must be a list of steps=2 numbers"),
    "a curve of texts": ({"train_loss": ["5", "4"]}, "train_loss: must be a list of steps=2 numbers"),
    "nothing validated": ({"validation": []}, "validation: must have a result of kept_step=2"),
    "a result without a score": ({"validation": [{"step": 2}]}, "must map a loss in nats and a score to numbers"),
    "a result of no step": (
        {"validation": [{"nats_per_token": 1.0, "bits_per_token": 1.0}]}, "validation.step=None: must be a whole"),
    "diverged of nothing": ({"status": "diverged"}, "divergence=None: must be a mapping with step, what, layer"),
    "results as a list": ({"at_end": [1]}, "at_end=[1]: must be a mapping"),
    "data of no fingerprint": ({"data": {"test": 3}}, "data.test=3: must be a fingerprint"),
}  # fmt: skip


def spoiled(fault: str) -> tuple[dict[str, Any], str]:
    """The record of a finished run with this fault, and what is said of it."""
    changes, problem = SPOILED[fault]
    whole = whole_record(SMALL)
    kept = whole if changes else {name: whole[name] for name in ("data", "arithmetic", "status")}
    return kept | changes, problem


@pytest.mark.parametrize("fault", SPOILED)
def test_what_is_no_record_of_a_complete_run_is_not_imported(fault: str, tmp_path: Path) -> None:
    record, problem = spoiled(fault)
    file, store = tmp_path / "records.json.gz", RunStore(tmp_path / "runs")
    content = {"config": asdict(SMALL), "record": record}
    file.write_bytes(gzip.compress(json.dumps({run_id(SMALL, record["data"], record["arithmetic"]): content}).encode()))
    with pytest.raises(ValueError, match=re.escape(problem)):
        carried.read(file, store)
    assert store.names() == []


@pytest.mark.parametrize("fault", SPOILED)
def test_what_is_no_record_of_a_complete_run_is_damage_in_a_store(fault: str, tmp_path: Path) -> None:
    record, problem = spoiled(fault)
    store = RunStore(tmp_path)
    folder = store.root / run_id(SMALL, record["data"], record["arithmetic"])
    folder.mkdir()
    write_record(SMALL, record, folder)
    sums.seal(folder)
    with pytest.raises(
        RunDamaged, match=re.escape("record.json is not what a run leaves: ") + ".*" + re.escape(problem)
    ):
        store.load(folder.name)
    (entry,) = entries(store)
    assert entry["status"].startswith("damaged: record.json is not what a run leaves")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no records of runs: .*No such file"):
        carried.read(tmp_path / "none", RunStore(tmp_path))
