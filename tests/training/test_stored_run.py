"""A stored run is what was written: every damage is named in one line, and the run is made again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import RUN_CONDITIONS, also_save_shards, config

from transnormer_lib import sums
from transnormer_lib.data import corpora
from transnormer_lib.data.characters import CharacterVocabulary
from transnormer_lib.training import numbers, trainer
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunDamaged, read_run, rewrite_record, write_run

SMALL = config(steps=2)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _with_weights_of_another(run: Path) -> None:
    other = RunStore(run.parent / "other").get(config(steps=2, seed=1))
    shutil.copy(other.weights, run / "model.safetensors")


def _replaced_by_another(run: Path) -> None:
    other = RunStore(run.parent / "other").get(config(steps=2, seed=1))
    shutil.rmtree(run)
    shutil.copytree(other.path, run)


def _emptied(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped byte": (lambda run: _flip(run / "model.safetensors"), "model.safetensors is not what was written"),
    "truncated weights": (lambda run: _cut(run / "model.safetensors"), "model.safetensors is not what was written"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), "model.safetensors is missing"),
    "another run's weights": (_with_weights_of_another, "model.safetensors is not what was written"),
    "another run": (_replaced_by_another, "its config is that of test-transnormer-t2-"),
    "a truncated record": (lambda run: _cut(run / "record.json"), "record.json is not what was written"),
    "an edited record": (lambda run: _edit(run / "record.json", tokens=1), "record.json is not what was written"),
    "an edited config": (lambda run: _edit(run / "config.json", seed=9), "config.json is not what was written"),
    "no record": (lambda run: (run / "record.json").unlink(), "record.json is missing"),
    "no digests": (lambda run: (run / "SHA256SUMS").unlink(), "SHA256SUMS cannot be read"),
    "truncated digests": (lambda run: (run / "SHA256SUMS").write_text(""), "SHA256SUMS does not list config.json"),
    "an empty folder": (_emptied, "SHA256SUMS cannot be read"),
}


def _lasting(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.record.items() if name not in RUN_CONDITIONS}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_once_and_the_run_is_made_again(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, line = DAMAGES[damage]
    first = RunStore(tmp_path).get(SMALL)
    whole = first.model().state_dict()
    make(first.path)
    with pytest.raises(RunDamaged, match=f"run {first.path.name}: {line}"):
        read_run(first.path)
    store = RunStore(tmp_path)
    assert store.find(SMALL) is None
    again = store.get(SMALL)
    errors = [text for text in capsys.readouterr().err.splitlines() if "it counts as missing" in text]
    assert len(errors) == 1
    assert line in errors[0]
    assert _lasting(again) == _lasting(first)
    assert all(torch.equal(whole[name], value) for name, value in again.model().state_dict().items())
    assert read_run(again.path) == again
    assert (tmp_path / f".damaged-{again.path.name}").is_dir()


def test_a_damaged_run_is_resumed_from_a_checkpoint_that_is_left(tmp_path: Path) -> None:
    store = RunStore(tmp_path, checkpoint_seconds=0.0)
    run = store.get(SMALL)
    partial = store._partial(SMALL) / "checkpoints"

    def stop(self: Any) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer._Training, "result", stop)
        _flip(run.path / "record.json")
        with pytest.raises(InterruptedError):
            store.get(SMALL)
    assert any(partial.iterdir())
    assert store.get(SMALL).record["sessions"] == 2


def _stopped(store: RunStore) -> Path:
    """The checkpoint of a run that was stopped at its end; it holds shards too."""
    with pytest.MonkeyPatch.context() as patched:
        also_save_shards(patched)
        patched.setattr(trainer._Training, "result", lambda _: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            store.get(SMALL)
    (checkpoint,) = (store._partial(SMALL) / "checkpoints").iterdir()
    return checkpoint


TABLE = "pytorch_model_fsdp_0/.metadata"


@pytest.mark.parametrize("file", ["model.safetensors", "history.pt", "SHA256SUMS", TABLE])
@pytest.mark.parametrize(
    "damage",
    [_flip, _cut, Path.unlink, lambda path: path.write_bytes(b"")],
    ids=["flipped", "truncated", "deleted", "emptied"],
)
def test_a_damaged_checkpoint_is_named_and_the_run_begins_anew(
    damage: Callable[[Path], None], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path, checkpoint_seconds=0.0)
    checkpoint = _stopped(store)
    damage(checkpoint / file)
    run = store.get(SMALL)
    assert run.record["sessions"] == 1
    assert f"{checkpoint}: " in (errors := capsys.readouterr().err)
    assert "the run begins anew" in errors
    assert _lasting(run) == _lasting(RunStore(tmp_path / "other").get(SMALL))


@pytest.mark.parametrize("content", [b"", b"garbled", b"\x80\x04", b"\x80\x04K"], ids=repr)
def test_a_table_of_shards_that_cannot_be_read_is_damage_even_with_new_digests(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path, checkpoint_seconds=0.0)
    checkpoint = _stopped(store)
    (checkpoint / TABLE).write_bytes(content)
    sums.seal(checkpoint)
    assert store.get(SMALL).record["sessions"] == 1
    assert f"{checkpoint}: {TABLE} cannot be read; the run begins anew\n" in capsys.readouterr().err


@pytest.mark.parametrize("writes", range(3))
def test_a_kill_while_a_run_is_measured_anew_leaves_it_whole(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunStore(tmp_path).get(SMALL)
    replace, left = Path.replace, iter(range(writes))

    def killed_after_some(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise InterruptedError
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed_after_some)
    with pytest.raises(InterruptedError):
        rewrite_record(run, {"evaluation": 99})
    monkeypatch.undo()
    assert read_run(run.path).record["evaluation"] == (numbers.EVALUATION if writes < 2 else 99)


def test_results_of_another_evaluation_are_measured_again_from_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(steps=2, measured_at_end=("test",), waypoints=(1,))
    first = RunStore(tmp_path).get(run)
    monkeypatch.setattr(numbers, "EVALUATION", numbers.EVALUATION + 1)
    monkeypatch.setattr(trainer, "train", lambda *_: pytest.fail("trained again"))
    measured = dict.fromkeys(first.validation, 7.0)
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: {k: v for k, v in measured.items() if k != "step"})
    again = RunStore(tmp_path).get(run)
    assert again.validation == measured | {"step": 2}
    assert again.record["at_end"]["test"]["nats_per_token"] == 7.0
    assert again.record["validation"][0] == first.record["validation"][0]
    assert again.record["evaluation"] == numbers.EVALUATION
    assert read_run(again.path) == again


def test_a_vocabulary_of_characters_lies_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "load_vocabulary", lambda *_: CharacterVocabulary("好不\u2028"))
    run = replace(SMALL, data=replace(SMALL.data, vocabulary="chars-4"))
    write_run(run, {}, torch.nn.Linear(1, 1), None, tmp_path)
    monkeypatch.setattr(corpora, "load_vocabulary", lambda *_: pytest.fail("the text was read"))
    vocabulary = Run(tmp_path, run, {}).vocabulary()
    assert isinstance(vocabulary, CharacterVocabulary)
    assert vocabulary.characters == "好不\u2028"
