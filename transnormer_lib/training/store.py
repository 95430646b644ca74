"""The store of runs: an identical run is loaded, a new one is trained and kept.

``runs/<name>-<digest>/`` holds ``config.json``, ``record.json``, ``model.safetensors`` and, if the config asks for
them, ``gradients.safetensors``. The digest (:func:`run_id`) covers

- the config,
- the fingerprint of the data, a hash of its content,
- the code that the trainer imports, except the mechanisms that the model does not use; comments and docstrings do
  not count, so rewording them retrains nothing,
- the digest of the run that it starts from, if any.

A run is moved to its folder when it is complete. Until then ``.partial-<name>-<digest>/`` holds its newest checkpoint,
and the next attempt resumes from it. If code, data or config change, so does the digest, and the checkpoint is not
used. A run that stopped outside a band (the losses expected at a step) leaves its record beside that checkpoint.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.files import write_text
from transnormer_lib.strict import from_plain
from transnormer_lib.training import bands
from transnormer_lib.training.conditions import run_conditions
from transnormer_lib.training.config import DataConfig, RunConfig
from transnormer_lib.training.devices import launched_processes

if TYPE_CHECKING:
    from transnormer_lib.training.gradient_statistics import GradientStatistics

_WAIT = 60.0  # seconds between messages of processes that wait for a lock together


class RunFailed(RuntimeError):
    """A stored run did not finish; the message names the run and what its record says."""


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path
    config: RunConfig
    record: dict[str, Any]

    @property
    def weights(self) -> Path:
        """The file with the kept weights."""
        return self.path / "model.safetensors"

    def model(self) -> Any:
        """The trained ``LanguageModel`` or ``Classifier``, in evaluation mode.

        Raises :class:`RunFailed` for a run that stopped outside a band and so has a checkpoint but no model.
        """
        from safetensors.torch import load_model

        from transnormer_lib.training.setup import build

        if self.record["status"] == "outside-band":
            raise self.failure()
        model = build(self.config)
        load_model(model, str(self.weights))  # refuses missing and unexpected names
        return model.eval()

    @property
    def validation(self) -> dict[str, float]:
        """The validation result of the kept weights; raises :class:`RunFailed` for a run that did not finish."""
        if self.record["status"] != "finished":
            raise self.failure()
        step = self.record["kept_step"]
        return next(result for result in self.record["validation"] if result["step"] == step)

    def gradients(self) -> "GradientStatistics":
        """The statistics of the gradients; raises ValueError for a run whose config did not ask for them."""
        from transnormer_lib.training.gradient_statistics import GradientStatistics

        if self.config.gradients == "none":
            raise ValueError(f"gradients='none': run {self.path.name} recorded no gradients; set gradients='norms'")
        stored = self.record["gradients"]
        return GradientStatistics.load(self.path / "gradients.safetensors", stored["names"], stored["counted"])

    def failure(self, context: str = "") -> RunFailed:
        """The error that says why the run did not finish, after ``context``."""
        line = f"{context}run {self.path.name}: {self.record['status']} after {self.record['steps']} steps"
        if self.record["status"] == "outside-band":
            line += f": {bands.explain(self.record['outside'])}"
        return RunFailed(line)


def default_root() -> Path:
    """``$TRANSNORMER_RUNS``, or ``runs/`` in this package's checkout, or ``runs/`` in the current folder."""
    if "TRANSNORMER_RUNS" in os.environ:
        return Path(os.environ["TRANSNORMER_RUNS"])
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "runs"


def _default_checkpoint_seconds() -> float:
    text = os.environ.get("TRANSNORMER_CHECKPOINT_SECONDS", "60")
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise ValueError(f"TRANSNORMER_CHECKPOINT_SECONDS={text!r}: must be a number of seconds, not negative")


def _default_check_bands() -> bool:
    text = os.environ.get("TRANSNORMER_CHECK_BANDS", "1")
    if text not in ("0", "1"):
        raise ValueError(f"TRANSNORMER_CHECK_BANDS={text!r}: must be 0 or 1")
    return text == "1"


def run_id(config: RunConfig, data: Mapping[str, str] | None = None) -> str:
    """``<name>-<digest>``: equal for equal config, data and code.

    ``data`` holds fingerprints by ``DataConfig.source``, as a record does; those it lacks are computed.
    """
    content = {
        "config": config.identity(),
        "data": (data or {}).get(config.data.source) or _fingerprint(config.data),
        "code": _code(frozenset(config.model.mechanisms)),
        "start_from": None if config.start_from is None else run_id(config.start_from, data),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"{config.name}-{digest}"


@lru_cache
def _code(mechanisms: frozenset[str]) -> str:
    """Digest of the code that trains a model of these mechanisms.

    Without the code of other mechanisms, so that work on one leaves the runs of the others valid.
    """
    from transnormer_lib import attention
    from transnormer_lib.data import tasks
    from transnormer_lib.provenance.imports import closure, code_digest
    from transnormer_lib.training import trainer

    def modules(names: Iterable[str]) -> set[str]:
        return {kind.__module__ for name in names for kind in attention.classes(name)}

    every = modules(attention.names())
    # Other mechanisms' modules that these import directly; the package itself imports all of them.
    used = every & set(closure(modules(mechanisms), without=[attention.__name__]))
    # Without the code that makes a classification task: the task's fingerprint covers its every token and label.
    return code_digest(trainer.__name__, without=[*(every - used), tasks.__name__])


def _fingerprint(data: DataConfig) -> str:
    # The fingerprint of a text does not depend on how it is cut.
    named = data if data.task == "classify" else DataConfig(data.corpus, data.vocabulary)
    return _data_fingerprint(json.dumps(asdict(named), sort_keys=True))


@lru_cache
def _data_fingerprint(data: str) -> str:
    """The fingerprint of the task or the text that a ``DataConfig``, as JSON, names."""
    from transnormer_lib.data.corpora import load_text_corpus
    from transnormer_lib.training.setup import load_task_data

    config = from_plain(DataConfig, json.loads(data))
    if config.task == "classify":
        return load_task_data(config).fingerprint
    return load_text_corpus(config.corpus, config.vocabulary).fingerprint


class RunStore:
    """Runs in one folder, which several processes may share: while one trains a run, the others wait for it.

    A checkpoint is written every ``checkpoint_seconds`` of training (``$TRANSNORMER_CHECKPOINT_SECONDS``, or 60).
    With ``check_bands`` (``$TRANSNORMER_CHECK_BANDS``, or 1) a run stops when its loss is outside a band. Under
    ``torchrun`` all processes call :meth:`get`, and the main process writes.
    """

    def __init__(
        self, root: Path | None = None, checkpoint_seconds: float | None = None, check_bands: bool | None = None
    ) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.check_bands = _default_check_bands() if check_bands is None else check_bands
        self.checkpoint_seconds = _default_checkpoint_seconds() if checkpoint_seconds is None else checkpoint_seconds

    def find(self, config: RunConfig) -> Run | None:
        """The stored run of this config, or None."""
        path = self.root / run_id(config)
        if not (path / "record.json").exists():
            return None
        record = json.loads((path / "record.json").read_text())
        return Run(path, from_plain(RunConfig, json.loads((path / "config.json").read_text())), record)

    def get(self, config: RunConfig, tracker: Any = None) -> Run:
        """The stored run of this config. If there is none, it is trained, or resumed from its last checkpoint. The run
        that it starts from is trained first.

        Raises :class:`RunFailed` if that run did not finish. A run that stops outside a band is returned with a record
        and no model. A stored run outside a band of ``config`` is returned, with a line on standard error.

        ``tracker`` is passed to :func:`~transnormer_lib.training.trainer.train`; trackers that write files write to
        ``tracking/`` in the store.
        """
        if launched_processes() > 1:
            return self._get_together(config, tracker)
        if found := self.find(config):
            # A process that is killed just after completing a run leaves this.
            shutil.rmtree(self._partial(config), ignore_errors=True)
            self._compare_bands(found, config)
            return found
        start = self._start(config, tracker)
        with self._lock(config):
            return self.find(config) or self._train(config, tracker, start)

    def _get_together(self, config: RunConfig, tracker: Any) -> Run:
        """:meth:`get` in all processes of ``torchrun``: the main one holds the lock and decides whether to train."""
        from accelerate.utils import broadcast_object_list

        from transnormer_lib.training.devices import build_accelerator

        accelerator = build_accelerator(config.precision)
        main, stopped = accelerator.is_main_process, None
        with self._lock_together(config, main):
            exists = broadcast_object_list([main and self.find(config) is not None])[0]
            if not exists:
                start = self._start(config, tracker)
                accelerator = build_accelerator(config.precision)  # the run it starts from may have had another
                trained = self._train(config, tracker, start, main)
                stopped = trained if trained.record["status"] == "outside-band" else None
            accelerator.wait_for_everyone()
        found = stopped or self.find(config)
        if found is None:
            raise RunFailed(f"run {run_id(config)}: this process cannot see what the main process wrote")
        if exists and main:
            self._compare_bands(found, config)
        return found

    def _compare_bands(self, found: Run, config: RunConfig) -> None:
        """Report a stored run that is outside a band of ``config``; it is too late to stop it."""
        if not self.check_bands or found.record["status"] != "finished":
            return
        outside = bands.outside(config.bands, found.record["train_loss"], found.record["validation"])
        if outside is not None:
            print(f"run {found.path.name}, stored: {bands.describe(outside)}", file=sys.stderr)

    def _start(self, config: RunConfig, tracker: Any) -> Run | None:
        """The finished run that ``config`` starts from, if any."""
        if config.start_from is None:
            return None
        start = self.get(config.start_from, tracker)
        if start.record["status"] != "finished":
            raise start.failure(f"run {config.name} starts from another: ")
        return start

    def _partial(self, config: RunConfig) -> Path:
        return self.root / f".partial-{run_id(config)}"

    def _lock(self, config: RunConfig) -> Any:
        from filelock import FileLock

        self.root.mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / f".{run_id(config)}.lock")

    @contextmanager
    def _lock_together(self, config: RunConfig, main: bool) -> Iterator[None]:
        """Wait until the main process holds the lock; the processes exchange messages, so that none times out."""
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
        """Train the run in all processes; the main one shows progress and writes."""
        from safetensors.torch import save_model
        from tqdm import tqdm

        from transnormer_lib.training import trainer
        from transnormer_lib.training.checkpoints import Checkpoints

        path, partial = self.root / run_id(config), self._partial(config)
        # Hide the bar unless stderr is a terminal; notebooks show it unless TQDM_DISABLE is set.
        options: dict[str, Any] = {} if main and "ipykernel" in sys.modules else {"disable": None if main else True}
        with (
            run_conditions(config) as conditions,
            tqdm(total=config.steps, desc=config.name, unit="step", leave=False, **options) as bar,
        ):

            def progress(step: int, loss: float) -> None:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            checkpoints = Checkpoints(partial / "checkpoints", self.checkpoint_seconds)
            weights = None if start is None else start.weights
            trained = trainer.train(
                config, progress, checkpoints, tracker, self.root / "tracking", weights, self.check_bands
            )
        record = trained.record | conditions
        if start is not None:
            record["start_from"] = start.path.name
            record["data"] = start.record["data"] | record["data"]
        if record["status"] == "outside-band":
            if main:
                _write_record(config, record, partial)
            return Run(partial, config, record)
        if main:
            complete = partial / "complete"
            shutil.rmtree(complete, ignore_errors=True)
            complete.mkdir(parents=True)
            save_model(trained.model, str(complete / "model.safetensors"))
            if trained.gradients is not None:
                trained.gradients.save(complete / "gradients.safetensors")
            _write_record(config, record, complete)
            shutil.rmtree(path, ignore_errors=True)  # an incomplete folder that something else made
            complete.replace(path)
            shutil.rmtree(partial, ignore_errors=True)
        return Run(path, config, record)


def _write_record(config: RunConfig, record: dict[str, Any], folder: Path) -> None:
    write_text(folder / "config.json", json.dumps(asdict(config), indent=1, sort_keys=True))
    write_text(folder / "record.json", json.dumps(record, indent=1, sort_keys=True))
