"""Progress on the terminal: one line per event, from several jobs at a time."""

import os
import sys


def say(line: str) -> None:
    """Print a line in one write, so that those of other jobs do not run into it.

    A reader who has left (``make report | head -1``) costs the line, not the job that prints it.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  stays open until the process ends
