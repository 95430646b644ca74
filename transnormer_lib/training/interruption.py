"""Ctrl-C and SIGTERM at a moment when all of a run's state fits together."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A signal that waits until the trainer asks. A second one does not wait."""

    def __init__(self) -> None:
        self.pending: int | None = None
        self._previous: dict[int, Any] = {}

    def deliver(self) -> None:
        """Let the waiting signal, if there is one, do what it would have done without us."""
        self._restore()
        if self.pending is not None:
            pending, self.pending = self.pending, None
            signal.raise_signal(pending)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        if self.pending is None:
            self.pending = number
        else:
            self.deliver()

    def _install(self) -> None:
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._catch)

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def deferred(enabled: bool) -> Iterator[Interruption]:
    """While the block runs, hold the first SIGINT or SIGTERM back for :meth:`Interruption.deliver`.

    At the block's end a signal that still waits is delivered. Python handles signals in the main thread alone; in
    any other this does nothing.
    """
    interruption = Interruption()
    if enabled and threading.current_thread() is threading.main_thread():
        interruption._install()
    try:
        yield interruption
    finally:
        interruption.deliver()
