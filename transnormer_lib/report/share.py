"""Train a share of a study's runs: one job of Snakemake, or of a cluster, before the notebook reads them.

``python -m transnormer_lib.report.share --preset quick 03_attention_dilution 1of4`` trains every fourth run,
starting with the second (shares count from 0). Runs that the store already holds cost nothing. A run that
diverges is a result like any other: its record says so, and the notebook reports it.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from transnormer_lib.report.progress import say
from transnormer_lib.report.project import INTERRUPTED, Project, UserMistake, find_project
from transnormer_lib.report.signals import on_ending


def train_share(project: Project, preset: str, notebook: str, number: int, count: int) -> None:
    """Put runs ``number``, ``number + count``, ... of the notebook's study into the store."""
    from transnormer_lib import studies
    from transnormer_lib.report.parameters import resolve
    from transnormer_lib.training.store import RunStore

    store = RunStore()
    for config in studies.runs(notebook, resolve(project, preset, notebook))[number::count]:
        store.get(config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: the share's runs are in the store; 1: one could not be made; 2: a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_lib.report.share", description=__doc__)
    parser.add_argument("--preset", required=True, help="the scale, a folder of params/")
    parser.add_argument("--root", type=Path, default=None, help="the project's folder (default: the current one)")
    parser.add_argument("notebook", help="its name")
    parser.add_argument("share", metavar="NUMBERofCOUNT", help="which share, counted from 0, of how many")
    options = parser.parse_args(arguments)
    on_ending(signal.default_int_handler)
    match = re.fullmatch(r"(\d+)of(\d+)", options.share)
    started = time.perf_counter()
    try:
        if match is None or int(match[1]) >= int(match[2]):
            raise UserMistake(f"share={options.share!r}: must be NUMBERofCOUNT with NUMBER below COUNT, like 0of4")
        project = find_project(options.root)
        os.environ.update(project.preset(options.preset).environment)
        train_share(project, options.preset, options.notebook, int(match[1]), int(match[2]))
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{options.notebook}: training interrupted; finished runs are kept", file=sys.stderr)
        return INTERRUPTED
    except Exception as problem:
        print(f"{options.notebook}: {type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - started
    say(f"  {options.notebook}: trained share {options.share}, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
