"""`transnormer train`, `sweep` and their processes die at any point; two reports of one project run at once."""

import shutil
from pathlib import Path

import pytest
from chaos_trials import Tried, trials
from command_deaths import Command, Undisturbed, half_written, make_project, results
from filelock import FileLock
from project_factory import STUDY

from transnormer_lib import cli

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
TRAIN = ("train", "--only", "03", "--jobs", "2")
# The trials of ``make chaos``; the others try one of each.
CASES = {
    ("transnormer", "SIGKILL"): 6, ("transnormer", "SIGTERM"): 4, ("transnormer", "SIGINT"): 4, ("share", "SIGKILL"): 4,
}  # fmt: skip
SHORT = ("share", "SIGKILL")  # the one of ``make test``; the others are slow


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed.of(tmp_path_factory.mktemp("undisturbed"), TRAIN)


@pytest.mark.parametrize(
    ("victim", "name"),
    [pytest.param(*key, id="-".join(key), marks=() if key == SHORT else pytest.mark.slow) for key in CASES],
)
def test_the_next_training_ends_as_if_nothing_had_been(
    victim: str, name: str, undisturbed: Undisturbed, tmp_path: Path, tried: Tried
) -> None:
    for _ in undisturbed.survives(victim, name, trials(1, CASES[victim, name]), tmp_path):
        tried(f"transnormer train: {name} of {victim}")


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "count"), [(1, 4), (2, 2)], ids=["one process a run", "two processes a run"])
def test_the_next_sweep_ends_as_if_nothing_had_been(processes: int, count: int, tmp_path: Path, tried: Tried) -> None:
    sweep = ("sweep", "--only", "03", "--cores", "2", "--processes", str(processes))
    undisturbed = Undisturbed.of(tmp_path / "undisturbed", sweep)
    for _ in undisturbed.survives("transnormer that trains", "SIGKILL", trials(1, count), tmp_path):
        tried("transnormer sweep: SIGKILL of transnormer")


def test_a_report_is_refused_while_another_of_its_preset_holds_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    project = make_project(tmp_path)
    with FileLock(project.report_dir("quick") / ".lock"):
        assert cli.main(["report", "--root", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "transnormer: preset='quick': another report of it is running\n"
    assert not list(project.report_dir("quick").glob("*.ipynb"))
    tried("two reports of one preset at once")


@pytest.mark.slow
def test_of_two_reports_of_a_preset_at_once_one_is_refused_and_the_other_whole(tmp_path: Path, tried: Tried) -> None:
    alone, both = make_project(tmp_path / "alone"), make_project(tmp_path / "both")
    assert Command(alone).run() == (0, "")
    for _ in range(trials(1, 3)):
        shutil.rmtree(both.root / "reports", ignore_errors=True)
        commands = [Command(both), Command(both)]
        for command in commands:
            command.begin()
        ended = sorted(command.end() for command in commands)
        assert ended == [(0, ""), (2, "transnormer: preset='quick': another report of it is running\n")]
        assert results(both) == results(alone)
        assert half_written(both) == []
        tried("two reports of one preset at once")


@pytest.mark.slow
def test_reports_of_two_presets_at_once_share_the_store_and_are_both_whole(tmp_path: Path, tried: Tried) -> None:
    alone, both = make_project(tmp_path / "alone"), make_project(tmp_path / "both")
    shutil.copytree(both.root / "params" / "quick", both.root / "params" / "other")
    assert Command(alone).run() == (0, "")
    for _ in range(trials(1, 3)):
        for folder in ("reports", "runs"):
            shutil.rmtree(both.root / folder, ignore_errors=True)
        commands = [Command(both), Command(both, ("report", "--cores", "2", "--preset", "other"))]
        for command in commands:
            command.begin()
        assert [command.end() for command in commands] == [(0, ""), (0, "")]
        assert results(both) == results(alone)
        claims = [(both.report_dir(name) / "claims.json").read_bytes() for name in ("quick", "other")]
        assert claims[0] == claims[1]
        assert (both.report_dir("other") / f"{STUDY}.html").exists()
        tried("reports of two presets at once")
