"""Progress on the terminal: one line per event, from several jobs at once."""

import os
import sys

GOES_ON = "interrupted; what is finished is kept, and the same command goes on from there"


def say(line: str) -> None:
    """Print a line in one write, so that lines of several jobs do not mix.

    If nobody reads any more (``make report | head -1``), the job goes on without printing.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  stays open until the process ends


def left_text(seconds: float, done: int, total: int) -> str:
    """About how long the rest takes if it goes on as the first ``done`` of ``total`` parts did in ``seconds``.

    >>> left_text(90.0, done=3, total=10)
    'about 4 min left'
    """
    left = seconds / done * (total - done)
    if left < 60:
        return f"about {left:.0f} s left"
    minutes = round(left / 60)
    return f"about {minutes} min left" if minutes < 60 else f"about {minutes // 60} h {minutes % 60} min left"
