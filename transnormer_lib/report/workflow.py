"""Snakemake in a process that ends with the process that started it, even if that one is killed.

``python -m transnormer_lib.report.workflow PARENT LOCK ARGUMENTS…`` runs ``snakemake ARGUMENTS…`` while it holds the
file LOCK. It waits for LOCK, because the jobs of a killed report may need a moment to end. It leads a process group of
its own.
"""

import sys

from transnormer_lib.report.signals import end_with


def main(parent: str, lock: str, *arguments: str) -> None:
    """Never returns: Snakemake exits with its own code."""
    from filelock import FileLock
    from snakemake.cli import main as snakemake

    end_with(int(parent))  # at SIGTERM Snakemake starts no further job, and the running ones end themselves
    with FileLock(lock):
        snakemake(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
