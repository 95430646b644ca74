"""Faults on purpose. ``make test`` tries a few of each kind, ``make chaos`` all, and prints how many there were."""

from collections import Counter
from collections.abc import Callable

import pytest
from chaos_trials import Tried


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """``tried(kind, count)``: call it when ``count`` trials of a kind have ended as they should."""

    def add(kind: str, count: int = 1) -> None:
        record_property("tried", (kind, count))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The number of trials of each kind in the tests that passed."""
    found: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "tried" and report.when == "call":
                found[value[0]] += value[1]
    for kind, count in sorted(found.items()):
        terminalreporter.write_line(f"chaos: {kind}: {count:,}, each ended as it should")
