"""The signals that ask a process to end, how to finish a short step first, and how to end with a parent."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_POLL_SECONDS = 0.5
_PATIENCE = 30.0  # seconds to end kernels, write records and checkpoints


def on_ending(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Call ``handler`` on these signals, or ignore them (SIG_IGN). One ignored already, as under nohup, stays so."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """A handler: the first signal raises KeyboardInterrupt, and no later one cuts the clean-up short."""
    on_ending(signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore these signals inside the block, for writes that must not be cut off. Main thread only."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(parent: int) -> None:
    """End this process and its group soon after the process ``parent``, which started it, even if that one is killed.

    The group, which this process must lead, gets SIGTERM and, half a minute later, SIGKILL.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os.killpg(0, signal.SIGTERM)
        time.sleep(_PATIENCE)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
