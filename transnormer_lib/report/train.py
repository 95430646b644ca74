"""Train the runs of a preset that the store lacks, here and now, without running a notebook."""

import os
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from transnormer_lib.report.progress import say
from transnormer_lib.report.project import Project, UserMistake
from transnormer_lib.report.signals import undisturbed

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig


def runs_of(project: Project, preset: str, notebook: str) -> "list[RunConfig]":
    """The runs of a notebook's study under a preset; [] without a study.

    Raises :class:`UserMistake` for parameters that the notebook does not take or the study cannot use.
    """
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve

    values = resolve(project, preset, notebook)
    try:
        return studies.runs(notebook, values)
    except ValueError as mistake:
        raise UserMistake(f"{notebook}: {' '.join(str(mistake).split())}") from None


def train_lacking(
    project: Project,
    preset: str,
    notebooks: Sequence[str],
    pattern: str | None = None,
    tracker: str | None = None,
    jobs: int = 1,
) -> int:
    """Train what the store lacks of these notebooks' runs, ``jobs`` at a time, each in a process if there are several.

    ``pattern`` keeps the runs whose names it matches (``*``, ``?``, ``[...]``). Returns the exit code: 0 also where a
    run diverged, which is a result; 1 where one could not be made, its data for instance. Raises
    :class:`UserMistake` for parameters that do not fit, and for a ``pattern`` that no run matches.
    """
    from transnormer_lib.data.sources import DataUnavailable
    from transnormer_lib.report.share import train_runs
    from transnormer_lib.training.store import RunFailed, RunStore, run_id

    store = RunStore()
    places: dict[str, tuple[str, int]] = {}  # run → the first notebook that asks for it, and its number there
    lacking: dict[str, tuple[str, int]] = {}
    try:
        for notebook in notebooks:
            for number, config in enumerate(runs_of(project, preset, notebook)):
                if pattern is None or fnmatch(config.name, pattern):
                    identity = run_id(config)
                    if identity not in places and store.find(config) is None:
                        lacking[identity] = (notebook, number)
                    places.setdefault(identity, (notebook, number))
        if pattern is not None and not places:
            raise UserMistake(f"run={pattern!r}: no run of preset {preset!r} has such a name")
        say(f"train: {len(lacking)} of {len(places)} runs to make")
        if jobs > 1 and len(lacking) > 1:
            return _in_processes(project, preset, list(lacking.values()), tracker, jobs)
        train_runs(project, preset, list(lacking.values()), tracker)
    except DataUnavailable as problem:
        print(f"train: no data: {problem}", file=sys.stderr)
        return 1
    except (RunFailed, OSError) as problem:
        print(f"train: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    return 0


def _in_processes(
    project: Project, preset: str, lacking: Sequence[tuple[str, int]], tracker: str | None, jobs: int
) -> int:
    """One share of the runs per process; returns the largest exit code. An interruption ends all of them."""
    command = [sys.executable, "-m", "transnormer_lib.report.share", "--root", str(project.root), "--preset", preset]
    command += ["--tracker", tracker] if tracker else []
    quiet = os.environ | {"TQDM_DISABLE": "1"}  # bars of several processes would overwrite each other
    processes = [
        # A session of its own: the terminal's Ctrl-C comes to this process alone, which passes it on once.
        subprocess.Popen([*command, *(f"{name}:{n}" for name, n in share)], env=quiet, start_new_session=True)
        for share in (lacking[first::jobs] for first in range(min(jobs, len(lacking))))
    ]
    try:
        return max(process.wait() for process in processes)
    except KeyboardInterrupt:
        with undisturbed():  # they write their checkpoints
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        raise
