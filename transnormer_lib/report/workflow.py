"""Snakemake in a process that ends with the process that started it, even if that one is killed.

``python -m transnormer_lib.report.workflow PARENT LOCK ARGUMENTS…`` runs ``snakemake ARGUMENTS…`` while it holds the
file LOCK. It waits for LOCK, because the jobs of a killed report may need a moment to end. It leads a process group of
its own.
"""

import os
import signal
import sys
import threading
import time

_POLL_SECONDS = 0.5
_PATIENCE = 30.0  # seconds for the jobs to end their kernels and write their records


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.killpg(0, signal.SIGTERM)  # Snakemake starts no further job, and the running ones end themselves
    time.sleep(_PATIENCE)
    os.killpg(0, signal.SIGKILL)


def main(parent: str, lock: str, *arguments: str) -> None:
    """Never returns: Snakemake exits with its own code."""
    from filelock import FileLock
    from snakemake.cli import main as snakemake

    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    with FileLock(lock):
        snakemake(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
