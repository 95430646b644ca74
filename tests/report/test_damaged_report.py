"""A damaged file of a report costs its own notebook, which is run again; no report stops with a traceback."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from project_factory import make_project

from transnormer_lib.project import Project
from transnormer_lib.report.make import make_report
from transnormer_lib.report.pipeline import is_current, plan

COMMAND = [sys.executable, "-m", "transnormer_lib.cli", "report", "--cores", "1"]


def report(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--root", str(project.root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = make_project(tmp_path_factory.mktemp("project"), {"01_a": ["size"], "02_b": ["size"]})
    assert report(made).returncode == 0
    return made


def _cut(path: Path) -> None:
    path.write_text(path.read_text()[:200])


NOTEBOOK, RECORD = "01_a.ipynb", "records/01_a.json"
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a truncated notebook": (NOTEBOOK, _cut),
    "an object for a notebook": (NOTEBOOK, lambda path: path.write_text("{}")),
    "a list for a notebook": (NOTEBOOK, lambda path: path.write_text("[]")),
    "cells that are none": (NOTEBOOK, lambda path: path.write_text('{"cells": [1]}')),
    "no notebook": (NOTEBOOK, lambda path: path.unlink()),
    "a truncated record": (RECORD, _cut),
    "a list for a record": (RECORD, lambda path: path.write_text("[]")),
    "an empty record": (RECORD, lambda path: path.write_text("{}")),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_stale_and_keeps_no_other_report_from_ending(
    damage: str, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    name, make = DAMAGES[damage]
    path = project.report_dir("quick") / name
    content = path.read_bytes()
    make(path)
    try:
        assert make_report(project, "quick", ["02"], 1, []) == 0
        assert capsys.readouterr().err == ""
        found = {job.notebook: is_current(project, "quick", job) for job in plan(project, "quick", project.notebooks)}
        assert found == {"01_a": False, "02_b": True}
    finally:
        path.write_bytes(content)


@pytest.mark.slow
def test_a_damaged_notebook_is_made_again(project: Project) -> None:
    _cut(project.report_dir("quick") / NOTEBOOK)
    again = report(project)
    assert (again.returncode, again.stderr) == (0, "")
    assert "1 of 2 notebooks to run: 01_a" in again.stdout
