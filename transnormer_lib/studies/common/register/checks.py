"""The checks of the register: each measures what an entry states and decides whether the figures confirm it.

A check is found by its entry's id. It can fail, because the verdict is computed from the measurement. Where the
evidence is code of another repository, the entry cites it; the check runs both forms, with this library's flags or
with our transcription. Each paper has a :class:`Register`, which the study that lists its discrepancies fills.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transnormer_lib.papers.discrepancies import by_id


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


class Register:
    """The checks of one paper's discrepancies, by the entry's id."""

    def __init__(self, paper: str) -> None:
        self.paper = paper
        self._checks: dict[str, Check] = {}

    def check(self, entry: str) -> Callable[[Check], Check]:
        """Register a function as the check of the entry with this id. Raises ValueError if the entry has a check."""

        def enter(function: Check) -> Check:
            if entry in self._checks:
                raise ValueError(f"entry={entry!r}: has a check already, {self._checks[entry].__module__}")
            self._checks[entry] = function
            return function

        return enter

    def names(self) -> tuple[str, ...]:
        """The ids that have a check."""
        return tuple(self._checks)

    def run(self, entry: str) -> Found:
        """Run one check. Raises ValueError for an id without a check."""
        if entry not in self._checks:
            raise ValueError(f"entry={entry!r}: has no check")
        return self._checks[entry]()

    def run_all(self) -> dict[str, Found]:
        """Every check, by the entry's id in the order of the paper's discrepancies."""
        return {name: self.run(name) for name in by_id(self.paper)}
