"""The checks of the register: each measures what an entry states and decides whether the figures confirm it.

A check is found by its entry's id. It can fail, because the verdict is computed from the measurement. Where the
evidence is code of another repository, the entry cites it; the check runs both forms, with this library's flags or
with our transcription (``released_forms``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Effect:
    """What a choice changes: one figure under the companion's choice and under the other."""

    of: str
    here: Any
    other: Any


@dataclass(frozen=True)
class Found:
    """What a check measured. ``shows`` maps each statement of the entry to whether the figures confirm it."""

    figures: Mapping[str, Any]
    shows: Mapping[str, bool]
    effects: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        if not self.shows:
            raise ValueError("shows={}: a check must test at least one statement")
        for name, answer in self.shows.items():
            if not isinstance(answer, bool):
                raise TypeError(f"shows[{name!r}]={answer!r}: must be True or False")

    @property
    def confirmed(self) -> bool:
        """Whether the figures confirm every statement."""
        return all(self.shows.values())


Check = Callable[[], Found]
_CHECKS: dict[str, Check] = {}


def check(entry: str) -> Callable[[Check], Check]:
    """Register a function as the check of the entry with this id. Raises ValueError if the entry has a check."""

    def enter(function: Check) -> Check:
        if entry in _CHECKS:
            raise ValueError(f"entry={entry!r}: has a check already, {_CHECKS[entry].__module__}")
        _CHECKS[entry] = function
        return function

    return enter


def names() -> tuple[str, ...]:
    """The ids that have a check."""
    return tuple(_CHECKS)


def run(entry: str) -> Found:
    """Run one check. Raises ValueError for an id without a check."""
    if entry not in _CHECKS:
        raise ValueError(f"entry={entry!r}: has no check")
    return _CHECKS[entry]()
