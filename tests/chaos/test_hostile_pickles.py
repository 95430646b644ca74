"""A pickle that would run something runs nothing, in any file that is read: it is refused in one line."""

import gzip
import io
import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chaos_trials import Tried
from training_cases import config

from transnormer_lib import sums
from transnormer_lib.data import examples, stored_vocabulary
from transnormer_lib.files import read_object, read_yaml
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.training import carried, checkpoints, trainer
from transnormer_lib.training.config import RunRefused
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import RunDamaged

SMALL = config(steps=2)


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.mark, "it ran")


def plain(bomb: Bomb) -> bytes:
    """As ``pickle.dump`` writes it."""
    return pickle.dumps({"state": bomb, "step": 1})


def by_torch(bomb: Bomb) -> bytes:
    """As ``torch.save`` writes it."""
    buffer = io.BytesIO()
    torch.save({"state": bomb, "step": 1}, buffer)
    return buffer.getvalue()


def by_old_torch(bomb: Bomb) -> bytes:
    buffer = io.BytesIO()
    torch.save({"state": bomb, "step": 1}, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def by_numpy(bomb: Bomb) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([bomb], dtype=object), allow_pickle=True)
    return buffer.getvalue()


FORMS: dict[str, Callable[[Bomb], bytes]] = {
    "pickle": plain, "torch": by_torch, "old torch": by_old_torch, "numpy": by_numpy
}  # fmt: skip


@pytest.fixture
def bomb(tmp_path: Path) -> Bomb:
    return Bomb(tmp_path / "it-ran")


def test_the_bomb_works(bomb: Bomb) -> None:
    pickle.loads(plain(bomb))
    assert bomb.mark.exists()
    bomb.mark.unlink()
    torch.load(io.BytesIO(by_torch(bomb)), weights_only=False)
    assert bomb.mark.exists()


def stopped(store: RunStore) -> Path:
    """The checkpoint of a run that was stopped at its end."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer._Training, "result", lambda _: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            store.get(SMALL)
    (checkpoint,) = (store._partial(SMALL) / "checkpoints").iterdir()
    return checkpoint


CHECKPOINT = ["optimizer.bin", "random_states_0.pkl", "history.pt"]


@pytest.mark.parametrize("form", ["pickle", "torch", "old torch"])
@pytest.mark.parametrize("file", CHECKPOINT)
def test_a_checkpoint_with_a_bomb_is_refused_even_with_new_digests(
    file: str, form: str, bomb: Bomb, tmp_path: Path, tried: Tried
) -> None:
    store = RunStore(tmp_path / "runs", checkpoint_seconds=0.0)
    checkpoint = stopped(store)
    assert {path.name for path in checkpoint.iterdir()} == {*CHECKPOINT, "model.safetensors", sums.FILE}
    (checkpoint / file).write_bytes(FORMS[form](bomb))
    sums.seal(checkpoint)
    with pytest.raises(
        RunRefused, match="holds more than numbers, so it is not read; remove it to begin anew"
    ) as refused:
        store.get(SMALL)
    assert "\n" not in str(refused.value)
    assert not bomb.mark.exists()
    tried("hostile pickle")


def test_a_pickle_for_the_weights_of_a_checkpoint_is_not_read(bomb: Bomb, tmp_path: Path, tried: Tried) -> None:
    """Accelerate looks for ``pytorch_model.bin`` where there are no safetensors."""
    store = RunStore(tmp_path / "runs", checkpoint_seconds=0.0)
    checkpoint = stopped(store)
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(by_torch(bomb))
    sums.seal(checkpoint)
    with pytest.raises(RunRefused, match="holds more than numbers"):
        store.get(SMALL)
    assert not bomb.mark.exists()
    tried("hostile pickle")


@pytest.mark.parametrize("file", ["custom_checkpoint_0.pkl", "scheduler.bin", "scaler.pt", "sampler.bin", "more.pkl"])
def test_a_file_that_no_checkpoint_has_is_not_read(file: str, bomb: Bomb, tmp_path: Path, tried: Tried) -> None:
    store = RunStore(tmp_path / "runs", checkpoint_seconds=0.0)
    checkpoint = stopped(store)
    (checkpoint / file).write_bytes(by_torch(bomb))
    sums.seal(checkpoint)
    with suppress(RunRefused, RuntimeError):  # Accelerate refuses some names
        assert store.get(SMALL).record["sessions"] == 2
    assert not bomb.mark.exists()
    tried("hostile pickle")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "record.json"])
def test_a_stored_run_with_a_bomb_is_damaged_or_refused(
    file: str, form: str, bomb: Bomb, tmp_path: Path, tried: Tried
) -> None:
    from safetensors import SafetensorError

    store = RunStore(tmp_path / "runs")
    run = store.get(SMALL)
    (run.path / file).write_bytes(FORMS[form](bomb))
    sums.seal(run.path)
    with pytest.raises((RunDamaged, SafetensorError)):
        store.load(run.path).model()
    assert not bomb.mark.exists()
    tried("hostile pickle")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_shared_model_with_a_bomb_is_refused(file: str, form: str, bomb: Bomb, tmp_path: Path, tried: Tried) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model": asdict(SMALL.model), "vocabulary": "bpe-300"}))
    from safetensors.torch import save_model

    save_model(LanguageModel(SMALL.model), str(folder / "model.safetensors"))
    (folder / stored_vocabulary.FILE).write_text("{}")
    (folder / file).write_bytes(FORMS[form](bomb))
    sums.seal(folder)
    with pytest.raises(ValueError, match=str(folder)):
        LanguageModel.from_pretrained(folder)
    assert not bomb.mark.exists()
    tried("hostile pickle")


@pytest.mark.parametrize("form", FORMS)
def test_records_text_and_yaml_with_a_bomb_are_refused(form: str, bomb: Bomb, tmp_path: Path, tried: Tried) -> None:
    path, content = tmp_path / "hostile", FORMS[form](bomb)
    for packed in (content, gzip.compress(content)):
        path.write_bytes(packed)
        with pytest.raises(ValueError, match="holds no records of runs"):
            carried.read(path, RunStore(tmp_path / "runs"))
        assert read_object(path) is None
        with pytest.raises(ValueError, match="hostile: not"):
            read_yaml(path)
    assert not bomb.mark.exists()
    tried("hostile pickle", 6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["offsets.npy", "labels.npy", "content.json"])
def test_prepared_examples_with_a_bomb_are_made_again(
    file: str, form: str, bomb: Bomb, tmp_path: Path, tried: Tried
) -> None:
    folder = prepared(tmp_path)
    (folder / file).write_bytes(FORMS[form](bomb))
    assert examples._read(folder) is None
    assert not bomb.mark.exists()
    tried("hostile pickle")


def prepared(tmp_path: Path) -> Path:
    """A folder of the cache of examples, as two examples of three tokens leave it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    np.arange(6, dtype=np.int32).tofile(folder / "tokens.bin")
    np.save(folder / "offsets.npy", np.array([0, 3, 6]))
    np.save(folder / "labels.npy", np.array([0, 1]))
    about = {"dtype": "int32", "arrays": ["offsets", "labels"], "digest": ""}
    (folder / "content.json").write_text(json.dumps(about))
    whole = examples._mapped(folder, "int32", ["offsets", "labels"])
    (folder / "content.json").write_text(json.dumps({**about, "digest": examples._digest(whole)}))
    assert examples._read(folder) is not None
    return folder


@pytest.mark.parametrize("kind", ["O", "object", "V4", "U3", "S3", "f4", "M8[s]", "no type"])
def test_tokens_are_never_read_as_addresses(kind: str, tmp_path: Path, tried: Tried) -> None:
    """A memory map of objects would follow whatever numbers a file holds."""
    folder = prepared(tmp_path)
    about = json.loads((folder / "content.json").read_text())
    (folder / "content.json").write_text(json.dumps({**about, "dtype": kind}))
    assert examples._read(folder) is None
    tried("hostile pickle")


TAGS = [
    "!!python/object/apply:pathlib.Path.write_text [{mark}, it ran]",
    "!!python/object/apply:os.system ['touch {mark}']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/object/new:os.system ['touch {mark}']",
    "!!python/object:pathlib.Path {{}}",
]


@pytest.mark.parametrize("text", TAGS, ids=[tag.split(" ")[0].partition("/")[2] for tag in TAGS])
def test_yaml_with_a_tag_of_python_is_refused(text: str, bomb: Bomb, tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(f"seeds: {text.format(mark=bomb.mark)}\n")
    with pytest.raises(ValueError, match=r"hostile\.yaml: not valid YAML: seeds: could not determine a constructor"):
        read_yaml(path)
    assert not bomb.mark.exists()
    tried("hostile YAML")


@pytest.mark.parametrize("name", ["os.system", "Metadata.__init__", "Metadata"])
def test_the_table_of_a_sharded_checkpoint_names_nothing_that_runs(
    name: str, bomb: Bomb, tmp_path: Path, tried: Tried
) -> None:
    """torch unpickles ``.metadata`` by itself, so it is looked through first; a name may have dots."""
    store = RunStore(tmp_path / "runs", checkpoint_seconds=0.0)
    checkpoint = stopped(store)
    (checkpoint / "pytorch_model_fsdp_0").mkdir()
    module = b"torch.distributed.checkpoint.metadata"
    text = f"touch {bomb.mark}".encode()
    names = b"\x8c" + bytes([len(module)]) + module + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93"
    call = names + b"\x8c" + bytes([len(text)]) + text + b"\x85R."
    (checkpoint / "pytorch_model_fsdp_0" / ".metadata").write_bytes(b"\x80\x04" + call)
    sums.seal(checkpoint)
    if name == "Metadata":  # a call of what is allowed makes an object and nothing else
        with suppress(TypeError):
            store.get(SMALL)
    else:
        with pytest.raises(RunRefused, match="holds more than numbers"):
            store.get(SMALL)
    assert not bomb.mark.exists()
    tried("hostile pickle")


def test_a_caller_that_asks_torch_for_more_than_numbers_does_not_get_it(
    bomb: Bomb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    """As torch does itself with what a sharded checkpoint holds beside tensors."""
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    with pytest.raises(RunRefused, match="holds more than numbers"), checkpoints._numbers_only(tmp_path):
        torch.load(io.BytesIO(by_torch(bomb)), weights_only=False)
    assert not bomb.mark.exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    tried("hostile pickle")
