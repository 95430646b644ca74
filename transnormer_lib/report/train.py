"""Train the runs of a preset that the store lacks, without Snakemake and without running a notebook."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from transnormer_lib.progress import say
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.signals import undisturbed

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig


def runs_of(project: Project, preset: str, notebook: str) -> "list[RunConfig]":
    """The runs of a notebook's study under a preset, each with a model that can be built; [] without a study.

    Raises :class:`UserMistake` for parameters that the notebook does not have or the study cannot use. Not for a model
    that is too large for this machine: that refuses one run, where it is trained.
    """
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve

    values = resolve(project, preset, notebook)
    try:
        configs = studies.runs(notebook, values)
        _check_models(configs)
    except ValueError as mistake:
        raise UserMistake(f"preset {preset!r}: {notebook}: {' '.join(str(mistake).split())}") from None
    return configs


def _check_models(configs: "Sequence[RunConfig]") -> None:
    """Raise the ValueError with which a model, or one that it starts from, refuses to be built."""
    # Some rules are a mechanism's own, which its config does not know.
    models = {repr((run.model, run.head)): run for config in configs for run in config.chain()}
    if models:
        from transnormer_lib.training.config import RunRefused
        from transnormer_lib.training.setup import parameters_of
    for run in models.values():
        with suppress(RunRefused):
            parameters_of(run)


class MissingData:
    """Collects the runs whose data are missing or wrong, for ``command`` to report."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.reasons: dict[str, list[str]] = {}  # reason → the names of the runs

    def identity(self, config: "RunConfig") -> str | None:
        """The run's name in the store; None, and noted here, if its data cannot be read."""
        from transnormer_lib.data.faults import DataFault, DataUnavailable
        from transnormer_lib.training.identity import run_id

        try:
            return run_id(config)
        except DataUnavailable as problem:
            reason = f"no data: {problem}"
        except DataFault as problem:
            reason = f"wrong data: {problem}"
        names = self.reasons.setdefault(reason, [])
        if config.name not in names:
            names.append(config.name)
        return None

    def tell(self) -> None:
        """Report them on stderr, one line per reason."""
        for reason, names in self.reasons.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"{self.command}: {names[0]}{more}: {reason}", file=sys.stderr)


def train_lacking(
    project: Project,
    preset: str,
    notebooks: Sequence[str],
    pattern: str | None = None,
    tracker: str | None = None,
    jobs: int = 1,
) -> int:
    """Train the runs of these notebooks that the store lacks and whose names match ``pattern``, as file names do.

    ``jobs`` run at a time, each in its own process if there are several. Returns the exit code: 0, also if a run
    diverged, which is a result; 1 if a run could not be trained, for lack of data for instance, or left its band; 2 if
    this machine does not allow a run. The others are trained all the same. Raises :class:`UserMistake` for wrong
    parameters and for a ``pattern`` that matches no run.
    """
    from transnormer_lib.report.share import train_runs
    from transnormer_lib.training.store import RunStore

    store, missing = RunStore(), MissingData("train")
    places: dict[str, tuple[str, int]] = {}  # run → the first notebook that needs it, and its number there
    lacking: dict[str, tuple[str, int]] = {}
    try:
        for notebook in notebooks:
            for number, config in enumerate(runs_of(project, preset, notebook)):
                if pattern is None or fnmatch(config.name, pattern):
                    identity = missing.identity(config)
                    if identity is None:
                        continue
                    if identity not in places and store.find(config) is None:
                        lacking[identity] = (notebook, number)
                    places.setdefault(identity, (notebook, number))
        if pattern is not None and not places and not missing.reasons:
            raise UserMistake(f"run={pattern!r}: no run of preset {preset!r} has such a name")
        missing.tell()
        say(f"train: {len(lacking)} of {len(places)} runs to train, into {store.root.resolve()}")
        if jobs > 1 and len(lacking) > 1:
            code = _in_processes(project, preset, list(lacking.values()), tracker, jobs)
        else:
            code = train_runs(project, preset, list(lacking.values()), tracker)
    except OSError as problem:
        print(f"train: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    return max(code, 1 if missing.reasons else 0)


def _in_processes(
    project: Project, preset: str, lacking: Sequence[tuple[str, int]], tracker: str | None, jobs: int
) -> int:
    """Train a share of the runs in each process; returns the largest exit code. An interruption ends all of them.

    The exit code of a process that a signal ended is 128 plus the signal's number.
    """
    command = [sys.executable, "-m", "transnormer_lib.report.share", "--parent", str(os.getpid())]
    command += ["--root", str(project.root), "--preset", preset] + (["--tracker", tracker] if tracker else [])
    quiet = os.environ | {"TQDM_DISABLE": "1"}  # bars of several processes would overwrite each other
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for share in (lacking[first::jobs] for first in range(min(jobs, len(lacking)))):
            runs = [f"{name}:{number}" for name, number in share]
            # In its own session, so that only this process gets Ctrl-C from the terminal and passes it on once.
            processes.append(subprocess.Popen([*command, *runs], env=quiet, start_new_session=True))
        codes = [process.wait() for process in processes]
    except KeyboardInterrupt:
        with undisturbed():  # they write their checkpoints
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        raise
    for code in codes:
        if code < 0:
            name = signal.Signals(-code).name
            print(f"train: {name} ended a process; some of its runs were not trained", file=sys.stderr)
    return max(128 - code if code < 0 else code for code in codes)
