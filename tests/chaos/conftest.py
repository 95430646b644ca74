"""Faults on purpose. ``make test`` tries a few of each kind, ``make chaos`` all, and prints how many there were."""

from collections import Counter
from collections.abc import Callable

import pytest
from chaos_trials import FULL, Tried


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """``tried(kind, count)``: call it when ``count`` trials of a kind have ended as they should."""

    def add(kind: str, count: int = 1) -> None:
        record_property("tried", (kind, count))

    return add


# What a full run tries at least, and how the kinds begin that count for it.
TOTALS = {
    "deaths": (200, ("training ended by", "writers of data ended by", "transnormer train: ", "report: ")),
    "generated cases": (10_000, ("a ", "an ", "the ", "rows of ", "JSON", "YAML", "targets ", "weights ", "autocast ")),
    "falsifications": (60, ("falsified ",)),
}


def _found(reporter: pytest.TerminalReporter) -> tuple[Counter[str], Counter[str]]:
    """The number of trials of each kind in the tests that passed, and in all by the names of the totals."""
    found: Counter[str] = Counter()
    for report in reporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "tried" and report.when == "call":
                found[value[0]] += value[1]
    totals: Counter[str] = Counter()
    for name, (_, beginnings) in TOTALS.items():
        totals[name] = sum(count for kind, count in found.items() if kind.startswith(beginnings))
    return found, totals


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found, totals = _found(terminalreporter)
    for kind, count in sorted(found.items()):
        terminalreporter.write_line(f"chaos: {kind}: {count:,}, each ended as it should")
    for name, count in totals.items() if FULL else ():
        terminalreporter.write_line(f"chaos: {count:,} {name} in all; a full run has at least {TOTALS[name][0]:,}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A full run that tried too little has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if FULL and reporter is not None and exitstatus == pytest.ExitCode.OK and not session.config.option.keyword:
        _, totals = _found(reporter)
        if any(totals[name] < least for name, (least, _) in TOTALS.items()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
