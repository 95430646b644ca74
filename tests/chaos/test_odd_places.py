"""Odd paths, locales, homes and clocks change no result; folders that may not be written are named in one line."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_trials import Tried, first_or_all
from command_deaths import Command, half_written, make_project, results, strike

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
slow = pytest.mark.slow  # what takes several reports
# What root may do whatever the permissions say, it may not do without its capabilities.
PLAIN = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TURKISH = "tr_TR.ISO-8859-9"
NAMES = {"dash": "-rf", "quotes": "a b 'c' \"d\"", "signs": "ünï 好 {size} $HOME `id` %s", "shell": "#;&|*?[1]\\n"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project = make_project(tmp_path_factory.mktemp("plain"))
    assert Command(project).run() == (0, "")
    return results(project)


def plain() -> tuple[str, ...]:
    """The prefix of a command that permissions bind."""
    if PLAIN and not shutil.which(PLAIN[0]):
        pytest.skip("root cannot lay down its rights here: no setpriv")
    return PLAIN


@slow
@pytest.mark.parametrize(
    "name", first_or_all("".join(NAMES.values()), *NAMES.values()), ids=first_or_all("all at once", *NAMES)
)
def test_a_project_may_have_any_path(name: str, expected: dict[str, Any], tmp_path: Path, tried: Tried) -> None:
    project = make_project(tmp_path / name)
    assert Command(project).run(TRANSNORMER_CACHE=str(tmp_path / f"cache {name}")) == (0, "")
    assert results(project) == expected
    assert Command(project, ("report",)).run() == (0, "")
    tried("odd path")


@slow
def test_a_store_may_have_a_relative_path_with_a_dash(
    expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    project = make_project(tmp_path / "project")
    monkeypatch.chdir(project.root)
    assert Command(project, ("train", "--only", "03")).run(TRANSNORMER_RUNS="-runs") == (0, "")
    (project.root / "-runs").rename(project.root / "runs")
    assert results(project) == {**expected, "claims": None}
    tried("odd path")


@slow
@pytest.mark.parametrize("locale", first_or_all("turkish", "ascii"))
def test_the_locale_changes_nothing(locale: str, expected: dict[str, Any], tmp_path: Path, tried: Tried) -> None:
    environment = ASCII
    if locale == "turkish":
        made = tmp_path / TURKISH
        if not shutil.which("localedef"):
            pytest.skip("no localedef, which makes the locale")
        done = subprocess.run(
            ["localedef", "-i", "tr_TR", "-f", "ISO-8859-9", str(made)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("the sources of the Turkish locale are not here")
        environment = {"LOCPATH": str(tmp_path), "LC_ALL": TURKISH, "PYTHONUTF8": "0"}
    project = make_project(tmp_path / ("a project" if locale == "ascii" else "ü project"))
    assert Command(project).run(**environment) == (0, "")
    assert results(project) == expected
    tried("odd locale")


def test_a_path_that_the_locale_cannot_write_is_refused_with_the_remedy(tmp_path: Path, tried: Tried) -> None:
    code, error = Command(make_project(tmp_path / "ü project")).run(**ASCII)
    assert code == 2
    (line,) = error.splitlines()
    assert line.startswith("transnormer: folder='")
    assert line.endswith("has characters that the locale (ascii) lacks; set PYTHONUTF8=1")
    tried("odd locale")


@slow
@pytest.mark.parametrize("home", first_or_all("read-only", "none", "missing"))
def test_the_home_may_be_absent_or_read_only(
    home: str, expected: dict[str, Any], tmp_path: Path, closed: Path, tried: Tried
) -> None:
    project = make_project(tmp_path / "project")
    prefix = ("env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "TRANSNORMER_CACHE")
    homes = {"read-only": closed, "missing": closed / "nobody"}
    if home in homes:
        prefix = (*prefix, f"HOME={homes[home]}")
    assert Command(project, prefix=(*plain(), *prefix)).run() == (0, "")
    assert results(project) == expected
    tried("odd home")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that may be read and not written."""
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


@slow
def test_a_cache_that_cannot_be_written_costs_only_time(
    expected: dict[str, Any], tmp_path: Path, closed: Path, tried: Tried
) -> None:
    project = make_project(tmp_path / "project")
    assert Command(project, prefix=plain()).run(TRANSNORMER_CACHE=str(closed)) == (0, "")
    assert results(project) == expected
    tried("read-only folder")


@pytest.mark.parametrize("command", [pytest.param("report", marks=slow), "train", "sweep"])
def test_a_store_that_cannot_be_written_is_named(command: str, tmp_path: Path, closed: Path, tried: Tried) -> None:
    project = make_project(tmp_path / "project")
    code, error = Command(project, (command, "--only", "03"), plain()).run(TRANSNORMER_RUNS=str(closed))
    assert code == 1
    (line,) = error.splitlines()
    assert str(closed) in line
    assert "Permission denied" in line
    tried("read-only folder")


def test_a_store_that_cannot_be_read_is_named_and_is_not_called_empty(
    tmp_path: Path, closed: Path, tried: Tried
) -> None:
    closed.chmod(0o000)
    listing = Command(make_project(tmp_path / "project"), ("runs", "list"), plain())
    assert listing.run(TRANSNORMER_RUNS=str(closed)) == (1, f"transnormer: [Errno 13] Permission denied: '{closed}'\n")
    tried("folder that cannot be read")


@slow
def test_a_report_folder_that_cannot_be_written_is_named(tmp_path: Path, closed: Path, tried: Tried) -> None:
    project = make_project(tmp_path / "project")
    (project.root / "reports").symlink_to(closed)
    code, error = Command(project, prefix=plain()).run()
    assert (code, error) == (1, f"transnormer: [Errno 13] Permission denied: '{project.report_dir('quick')}'\n")
    tried("read-only folder")


@slow
@pytest.mark.parametrize("days", first_or_all(2, -2), ids=lambda days: "back" if days > 0 else "forward")
def test_a_clock_that_was_set_changes_nothing(
    days: int, expected: dict[str, Any], tmp_path: Path, tried: Tried
) -> None:
    """A clock that was set back sees files of the future."""
    project = make_project(tmp_path / "project")
    command = Command(project)
    command.begin()
    assert strike(command, "guard", "SIGKILL", random.Random(days), 10.0)
    command.end()
    command.left_behind()
    for path in project.root.rglob("*"):
        os.utime(path, (time.time() + 86_400 * days,) * 2)
    assert Command(project).run() == (0, "")
    assert results(project) == expected
    assert half_written(project) == []
    made = (project.report_dir("quick") / "03_attention_dilution.ipynb").stat().st_mtime_ns
    assert Command(project).run() == (0, "")
    assert (project.report_dir("quick") / "03_attention_dilution.ipynb").stat().st_mtime_ns == made
    tried("clock that was set")
