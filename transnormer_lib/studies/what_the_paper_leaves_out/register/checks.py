"""The checks of the register: each measures what an entry states, and says whether the figures bear it out.

A check is found by its entry's id. It can fail: whether an entry is confirmed is computed from what was measured.
Where the evidence is another repository's text, that text is cited and not read again; what runs is both forms, with
this library's flags or with a transcription of ours (``released_forms``).
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
    """What a check measured. ``shows`` holds what the entry states, each with whether the figures bear it out."""

    figures: Mapping[str, Any]
    shows: Mapping[str, bool]
    effects: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        if not self.shows:
            raise ValueError("shows={}: a check that asks nothing confirms nothing")
        for name, answer in self.shows.items():
            if not isinstance(answer, bool):
                raise TypeError(f"shows[{name!r}]={answer!r}: must be True or False")

    @property
    def confirmed(self) -> bool:
        """Whether all that the entry states was found."""
        return all(self.shows.values())


Check = Callable[[], Found]
_CHECKS: dict[str, Check] = {}


def check(entry: str) -> Callable[[Check], Check]:
    """Enter a function as the check of the entry with this id. Raises ValueError where it has one already."""

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
    """Run one check. Raises ValueError for an id that has none."""
    if entry not in _CHECKS:
        raise ValueError(f"entry={entry!r}: has no check")
    return _CHECKS[entry]()
