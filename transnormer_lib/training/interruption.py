"""Delays Ctrl-C and SIGTERM until the state of a run is consistent."""

import signal
import threading
from types import FrameType
from typing import Any


class Interruption:
    """In a ``with`` block: holds the first SIGINT or SIGTERM back until :meth:`deliver` or the end of the block.

    A second signal is delivered at once. A signal that the process ignores, as SIGINT under ``nohup … &``, stays
    ignored. Python handles signals in the main thread only; in other threads, and where not ``enabled``, this does
    nothing.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled and threading.current_thread() is threading.main_thread()
        self.pending: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if self.enabled:
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        self.deliver()

    def deliver(self) -> None:
        """Restore the previous handlers and raise the signal held back, if any."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self.pending is not None:
            pending, self.pending = self.pending, None
            signal.raise_signal(pending)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        if self.pending is None:
            self.pending = number
        else:
            self.deliver()
