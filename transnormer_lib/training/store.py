"""The store of runs: an identical run is loaded, a new one is trained and kept.

``runs/<name>-<digest>/`` holds ``config.json``, ``record.json``, ``model.safetensors`` and, if the config asks for
them, ``gradients.safetensors``. The digest covers the config, the fingerprint of the data and the code that training
imports (without comments and docstrings, so that a clarified sentence costs no training, and without the mechanisms
that the model does not have), and of a run that starts from another one that one's digest. A folder appears under its
name only when it is complete: an interrupted run leaves nothing behind but ``.partial-<name>-<digest>/`` with its last
checkpoint, from which the next attempt goes on. Other code, data or config has another digest, so a checkpoint is never
continued by what did not write it. A run that stopped outside a band is no finished run: its record stands in its
partial folder, beside the checkpoint from which it goes on once the bands are others, or not looked at.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.files import write_text
from transnormer_lib.training.circumstances import circumstances, measured_memory
from transnormer_lib.training.config import DataConfig, RunConfig, run_config
from transnormer_lib.training.devices import launched_processes

if TYPE_CHECKING:
    from transnormer_lib.training.gradient_statistics import GradientStatistics
    from transnormer_lib.training.trainer import Trained


_WAIT = 60.0  # seconds after which processes that wait together hear of each other


class RunFailed(RuntimeError):
    """A stored run did not finish; the message names the run and what its record says."""


@dataclass(frozen=True)
class Run:
    """A finished run on disk."""

    path: Path
    config: RunConfig
    record: dict[str, Any]

    def model(self) -> Any:
        """The trained ``LanguageModel`` or ``Classifier``, in evaluation mode; raises :class:`RunFailed` where the
        run stopped outside a band, which leaves a checkpoint and no model."""
        from transnormer_lib.training.checkpoints import load_weights
        from transnormer_lib.training.substance import build

        if self.record["status"] == "outside-band":
            raise RunFailed(self._failure())
        model = build(self.config)
        load_weights(model, self.weights)
        return model.eval()

    @property
    def weights(self) -> Path:
        """The file with the weights that the run left."""
        return self.path / "model.safetensors"

    @property
    def validation(self) -> dict[str, float]:
        """The validation result of the weights that the run left, the last one unless the config keeps the best;
        raises :class:`RunFailed` where the run did not finish."""
        if self.record["status"] != "finished":
            raise RunFailed(self._failure())
        step = self.record["kept_step"]
        return next(result for result in self.record["validation"] if result["step"] == step)

    def _failure(self) -> str:
        line = f"run {self.path.name}: {self.record['status']} after {self.record['steps']} steps"
        if self.record["status"] == "outside-band":
            from transnormer_lib.training.bands import explain

            line += f": {explain(self.record['outside'])}"
        return line

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


def default_check_bands() -> bool:
    """``$TRANSNORMER_CHECK_BANDS``, else yes: whether a run stops where its loss is outside a band of its config."""
    text = os.environ.get("TRANSNORMER_CHECK_BANDS", "1")
    if text not in ("0", "1"):
        raise ValueError(f"TRANSNORMER_CHECK_BANDS={text!r}: must be 0 or 1")
    return text == "1"


@lru_cache
def _code(mechanisms: frozenset[str]) -> str:
    """Digest of the code that trains a model of these mechanisms: of the registered ones theirs alone, so that work
    on one leaves the runs of the others as they are."""
    from transnormer_lib import attention
    from transnormer_lib.provenance.imports import closure, code_digest

    def modules(names: Iterable[str]) -> set[str]:
        return {kind.__module__ for name in names for kind in attention.classes(name)}

    every = modules(attention.names())
    # What a mechanism has from others, but for the package, which imports all.
    used = every & set(closure(modules(mechanisms), without=[attention.__name__]))
    # How a classification task is made is left out: its fingerprint covers every token and label that came of it.
    return code_digest("transnormer_lib.training.trainer", without=[*(every - used), "transnormer_lib.data.tasks"])


@lru_cache
def _data_fingerprint(corpus: str, vocabulary: str) -> str:
    from transnormer_lib.data.corpora import load_text_corpus

    return load_text_corpus(corpus, vocabulary).fingerprint


@lru_cache
def _task_fingerprint(data: str) -> str:
    from transnormer_lib.strict import from_plain
    from transnormer_lib.training.substance import load_task_data

    return load_task_data(from_plain(DataConfig, json.loads(data))).fingerprint


def _fingerprint(data: DataConfig) -> str:
    if data.task == "classify":
        return _task_fingerprint(json.dumps(asdict(data), sort_keys=True))
    return _data_fingerprint(data.corpus, data.vocabulary)


def run_id(config: RunConfig, data: Mapping[str, str] | None = None) -> str:
    """``<name>-<digest>``: equal for equal config, data and code.

    ``data`` holds fingerprints by ``DataConfig.source``, as a record does; what it lacks is read.
    """
    content = {
        "config": config.identity(),
        "data": (data or {}).get(config.data.source) or _fingerprint(config.data),
        "code": _code(frozenset(config.model.mechanisms)),
        "start_from": None if config.start_from is None else run_id(config.start_from, data),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"{config.name}-{digest}"


class RunStore:
    """Runs under one folder. Several processes may share it: a run that one trains, the others wait for.

    Every ``checkpoint_seconds`` of training (``$TRANSNORMER_CHECKPOINT_SECONDS``, else 60) the run's state is put
    into ``.partial-<id>/``, from where the next attempt goes on. Under ``torchrun`` all processes call :meth:`get`;
    the main one writes.
    """

    def __init__(
        self, root: Path | None = None, checkpoint_seconds: float | None = None, check_bands: bool | None = None
    ) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.check_bands = default_check_bands() if check_bands is None else check_bands
        self.checkpoint_seconds = default_checkpoint_seconds() if checkpoint_seconds is None else checkpoint_seconds

    def find(self, config: RunConfig) -> Run | None:
        """The stored run of this config, or None."""
        path = self.root / run_id(config)
        if not (path / "record.json").exists():
            return None
        record = json.loads((path / "record.json").read_text())
        return Run(path, run_config(json.loads((path / "config.json").read_text())), record)

    def get(self, config: RunConfig, tracker: Any = None) -> Run:
        """The stored run of this config; trains it first where there is none, on from its last checkpoint, and before
        it the run that it starts from.

        Raises :class:`RunFailed` where that one did not finish. A run that stops outside a band is returned with its
        record and without a model; of a stored one that was outside it is said on standard error.

        ``tracker`` is passed to :func:`~transnormer_lib.training.trainer.train`; one that writes files uses
        ``tracking/`` of the store.
        """
        if launched_processes() > 1:
            return self._get_together(config, tracker)
        if found := self.find(config):
            self._drop_partial(config)  # the process that completed the run may have been killed right then
            self._compare_bands(found, config)
            return found
        start = self._start(config, tracker)
        with self._lock(config):
            return self.find(config) or self._train(config, tracker, start)

    def _compare_bands(self, found: Run, config: RunConfig) -> None:
        """Say where a stored run was outside the bands that it is asked for with: there is nothing left to stop."""
        from transnormer_lib.training.bands import describe, outside_finished

        outside = outside_finished(config, found.record) if self.check_bands else None
        if outside is not None:
            print(f"run {found.path.name}, stored: {describe(outside)}", file=sys.stderr)

    def _start(self, config: RunConfig, tracker: Any) -> Run | None:
        """The run that ``config`` starts from, finished."""
        if config.start_from is None:
            return None
        start = self.get(config.start_from, tracker)
        if start.record["status"] != "finished":
            raise RunFailed(f"run {config.name} starts from another: {start._failure()}")
        return start

    def _get_together(self, config: RunConfig, tracker: Any) -> Run:
        """:meth:`get` in all processes of ``torchrun``: the main one holds the lock and says whether to train."""
        from accelerate.utils import broadcast_object_list

        from transnormer_lib.training.devices import build_accelerator

        accelerator = build_accelerator(config.precision)
        stopped = None
        with self._lock_together(config, accelerator.is_main_process):
            exists = broadcast_object_list([accelerator.is_main_process and self.find(config) is not None])[0]
            if not exists:
                start = self._start(config, tracker)
                # A run before it may have had another precision.
                accelerator = build_accelerator(config.precision)
                made = self._train(config, tracker, start, main=accelerator.is_main_process)
                stopped = made if made.record["status"] == "outside-band" else None
            accelerator.wait_for_everyone()
        found = stopped or self.find(config)
        if found is None:
            raise RunFailed(f"run {run_id(config)}: the main process wrote nothing that this one can see")
        if exists and accelerator.is_main_process:
            self._compare_bands(found, config)
        return found

    def _partial(self, config: RunConfig) -> Path:
        return self.root / f".partial-{run_id(config)}"

    def _drop_partial(self, config: RunConfig) -> None:
        shutil.rmtree(self._partial(config), ignore_errors=True)

    def _lock(self, config: RunConfig) -> Any:
        from filelock import FileLock

        self.root.mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / f".{run_id(config)}.lock")

    @contextmanager
    def _lock_together(self, config: RunConfig, main: bool) -> Iterator[None]:
        """The main process's lock, for all of them: while another job trains the run, it sends word that it still
        waits, since the others' wait for a message would time out."""
        from accelerate.utils import broadcast_object_list
        from filelock import Timeout

        lock = self._lock(config) if main else None

        def acquired() -> bool:
            try:
                return lock is None or bool(lock.acquire(timeout=_WAIT))
            except Timeout:
                return False

        while not broadcast_object_list([acquired()])[0]:
            pass
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _train(self, config: RunConfig, tracker: Any, start: Run | None, main: bool = True) -> Run:
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
        # Of the beginning: hours later the code in the checkout may be another than what trains.
        around = circumstances(config)
        with tqdm(total=config.steps, desc=config.name, unit="step", leave=False, **quiet) as bar:

            def progress(step: int, loss: float) -> None:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            checkpoints = Checkpoints(partial / "checkpoints", self.checkpoint_seconds)
            with measured_memory() as memory:
                weights = None if start is None else start.weights
                trained = trainer.train(
                    config, progress, checkpoints, tracker, self.root / "tracking", weights, self.check_bands
                )
        record = trained.record | memory | around
        if start is not None:
            record["start_from"] = start.path.name
            record["data"] = start.record["data"] | record["data"]
        if record["status"] == "outside-band":
            if main:
                _write_record(config, record, partial)
            return Run(partial, config, record)
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
    save_weights(trained.model, folder / "model.safetensors")
    if trained.gradients is not None:
        trained.gradients.save(folder / "gradients.safetensors")
    _write_record(config, record, folder)


def _write_record(config: RunConfig, record: dict[str, Any], folder: Path) -> None:
    write_text(folder / "config.json", json.dumps(config.to_dict(), indent=1, sort_keys=True))
    write_text(folder / "record.json", json.dumps(record, indent=1, sort_keys=True))
