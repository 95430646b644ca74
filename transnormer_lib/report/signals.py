"""The signals that ask a process to end, and how to finish a short step first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(handler: Callable[[int, FrameType | None], object]) -> None:
    """Call ``handler`` on these signals. One that is ignored already, as under nohup, stays ignored."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore these signals inside the block, for writes that must not be cut off. Main thread only."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
