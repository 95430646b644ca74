"""A report on a full disk ends in lines that name the folder; with space the next one ends as if nothing had been."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from chaos_trials import Tried, trials
from command_deaths import Command, half_written, make_project, results
from small_disks import small_disk

from transnormer_lib.project import Project

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
LINE = r"(report|transnormer): .*{folder}\S*: the disk is full; free some space and run the same command again"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """Bytes and results of a report that nothing disturbed."""
    project = make_project(tmp_path_factory.mktemp("undisturbed"))
    assert Command(project).run() == (0, "")
    files = (project.root / "reports").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file()), results(project)


def _ends_naming_the_disk(project: Project) -> None:
    command = Command(project)
    code, error = command.run()
    assert code == 1
    line = LINE.format(folder=re.escape(str(project.root / "reports")))
    assert [one for one in error.splitlines() if not re.fullmatch(line, one)] == []
    assert error
    assert half_written(project) == []
    assert command.left_behind() == []


def test_a_disk_without_room_for_a_report_is_named(tmp_path: Path, tried: Tried) -> None:
    project = make_project(tmp_path / "project")
    disk = small_disk(project.root / "reports", 8192)
    if not disk.mounted:
        pytest.skip("a small disk cannot be mounted here")
    try:
        _ends_naming_the_disk(project)
    finally:
        disk.remove()
    tried("full disk under a report")


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(trials(2, 8)))
def test_a_full_disk_under_the_report_is_named_and_the_next_report_is_whole(
    trial: int, undisturbed: tuple[int, dict[str, Any]], tmp_path: Path, tried: Tried
) -> None:
    needed, expected = undisturbed
    project = make_project(tmp_path / "project")
    disk = small_disk(project.root / "reports", int(random.Random(trial).uniform(0.0, 0.9) * needed))
    if not disk.mounted:
        pytest.skip("a small disk cannot be mounted here")
    try:
        _ends_naming_the_disk(project)
        disk.make_room()
        assert Command(project).run() == (0, "")
        assert results(project) == expected
    finally:
        disk.remove()
    tried("full disk under a report")
