"""The store of runs: an identical run is loaded, a new one is trained and kept.

``runs/<name>-<digest>/`` holds a complete run (``training.stored_run``), under the name that ``training.identity``
gives it. Until it is complete, ``.partial-<name>-<digest>/`` holds its newest checkpoint, and the next attempt resumes
from it. A run that stopped outside a band (the losses expected at a step) leaves its record beside that checkpoint.

A run is checked before it is used. One that is damaged is named on standard error, moved to
``.damaged-<name>-<digest>/`` and trained again.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from transnormer_lib.data import sources
from transnormer_lib.data.faults import DataFault
from transnormer_lib.exhausted import writing
from transnormer_lib.progress import Told, bar
from transnormer_lib.project import UserMistake
from transnormer_lib.training import bands, numbers
from transnormer_lib.training.conditions import run_conditions
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.devices import launched_processes
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.records import explain_divergence
from transnormer_lib.training.stored_run import (
    Run,
    RunDamaged,
    RunFailed,
    read_run,
    rewrite_record,
    write_record,
    write_run,
)

_TOLD: set[str] = set()  # the diverged runs of which this notebook has told
_WAIT = 60.0  # seconds between messages of processes that wait for a lock together


def default_root() -> Path:
    """``$TRANSNORMER_RUNS``, or ``runs/`` in this package's checkout, or ``runs/`` in the current folder.

    Raises :class:`UserMistake` for a variable that names a file.
    """
    if own := os.environ.get("TRANSNORMER_RUNS"):
        if Path(own).exists() and not Path(own).is_dir():
            raise UserMistake(f"TRANSNORMER_RUNS={own!r}: must be a folder, and is a file")
        return Path(own)
    checkout = Path(__file__).resolve().parents[2]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "runs"


def _default_checkpoint_seconds() -> float:
    text = os.environ.get("TRANSNORMER_CHECKPOINT_SECONDS", "60")
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise UserMistake(f"TRANSNORMER_CHECKPOINT_SECONDS={text!r}: must be a number of seconds, not negative")


def _default_check_bands() -> bool:
    text = os.environ.get("TRANSNORMER_CHECK_BANDS", "1")
    if text not in ("0", "1"):
        raise UserMistake(f"TRANSNORMER_CHECK_BANDS={text!r}: must be 0 or 1")
    return text == "1"


class RunStore:
    """Runs in one folder, which several processes may share: while one trains a run, the others wait for it.

    A checkpoint is written every ``checkpoint_seconds`` of training (``$TRANSNORMER_CHECKPOINT_SECONDS``, or 60).
    With ``check_bands`` (``$TRANSNORMER_CHECK_BANDS``, or 1) a run stops when its loss is outside a band. Under
    ``torchrun`` all processes call :meth:`get`, and the main process writes. ``told`` gets a line that says where a run
    will be, when its first step has shown that it can be trained.
    """

    def __init__(
        self,
        root: Path | None = None,
        checkpoint_seconds: float | None = None,
        check_bands: bool | None = None,
        told: Told | None = None,
    ) -> None:
        # What is wrong in the environment is refused once, not for every run.
        launched_processes()
        try:
            sources.check_places()
        except DataFault as fault:
            raise UserMistake(str(fault)) from None
        self.root = Path(root) if root is not None else default_root()
        self.check_bands = _default_check_bands() if check_bands is None else check_bands
        self.checkpoint_seconds = _default_checkpoint_seconds() if checkpoint_seconds is None else checkpoint_seconds
        self.told = told
        self._damages: set[str] = set()  # the damages that were reported

    def find(self, config: RunConfig) -> Run | None:
        """The stored run of this config, or None. A damaged run counts as missing, after a line on standard error."""
        try:
            return read_run(self.root / run_id(config))
        except FileNotFoundError:
            return None
        except RunDamaged as damage:
            if str(damage) not in self._damages:
                print(f"{damage}; it counts as missing and is made again", file=sys.stderr)
            self._damages.add(str(damage))
            return None

    def names(self) -> list[str]:
        """The complete runs, by name. Raises OSError for a store that is there and cannot be read."""
        try:
            with os.scandir(self.root) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if (self.root / name / "config.json").exists())

    def load(self, run: str | Path) -> Run:
        """A stored run by its folder, by its name in the store, or by the name in its config if that is unique.

        Raises ValueError if there is no such run or several, :class:`RunDamaged` for one that is not what was written.
        """
        folder = Path(run)
        if (folder / "config.json").exists():
            return read_run(folder.resolve())
        found = [name for name in self.names() if str(run) in (name, name.rpartition("-")[0])]
        if len(found) != 1:
            why = f"is one of {', '.join(found)}" if found else f"no such run in {self.root}"
            raise ValueError(f"run={str(run)!r}: {why}; `transnormer runs list` names them all")
        return read_run(self.root / found[0])

    def get(self, config: RunConfig, tracker: Any = None, *, weights: bool = True) -> Run:
        """The stored run of this config. If there is none, it is trained, or resumed from its last checkpoint. The run
        that it starts from is trained first. Without ``weights`` a run whose record alone was carried over will do.

        Raises :class:`RunFailed` if that run did not finish, ``DiskFull`` if the store has no space left; with space
        the next attempt resumes. A run that stops outside a band is returned with a record
        and no model. A stored run outside a band of ``config`` is returned, with a line on standard error.

        A notebook says once, on standard error and so on its page, what broke in a run that diverged, when and where.

        ``tracker`` is passed to :func:`~transnormer_lib.training.trainer.train`; trackers that write files write to
        ``tracking/`` in the store.
        """
        run = self._get_together(config, tracker) if launched_processes() > 1 else self._get(config, tracker, weights)
        if run.record["status"] == "diverged" and "ipykernel" in sys.modules and run.path.name not in _TOLD:
            _TOLD.add(run.path.name)
            print(f"run {run.path.name} diverged: {explain_divergence(run.record['divergence'])}", file=sys.stderr)
        return run

    def _get(self, config: RunConfig, tracker: Any, weights: bool) -> Run:
        if found := self._found(config, weights):
            # A process that is killed just after completing a run leaves this.
            shutil.rmtree(self._partial(config), ignore_errors=True)
            self._compare_bands(found, config)
            return self._measured(found)
        start = self._start(config, tracker)
        with self._lock(config):
            found = self._found(config, weights) or self._train(config, tracker, start)
        return self._measured(found)

    def _found(self, config: RunConfig, weights: bool = True) -> Run | None:
        """The stored run, unless what is asked of it needs weights that it does not have."""
        found = self.find(config)
        if found is None or found.has_weights:
            return found
        final = found.record["status"] != "finished" or found.record["evaluation"] == numbers.EVALUATION
        return found if final and not weights else None

    def _measured(self, found: Run) -> Run:
        """The run; measured anew from its weights if evaluation had another number when it was stored."""
        from transnormer_lib.training.setup import load_data
        from transnormer_lib.training.trainer import measure_kept

        if found.record["status"] != "finished" or found.record["evaluation"] == numbers.EVALUATION:
            return found
        with self._lock(found.config):
            found = read_run(found.path)  # another process may have been first
            if found.record["evaluation"] == numbers.EVALUATION:
                return found
            measured = measure_kept(found.model(), found.config, load_data(found.config), found.record)
            return rewrite_record(found, measured | {"evaluation": numbers.EVALUATION})

    def _get_together(self, config: RunConfig, tracker: Any) -> Run:
        """:meth:`get` in all processes of ``torchrun``: the main one holds the lock and decides whether to train."""
        from accelerate.utils import broadcast_object_list

        from transnormer_lib.training.devices import build_accelerator

        accelerator = build_accelerator(config.precision)
        main, stopped = accelerator.is_main_process, None
        with self._lock_together(config, main):
            exists = broadcast_object_list([main and self._found(config) is not None])[0]
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
        from transnormer_lib.training import trainer
        from transnormer_lib.training.checkpoints import Checkpoints

        path, partial = self.root / run_id(config), self._partial(config)
        tell = self.told
        with (
            run_conditions(config) as conditions,
            bar(config.name, hidden=not main, total=config.steps, unit="step") as shown,
        ):

            def progress(step: int, loss: float) -> None:
                nonlocal tell
                if tell is not None:
                    shown.clear()
                    tell(f"run {config.name}: it will be in {path}")
                    tell = None
                shown.update(step - shown.n)
                shown.set_postfix(loss=f"{loss:.3f}", refresh=False)

            checkpoints = Checkpoints(partial / "checkpoints", self.checkpoint_seconds)
            weights = None if start is None else start.weights
            trained = trainer.train(
                config, progress, checkpoints, tracker, self.root / "tracking", weights, self.check_bands
            )
        record = trained.record | conditions
        record["arithmetic"] = numbers.arithmetic(config.model.mechanisms)
        record["evaluation"] = numbers.EVALUATION
        if start is not None:
            record["start_from"] = start.path.name
            record["data"] = start.record["data"] | record["data"]
        if record["status"] == "outside-band":
            if main:
                write_record(config, record, partial)
            return Run(partial, config, record)
        if main:
            complete = partial / "complete"
            shutil.rmtree(complete, ignore_errors=True)
            try:
                with writing(self.root):
                    complete.mkdir(parents=True)
                    write_run(config, record, trained.model, trained.gradients, complete)
            except BaseException:
                shutil.rmtree(complete, ignore_errors=True)
                raise
            whole, aside = self.find(config) is not None, self.root / f".damaged-{path.name}"
            if path.exists():
                shutil.rmtree(aside, ignore_errors=True)
                path.replace(aside)
            complete.replace(path)
            if whole:  # a record that was carried over, without weights
                shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
        return Run(path, config, record)
