"""Train some runs of the studies: one job of Snakemake, before the notebooks read the runs.

``python -m transnormer_lib.report.share --preset quick 03_attention_dilution:4 04_autoregressive_lm:20`` trains these
runs, counted from 0 in the order of each notebook's study. Runs in the store are not trained again. A run that diverges
is a result: its record says so and the notebook reports it. If a run cannot be trained, the others still are.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transnormer_lib.exhausted import out_of_memory
from transnormer_lib.progress import left_text, say
from transnormer_lib.project import INTERRUPTED, Project, UserMistake, find_project
from transnormer_lib.report.signals import end_with, interrupt_once, on_ending
from transnormer_lib.visible import shows_plainly

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig
    from transnormer_lib.training.store import RunStore


def train_runs(project: Project, preset: str, wanted: Sequence[tuple[str, int]], tracker: str | None = None) -> int:
    """Train these runs, given as notebook and number, one after the other; returns the exit code.

    A run that cannot be trained is reported in one line on stderr, and the next one starts. Exit code 1: data were
    missing, a loss left its band, or the run that it starts from did not finish; 2: this machine or the data do not
    allow the run. ``tracker`` as in :meth:`~transnormer_lib.training.store.RunStore.get`. Raises :class:`UserMistake`
    for a run that does not exist.
    """
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve
    from transnormer_lib.training.store import RunStore

    store, code, begun = RunStore(), 0, time.perf_counter()
    for done, (notebook, number) in enumerate(wanted):
        runs = studies.runs(notebook, resolve(project, preset, notebook))
        if not 0 <= number < len(runs):
            raise UserMistake(f"run={notebook}:{number}: the study has the runs 0 to {len(runs) - 1}")
        started = time.perf_counter()
        status, reason, failed = _made(store, runs[number], tracker)
        if failed:
            print(f"{runs[number].name}: {reason}", file=sys.stderr, flush=True)
            code = max(code, failed)
        outcome = "" if status == "finished" else f", {status}"
        took, made = time.perf_counter() - started, done + 1
        left = f", {left_text(time.perf_counter() - begun, made, len(wanted))}" if made < len(wanted) else ""
        say(f"  {runs[number].name}{outcome}: {made} of {len(wanted)}, {took:.0f} s{left}")
    return code


def _made(store: "RunStore", config: "RunConfig", tracker: str | None) -> tuple[str, str, int]:
    """Train or find one run: (its status or "not made", why it cannot be used, the exit code)."""
    from transnormer_lib.data.faults import DataFault, DataUnavailable
    from transnormer_lib.training.bands import explain
    from transnormer_lib.training.config import RunRefused
    from transnormer_lib.training.records import explain_divergence
    from transnormer_lib.training.stored_run import RunFailed

    try:
        record = store.get(config, tracker, weights=False).record
    except DataUnavailable as problem:
        return "not made", f"no data: {problem}", 1
    except RunRefused as mistake:
        return "not made", " ".join(str(mistake).split()), 2
    except (DataFault, RunFailed) as problem:
        return "not made", f"{type(problem).__name__}: {' '.join(str(problem).split())}", 1
    except (MemoryError, RuntimeError) as problem:
        if not out_of_memory(problem):
            raise
        return "not made", "out of memory", 1
    if record["status"] == "outside-band":
        return "outside-band", explain(record["outside"]), 1
    if record["status"] == "diverged":
        return f"diverged: {explain_divergence(record['divergence'])}", "", 0
    return record["status"], "", 0


def _place(text: str) -> tuple[str, int]:
    notebook, _, number = text.partition(":")
    if not number.isdecimal():
        raise UserMistake(f"run={text!r}: must be NOTEBOOK:NUMBER, like 03_attention_dilution:4")
    return notebook, int(number)


@shows_plainly
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: the runs are in the store; 1: a run could not be trained; 2: a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_lib.report.share", description=__doc__)
    parser.add_argument("--preset", required=True, help="the scale, a folder of params/")
    parser.add_argument("--root", type=Path, default=None, help="the project's folder (default: the current one)")
    parser.add_argument("--tracker", default=None, help="also report to this tracker: tensorboard, wandb, ...")
    parser.add_argument("--parent", type=int, default=None, help="end when this process does")
    parser.add_argument("runs", nargs="+", metavar="NOTEBOOK:NUMBER", help="runs, by their number in the study")
    options = parser.parse_args(arguments)
    try:
        on_ending(interrupt_once)
        if options.parent is not None:
            end_with(options.parent)
        wanted = [_place(text) for text in options.runs]
        project = find_project(options.root)
        os.environ.update(project.preset(options.preset).environment)
        return train_runs(project, options.preset, wanted, options.tracker)
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training interrupted; finished runs are kept, the unfinished one has a checkpoint", file=sys.stderr)
        return INTERRUPTED
    except Exception as problem:
        print(f"training: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
