"""Progress on the terminal: one line per event, from several jobs at once."""

import os
import sys


def say(line: str) -> None:
    """Print a line in one write, so that lines of several jobs do not mix.

    If nobody reads any more (``make report | head -1``), the job goes on without printing.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  stays open until the process ends
