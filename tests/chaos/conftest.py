"""Faults on purpose. ``make test`` tries a few of each kind, ``make chaos`` all, and prints how many there were."""

from collections import Counter
from collections.abc import Callable

import pytest
from chaos_trials import FULL, TOTALS, Tried, totals


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """``tried(kind, count)``: call it when ``count`` trials of a kind have ended as they should."""

    def add(kind: str, count: int = 1) -> None:
        record_property("tried", (kind, count))

    return add


def _found(reporter: pytest.TerminalReporter) -> Counter[str]:
    """The number of trials of each kind in the tests that passed."""
    found: Counter[str] = Counter()
    for report in reporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "tried" and report.when == "call":
                found[value[0]] += value[1]
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = _found(terminalreporter)
    for kind, count in sorted(found.items()):
        terminalreporter.write_line(f"chaos: {kind}: {count:,}, each ended as it should")
    for name, count in totals(found).items() if FULL else ():
        terminalreporter.write_line(f"chaos: {count:,} {name} in all; a full run has at least {TOTALS[name][0]:,}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A full run that tried too little has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if FULL and reporter is not None and exitstatus == pytest.ExitCode.OK and not session.config.option.keyword:
        counted = totals(_found(reporter))
        if any(counted[name] < least for name, (least, _) in TOTALS.items()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
