"""Which signals ask a process to end, and how to finish something small before obeying."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(handler: Callable[[int, FrameType | None], object]) -> None:
    """Call ``handler`` when an end is asked for. What is ignored already, as under nohup, stays so."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, Ctrl-C and its like are ignored: for writes that must not be cut off. Main thread only."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
