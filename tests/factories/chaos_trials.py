"""How often a fault is tried: a few times in ``make test``, every time in ``make chaos``."""

import os
import zlib
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, seed, settings

Tried = Callable[..., None]  # tried(kind, count): see tests/chaos/conftest.py

FULL = "TRANSNORMER_CHAOS" in os.environ


def trials(few: int, full: int) -> int:
    """``few``, or ``full`` in ``make chaos``."""
    return full if FULL else few


T = TypeVar("T")


def first_or_all(*values: T) -> list[T]:
    """The values that a test is tried with: the first, which stands for the others, or all in ``make chaos``."""
    return [*values] if FULL else [*values[:1]]


def cases(few: int, full: int, *of: object) -> Callable[[T], T]:
    """Settings of a hypothesis test within a test: so many examples, drawn for ``of``, such as a mechanism's name.

    Without a seed of its own a test draws the same examples for every parameter.
    """

    def decorate(test: T) -> T:
        test = settings(max_examples=trials(few, full), suppress_health_check=list(HealthCheck))(test)
        return test if "TRANSNORMER_EXPLORE" in os.environ else seed(zlib.crc32(repr(of).encode()))(test)

    return decorate
