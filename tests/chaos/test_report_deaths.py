"""A report of which any process dies at any point leaves nothing running; the next one ends as if nothing had been."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from chaos_trials import FULL, Tried, trials
from command_deaths import Command, half_written, make_project, results, strike

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
# The trials of ``make chaos``; the others try one of each.
CASES = {
    ("transnormer", "SIGKILL"): 6, ("transnormer", "SIGTERM"): 3, ("transnormer", "SIGINT"): 3,
    ("snakemake", "SIGKILL"): 5, ("guard", "SIGKILL"): 4, ("kernel", "SIGKILL"): 4, ("share", "SIGKILL"): 3,
}  # fmt: skip
if FULL:  # what asks a process to end, sent to one of them alone
    CASES |= {
        (victim, name): 2 for victim in ("snakemake", "guard", "kernel", "share") for name in ("SIGTERM", "SIGINT")
    }
SHORT = ("transnormer", "SIGKILL")  # the one of ``make test``; the others are slow


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, Any]]:
    """Seconds and results of a report that nothing disturbed."""
    project = make_project(tmp_path_factory.mktemp("undisturbed"))
    began = time.monotonic()
    assert Command(project).run() == (0, "")
    return time.monotonic() - began, results(project)


@pytest.mark.parametrize(
    ("victim", "name"),
    [pytest.param(*key, id="-".join(key), marks=() if key == SHORT else pytest.mark.slow) for key in CASES],
)
def test_the_next_report_ends_as_if_nothing_had_been(
    victim: str, name: str, undisturbed: tuple[float, dict[str, Any]], tmp_path: Path, tried: Tried
) -> None:
    seconds, expected = undisturbed
    draw = random.Random(f"{victim} {name}")
    hit = 0
    for number in range(trials(1, CASES[victim, name])):
        project = make_project(tmp_path / str(number))
        command = Command(project)
        command.begin()
        struck = strike(command, victim, signal.Signals[name], draw, seconds)
        if not struck:
            seconds /= 2  # the machine is less busy than it was
        hit += struck
        _, error = command.end()
        assert command.left_behind() == []
        assert "Traceback" not in error, error
        assert half_written(project) == []
        again = Command(project)
        assert again.run() == (0, "")
        assert results(project) == expected
        assert again.left_behind() == []
        tried(f"report: {name} of {victim}")
    assert hit
