"""A model on disk: the weights of a finished run, and the checkpoints from which an unfinished one goes on.

Both appear whole or not at all. A checkpoint is a folder: what Accelerate's ``save_state`` writes (weights,
optimiser, gradient scaler, random states of every process) and ``history.pt`` with the trainer's own state. It is
written under another name and renamed when all of it is on the disk, and only then is the one before it removed, so
that a process may be killed at any moment.
"""

import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from transnormer_lib.files import replacing

_HISTORY = "history.pt"


def save_weights(model: nn.Module, path: Path) -> None:
    """Write ``model``'s parameters and persistent buffers to ``path``; an interruption leaves no broken file."""
    from safetensors.torch import save_model

    with replacing(path) as partial:
        save_model(model, str(partial))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights saved by :func:`save_weights`; refuses missing and unexpected names."""
    from safetensors.torch import load_model

    load_model(model, str(path), strict=True)


class Checkpoints:
    """The checkpoints of one run in ``folder``, which nothing else may use.

    One is due ``seconds`` after the last one (or after training began), or, where ``steps`` is given, every that
    many optimiser steps. Neither changes a run's result. A run goes on only with the number of processes that it was
    interrupted with, because each has a random state of its own; with another number it begins anew, which
    :meth:`read` says, and the checkpoint of the first number stays for it until the run is complete.
    """

    def __init__(self, folder: Path, seconds: float = 60.0, steps: int | None = None) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r}: must not be negative")
        if steps is not None and steps < 1:
            raise ValueError(f"steps={steps!r}: must be at least 1")
        self.folder, self.seconds, self.steps = Path(folder), seconds, steps
        self._last = time.monotonic()
        self._step: int | None = None  # of the checkpoint that stands for the run's present state

    def start(self) -> None:
        """Training begins now: the clock starts."""
        self._last = time.monotonic()

    def due(self, step: int) -> bool:
        """Whether to write one after ``step`` finished steps."""
        if self.steps is not None:
            return step % self.steps == 0
        return time.monotonic() - self._last >= self.seconds

    def latest(self, processes: int) -> Path | None:
        """The newest complete checkpoint of that many processes."""
        # Names are zero-padded, so the last by name is the newest.
        found = sorted(self.folder.glob(f"step-*-of-{processes}"))
        return found[-1] if found else None

    def write(self, accelerator: Any, step: int, history: dict[str, Any]) -> None:
        """Write the state after ``step`` finished steps, unless it is there; every process calls this."""
        if step == self._step:
            return
        name = f"step-{step:010d}-of-{accelerator.num_processes}"
        partial = self.folder / ".writing"
        if accelerator.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            torch.save(history, partial / _HISTORY)
        accelerator.wait_for_everyone()
        accelerator.save_state(str(partial))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            _flush(partial)
            partial.rename(self.folder / name)
            for old in self.folder.glob(f"step-*-of-{accelerator.num_processes}"):
                if old.name != name:
                    shutil.rmtree(old, ignore_errors=True)
        accelerator.wait_for_everyone()
        self._step = step
        self._last = time.monotonic()

    def read(self, accelerator: Any) -> dict[str, Any] | None:
        """Load the newest checkpoint into what ``accelerator`` prepared; returns its history, None without one."""
        path = self.latest(accelerator.num_processes)
        if path is None:
            if accelerator.is_main_process:
                self._tell_of_others(accelerator.num_processes)
            return None
        # Accelerate sets the random states of numpy and Python as well, which training does not use.
        others = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            accelerator.load_state(str(path))
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])  # noqa: NPY002
        history = torch.load(path / _HISTORY, map_location="cpu", weights_only=True)
        self._step = history["step"]
        return history

    def _tell_of_others(self, processes: int) -> None:
        """One line on standard error where only another number of processes could go on from what is here."""
        others = sorted(self.folder.glob("step-*-of-*"))
        if others:
            step, number = others[-1].name.removeprefix("step-").split("-of-")
            print(
                f"{others[-1]}: written after {int(step)} steps with processes={number}, which would go on from there;"
                f" processes={processes} begins the run anew",
                file=sys.stderr,
            )


def _flush(folder: Path) -> None:
    """Make the system write the folder's files to the disk, so that a power cut leaves no name without content."""
    for path in folder.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
