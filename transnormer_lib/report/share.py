"""Train some runs of the studies: one job of Snakemake, or of a cluster, before the notebooks read them.

``python -m transnormer_lib.report.share --preset quick 03_attention_dilution:4 04_autoregressive_lm:20`` trains these
runs, counted from 0 in the order of each notebook's study. Runs that the store already holds cost nothing. A run that
diverges is a result like any other: its record says so, and the notebook reports it.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from transnormer_lib.report.progress import say
from transnormer_lib.report.project import INTERRUPTED, Project, UserMistake, find_project
from transnormer_lib.report.signals import on_ending


def train_runs(project: Project, preset: str, wanted: Sequence[tuple[str, int]]) -> None:
    """Put these runs, given as notebook and number, into the store."""
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve
    from transnormer_lib.training.store import RunStore

    store = RunStore()
    for done, (notebook, number) in enumerate(wanted):
        runs = studies.runs(notebook, resolve(project, preset, notebook))
        if not 0 <= number < len(runs):
            raise UserMistake(f"run={notebook}:{number}: the study has the runs 0 to {len(runs) - 1}")
        started = time.perf_counter()
        record = store.get(runs[number]).record
        outcome = "" if record["status"] == "finished" else f", {record['status']}"
        say(f"  {runs[number].name}{outcome}: {done + 1} of {len(wanted)}, {time.perf_counter() - started:.0f} s")


def train_lacking(
    project: Project, preset: str, notebooks: Sequence[str], pattern: str | None, tracker: str | None
) -> int:
    """Train the runs of these notebooks that the store lacks, one after the other, without running a notebook.

    Returns the exit code: 0 even where a run diverged, which is a result. Raises :class:`UserMistake` for parameters
    that do not fit, and for a ``pattern`` that no run matches.
    """
    from fnmatch import fnmatch

    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve
    from transnormer_lib.training.config import RunConfig, RunRefused
    from transnormer_lib.training.store import RunStore

    store = RunStore()
    runs: dict[str, RunConfig] = {}
    for notebook in notebooks:
        for config in studies.runs(notebook, resolve(project, preset, notebook)):
            if pattern is None or fnmatch(config.name, pattern):
                runs.setdefault(config.name + repr(config), config)
    if pattern is not None and not runs:
        raise UserMistake(f"run={pattern!r}: no run of preset {preset!r} has such a name")
    lacking = [config for config in runs.values() if store.find(config) is None]
    say(f"train: {len(lacking)} of {len(runs)} runs to make")
    for done, config in enumerate(lacking, start=1):
        started = time.perf_counter()
        try:
            record = store.get(config, tracker).record
        except RunRefused as mistake:
            raise UserMistake(f"{config.name}: {mistake}") from None
        outcome = "" if record["status"] == "finished" else f", {record['status']}"
        say(f"  {config.name}{outcome}: {done} of {len(lacking)}, {time.perf_counter() - started:.0f} s")
    return 0


def _place(text: str) -> tuple[str, int]:
    notebook, _, number = text.partition(":")
    if not number.isdecimal():
        raise UserMistake(f"run={text!r}: must be NOTEBOOK:NUMBER, like 03_attention_dilution:4")
    return notebook, int(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: the runs are in the store; 1: one could not be made; 2: a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_lib.report.share", description=__doc__)
    parser.add_argument("--preset", required=True, help="the scale, a folder of params/")
    parser.add_argument("--root", type=Path, default=None, help="the project's folder (default: the current one)")
    parser.add_argument("runs", nargs="+", metavar="NOTEBOOK:NUMBER", help="runs, by their number in the study")
    options = parser.parse_args(arguments)
    on_ending(signal.default_int_handler)
    try:
        wanted = [_place(text) for text in options.runs]
        project = find_project(options.root)
        os.environ.update(project.preset(options.preset).environment)
        train_runs(project, options.preset, wanted)
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training interrupted; finished runs are kept, and the one under way goes on from here", file=sys.stderr)
        return INTERRUPTED
    except Exception as problem:
        print(f"training: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
