"""A report of which any process dies at any point leaves nothing running; the next one ends as if nothing had been."""

import random
from pathlib import Path

import project_factory
import pytest
from chaos_trials import FULL, Tried, trials
from command_deaths import Command, Undisturbed, strike

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
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed.of(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize(
    ("victim", "name"),
    [pytest.param(*key, id="-".join(key), marks=() if key == SHORT else pytest.mark.slow) for key in CASES],
)
def test_the_next_report_ends_as_if_nothing_had_been(
    victim: str, name: str, undisturbed: Undisturbed, tmp_path: Path, tried: Tried
) -> None:
    for _ in undisturbed.survives(victim, name, trials(1, CASES[victim, name]), tmp_path):
        tried(f"report: {name} of {victim}")


def test_a_small_report_is_whole_after_one_death_upon_another(tmp_path: Path, tried: Tried) -> None:
    """The same of a notebook that trains nothing, which takes seconds."""
    project = project_factory.make_project(tmp_path, {"01_a": ["import time\ntime.sleep(1.0)"]})
    small, draw = ("report", "--cores", "1"), random.Random(0)
    deaths = [("kernel", "SIGKILL"), ("guard", "SIGKILL"), ("snakemake", "SIGKILL")]
    for victim, name in [*deaths, ("transnormer", "SIGTERM"), ("transnormer", "SIGINT")]:
        command = Command(project, small)
        command.begin()
        hit = strike(command, victim, name, draw, 2.0)
        code, error = command.end()
        assert command.left_behind() == []
        assert "Traceback" not in error, error
        if hit and code != 0:
            tried(f"report: {name} of {victim}")
    again = Command(project, small)
    assert again.run() == (0, "")
    assert again.left_behind() == []
