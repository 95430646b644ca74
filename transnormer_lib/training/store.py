"""The store of runs: an identical run is loaded, a new one is trained and kept.

``runs/<name>-<digest>/`` holds ``config.json``, ``record.json``, ``model.safetensors`` and, if the config asks for
them, ``gradients.safetensors``. The digest covers the
config, the fingerprint of the data and the code that training imports (without comments and docstrings, so that a
clarified sentence costs no training). A folder appears under its name only when it is complete: an interrupted run
leaves nothing behind but ``.partial-<name>-<digest>/`` with its last checkpoint, from which the next attempt goes on.
Other code, data or config has another digest, so a checkpoint is never continued by what did not write it.
"""

import hashlib
import json
import os
import shutil
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.training.circumstances import circumstances, measured_memory
from transnormer_lib.training.config import RunConfig, run_config
from transnormer_lib.training.devices import launched_processes

if TYPE_CHECKING:
    from transnormer_lib.training.gradient_statistics import GradientStatistics
    from transnormer_lib.training.trainer import Trained


class RunFailed(RuntimeError):
    """A stored run did not finish; the message names the run and what its record says."""


@dataclass(frozen=True)
class Run:
    """A finished run on disk."""

    path: Path
    config: RunConfig
    record: dict[str, Any]

    def model(self) -> Any:
        """The trained :class:`~transnormer_lib.models.language_model.LanguageModel`, in evaluation mode."""
        from transnormer_lib.models.language_model import build_model
        from transnormer_lib.training.checkpoints import load_weights

        model = build_model(self.config.model, self.config.seed)
        load_weights(model, self.path / "model.safetensors")
        return model.eval()

    @property
    def validation(self) -> dict[str, float]:
        """The last validation result; raises :class:`RunFailed` where the run diverged before one was made."""
        if self.record["status"] != "finished":
            raise RunFailed(f"run {self.path.name}: {self.record['status']} after {self.record['steps']} steps")
        return self.record["validation"][-1]

    def gradients(self) -> "GradientStatistics":
        """The statistics of the gradients; raises ValueError for a run whose config did not ask for them."""
        from transnormer_lib.training.gradient_statistics import GradientStatistics

        if self.config.gradients == "none":
            raise ValueError(f"gradients='none': run {self.path.name} recorded no gradients; set gradients='norms'")
        stored = self.record["gradients"]
        return GradientStatistics.load(self.path / "gradients.safetensors", stored["names"], stored["counted"])


def default_root() -> Path:
    """``$TRANSNORMER_RUNS``, else ``runs/`` of the checkout this package lies in, else of the current folder."""
    if "TRANSNORMER_RUNS" in os.environ:
        return Path(os.environ["TRANSNORMER_RUNS"])
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "runs"


def default_checkpoint_seconds() -> float:
    """``$TRANSNORMER_CHECKPOINT_SECONDS``, else 60: a run of less writes no checkpoint unless it is interrupted."""
    text = os.environ.get("TRANSNORMER_CHECKPOINT_SECONDS", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"TRANSNORMER_CHECKPOINT_SECONDS={text!r}: must be a number of seconds, not negative")
    return seconds


@lru_cache
def _code() -> str:
    from transnormer_lib.provenance.imports import code_digest

    return code_digest("transnormer_lib.training.trainer")


@lru_cache
def _data_fingerprint(corpus: str, vocabulary: str) -> str:
    from transnormer_lib.data.text import load_text_corpus

    return load_text_corpus(corpus, vocabulary).fingerprint


def run_id(config: RunConfig, data: str | None = None) -> str:
    """``<name>-<digest>``: equal for equal config, data and code.

    ``data`` is the data's fingerprint; without it the data is read.
    """
    content = {
        "config": config.to_dict(),
        "data": data or _data_fingerprint(config.data.corpus, config.data.vocabulary),
        "code": _code(),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"{config.name}-{digest}"


class RunStore:
    """Runs under one folder. Several processes may share it: a run that one trains, the others wait for.

    Every ``checkpoint_seconds`` of training (``$TRANSNORMER_CHECKPOINT_SECONDS``, else 60) the run's state is put
    into ``.partial-<id>/``, from where the next attempt goes on. Under ``torchrun`` all processes call :meth:`get`;
    the main one writes.
    """

    def __init__(self, root: Path | None = None, checkpoint_seconds: float | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.checkpoint_seconds = default_checkpoint_seconds() if checkpoint_seconds is None else checkpoint_seconds

    def find(self, config: RunConfig) -> Run | None:
        """The stored run of this config, or None."""
        path = self.root / run_id(config)
        if not (path / "record.json").exists():
            return None
        record = json.loads((path / "record.json").read_text())
        return Run(path, run_config(json.loads((path / "config.json").read_text())), record)

    def get(self, config: RunConfig, tracker: Any = None) -> Run:
        """The stored run of this config; trains it first where there is none, on from its last checkpoint.

        ``tracker`` is passed to :func:`~transnormer_lib.training.trainer.train`; one that writes files uses
        ``tracking/`` of the store.
        """
        if launched_processes() > 1:
            return self._get_together(config, tracker)
        if found := self.find(config):
            self._drop_partial(config)  # the process that completed the run may have been killed right then
            return found
        with self._lock(config):
            return self.find(config) or self._train(config, tracker)

    def _get_together(self, config: RunConfig, tracker: Any) -> Run:
        """:meth:`get` in all processes of ``torchrun``: the main one holds the lock and says whether to train."""
        from accelerate.utils import broadcast_object_list

        from transnormer_lib.training.devices import build_accelerator

        accelerator = build_accelerator(config.precision)
        with self._lock(config) if accelerator.is_main_process else nullcontext():
            exists = broadcast_object_list([accelerator.is_main_process and self.find(config) is not None])[0]
            if not exists:
                self._train(config, tracker, main=accelerator.is_main_process)
            accelerator.wait_for_everyone()
        found = self.find(config)
        if found is None:
            raise RunFailed(f"run {run_id(config)}: the main process wrote nothing that this one can see")
        return found

    def _partial(self, config: RunConfig) -> Path:
        return self.root / f".partial-{run_id(config)}"

    def _drop_partial(self, config: RunConfig) -> None:
        shutil.rmtree(self._partial(config), ignore_errors=True)

    def _lock(self, config: RunConfig) -> Any:
        from filelock import FileLock

        self.root.mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / f".{run_id(config)}.lock")

    def _train(self, config: RunConfig, tracker: Any, main: bool = True) -> Run:
        from tqdm import tqdm

        from transnormer_lib.training import trainer
        from transnormer_lib.training.checkpoints import Checkpoints

        identity = run_id(config)
        path, partial = self.root / identity, self._partial(config)
        # Nobody watches a bar where standard error is no terminal. A notebook's never is one: there the bar shows
        # unless TQDM_DISABLE says that the notebook runs in batch.
        quiet: dict[str, Any] = {"disable": None if main else True}
        if main and "ipykernel" in sys.modules:
            quiet = {}
        with tqdm(total=config.steps, desc=config.name, unit="step", leave=False, **quiet) as bar:

            def progress(step: int, loss: float) -> None:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            checkpoints = Checkpoints(partial / "checkpoints", self.checkpoint_seconds)
            with measured_memory() as memory:
                trained = trainer.train(config, progress, checkpoints, tracker, self.root / "tracking")
        record = trained.record | memory | circumstances(config)
        if main:
            _write(trained, config, record, partial / "complete")
            shutil.rmtree(path, ignore_errors=True)  # an incomplete folder of the same name, from outside
            (partial / "complete").replace(path)
            self._drop_partial(config)
        return Run(path, config, record)


def _write(trained: "Trained", config: RunConfig, record: dict[str, Any], folder: Path) -> None:
    from transnormer_lib.training.checkpoints import save_weights

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=1, sort_keys=True))
    save_weights(trained.model, folder / "model.safetensors")
    if trained.gradients is not None:
        trained.gradients.save(folder / "gradients.safetensors")
    (folder / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True))
