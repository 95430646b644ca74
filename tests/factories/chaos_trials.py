"""How often a fault is tried: a few times in ``make test``, every time in ``make chaos``."""

import os
from collections.abc import Callable

Tried = Callable[..., None]  # tried(kind, count): see tests/chaos/conftest.py

FULL = "TRANSNORMER_CHAOS" in os.environ


def trials(few: int, full: int) -> int:
    """``few``, or ``full`` in ``make chaos``."""
    return full if FULL else few
