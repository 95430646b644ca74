"""The checkpoints from which an unfinished run resumes.

A checkpoint is a folder with what Accelerate's ``save_state`` writes (weights, optimiser, gradient scaler, random
states of every process) and ``history.pt`` with the trainer's own state. It is written under a temporary name and
renamed when it is complete on disk, and only then is the previous one removed, so that a process may be killed at any
time. ``SHA256SUMS`` holds the digests of its files; a damaged checkpoint is named and the run begins anew.

Optimiser, scaler and random states are pickles, as torch writes them. They are read as numbers only (torch calls it
``weights_only``): a pickle that would call anything is refused.
"""

import os
import pickle
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from transnormer_lib import sums
from transnormer_lib.exhausted import writing
from transnormer_lib.training.config import RunRefused

_HISTORY = "history.pt"


class Checkpoints:
    """The checkpoints of one run in ``folder``, which nothing else may use.

    One is due every ``seconds`` of training; how often does not change the result. A run resumes only with the number
    of processes that it was interrupted with, because each has its own random state. With another number it starts
    again, :meth:`read` says so, and the old checkpoint stays until the run is complete.
    """

    def __init__(self, folder: Path, seconds: float = 60.0) -> None:
        if not seconds >= 0:  # infinity: never due
            raise ValueError(f"seconds={seconds!r}: must not be negative")
        self.folder, self.seconds = Path(folder), seconds
        self._last = time.monotonic()  # when the last checkpoint was written, or training began
        self._step: int | None = None  # the step of the newest checkpoint

    def due(self) -> bool:
        """Whether to write one now."""
        return time.monotonic() - self._last >= self.seconds

    def latest(self, processes: int) -> Path | None:
        """The newest complete checkpoint of that many processes."""
        # Names are zero-padded, so the last by name is the newest.
        return max(self.folder.glob(f"step-*-of-{processes}"), default=None)

    def write(self, accelerator: Any, step: int, history: dict[str, Any]) -> None:
        """Write the state after ``step`` finished steps, unless it exists; every process calls this."""
        if step == self._step:
            return
        name = f"step-{step:010d}-of-{accelerator.num_processes}"
        partial = self.folder / ".writing"
        try:
            with writing(self.folder):
                self._write(accelerator, partial, history, self.folder / name)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if accelerator.is_main_process:
            for old in self.folder.glob(f"step-*-of-{accelerator.num_processes}"):
                if old.name != name:
                    shutil.rmtree(old, ignore_errors=True)
        accelerator.wait_for_everyone()
        self._step = step
        self._last = time.monotonic()

    @staticmethod
    def _write(accelerator: Any, partial: Path, history: dict[str, Any], whole: Path) -> None:
        if accelerator.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            torch.save(history, partial / _HISTORY)
        accelerator.wait_for_everyone()
        accelerator.save_state(str(partial))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            sums.seal(partial)
            _flush(partial)
            partial.rename(whole)

    def read(self, accelerator: Any) -> dict[str, Any] | None:
        """Load the newest checkpoint into what ``accelerator`` prepared; returns its history, None without one."""
        path, history = self.latest(accelerator.num_processes), None
        if path is not None and (damage := _damage(path)):
            accelerator.wait_for_everyone()  # all have seen it
            if accelerator.is_main_process:
                print(f"{path}: {damage}; the run begins anew", file=sys.stderr)
                shutil.rmtree(path)
            accelerator.wait_for_everyone()
        elif path is not None:
            from accelerate.utils import RNG_STATE_NAME, load

            # Accelerate also sets the random states of numpy and Python, which belong to the caller.
            others = random.getstate(), np.random.get_state()  # noqa: NPY002
            try:
                with _numbers_only(path):
                    # load_state goes on without random states that it cannot read.
                    load(path / f"{RNG_STATE_NAME}_{accelerator.process_index}.pkl")
                    accelerator.load_state(str(path))
                    history = load(path / _HISTORY, map_location="cpu")
            finally:
                random.setstate(others[0])
                np.random.set_state(others[1])  # noqa: NPY002
            self._step = history["step"]
        elif accelerator.is_main_process:
            self._report_others(accelerator.num_processes)
        self._last = time.monotonic()
        return history

    def _report_others(self, processes: int) -> None:
        """Print one line if another number of processes could resume from what is here."""
        newest = max(self.folder.glob("step-*-of-*"), default=None)
        if newest is not None:
            step, number = newest.name.removeprefix("step-").split("-of-")
            print(
                f"{newest}: written after {int(step)} steps with processes={number}, which would go on from there;"
                f" processes={processes} begins the run anew",
                file=sys.stderr,
            )


@contextmanager
def _numbers_only(checkpoint: Path) -> Iterator[None]:
    """Read the pickles of a checkpoint as numbers. Raises :class:`RunRefused` where one holds anything else.

    The variable makes ``torch.load`` do so for every caller; those of sharded checkpoints ask for the opposite.
    """
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    except pickle.UnpicklingError:
        raise _refusal(checkpoint) from None
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _refusal(checkpoint: Path) -> RunRefused:
    return RunRefused(f"{checkpoint}: holds more than numbers, so it is not read; remove it to begin anew")


class _MoreThanNumbers(Exception):
    """A table of contents names something that could run."""


class _Metadata(pickle.Unpickler):
    """Reads the table of contents of a sharded checkpoint, which torch unpickles without a check of its own."""

    _NAMES: ClassVar[dict[str, set[str]]] = {
        "pathlib": {"PosixPath", "WindowsPath"},
        "torch": {"Size", "float16", "bfloat16", "float32", "float64", "int64", "int32", "uint8", "bool"},
        "torch.serialization": {"_get_layout"},
        "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
        "torch.distributed.checkpoint.metadata": {
            "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
            "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
        },
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if name not in self._NAMES.get(module, ()):
            raise _MoreThanNumbers(f"{module}.{name}")
        return super().find_class(module, name)


def _damage(checkpoint: Path) -> str:
    """Why the checkpoint is not what was written; empty if it is. Raises as :func:`_numbers_only` does."""
    try:
        sums.check(checkpoint, needed=[_HISTORY])
    except ValueError as damage:
        return str(damage)
    for path in checkpoint.rglob(".metadata"):
        try:
            with path.open("rb") as file:
                _Metadata(file).load()
        except _MoreThanNumbers:
            raise _refusal(checkpoint) from None
        except Exception:  # which one depends on the byte that is wrong
            return f"{path.relative_to(checkpoint)} cannot be read"
    return ""


def _flush(folder: Path) -> None:
    """Flush the folder's files to disk, so that a power cut leaves no name without content."""
    for path in folder.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
