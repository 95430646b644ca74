"""From parameters to the published index: each failure costs only itself, and nothing runs twice."""

import contextlib
import html
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import nbformat
import pytest
from project_factory import listen, make_project, wait_until, write_notebook

from transnormer_lib import studies
from transnormer_lib.ledger import claims, theses
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.project import Project
from transnormer_lib.report import pipeline, train
from transnormer_lib.report.pipeline import Job

slow = pytest.mark.slow
COMMAND = [sys.executable, "-m", "transnormer_lib.cli", "report", "--cores", "2"]


def report(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--root", str(project.root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def index(project: Project) -> str:
    return html.unescape((project.report_dir("quick") / "index.html").read_text())


def executed_at(project: Project) -> dict[str, int]:
    """When each executed notebook was written, in nanoseconds."""
    return {path.stem: path.stat().st_mtime_ns for path in project.report_dir("quick").glob("*.ipynb")}


KILL_THE_GUARD = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(
        tmp_path_factory.mktemp("project"),
        {"01_good": ["size"], "02_raises": ["1 / 0"], "03_mistyped": ["size"], "04_lost": [KILL_THE_GUARD]},
        {"03_mistyped": "sise: 4"},
    )


@pytest.fixture(scope="module")
def first(project: Project) -> subprocess.CompletedProcess[str]:
    """The first report on it, in which one notebook of four can run."""
    return report(project)


FAULTS = {
    "02_raises": "code cell 2: ZeroDivisionError: division by zero",
    "03_mistyped": "params/quick/03_mistyped.yaml: sise=4: no such parameter; did you mean 'size'?",
    "04_lost": "its job was lost; see reports/quick/snakemake.log",
}


@slow
def test_each_failure_is_one_line_and_stands_on_the_index(
    first: subprocess.CompletedProcess[str], project: Project
) -> None:
    assert first.returncode == 2
    assert first.stderr.splitlines() == [f"report: {name} failed: {line}" for name, line in FAULTS.items()]
    assert [name for name, line in FAULTS.items() if line not in index(project)] == []


@slow
def test_the_others_are_published_all_the_same(first: subprocess.CompletedProcess[str], project: Project) -> None:
    assert (project.report_dir("quick") / "01_good.html").exists()
    assert "report: 1 of 4 notebooks ran" in first.stdout
    opened, *_, last = first.stdout.splitlines()
    assert opened == last
    assert Path(url2pathname(urlparse(last).path)) == project.report_dir("quick") / "index.html"
    assert "\nclaims: " in first.stdout


@slow
def test_the_answers_come_last_before_the_address(first: subprocess.CompletedProcess[str]) -> None:
    asked = []
    for paper, about in papers().items():
        asked += [f"{about.title}:", *(thesis.sentence for thesis in theses.load(paper, claims.load()))]
    lines = first.stdout.splitlines()[-1 - len(asked) : -1]
    assert [line.split("  ")[-1] for line in lines] == asked


def test_the_index_exists_at_once_and_fills_up(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.1)"
    project = make_project(tmp_path, {"01_a": ["size"], "02_b": [wait]})
    process = subprocess.Popen([*COMMAND, "--root", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    page = project.report_dir("quick") / "01_a.html"
    wait_until(lambda: page.exists() and "1 of 2 ran" in index(project))
    assert "This report is being made" in index(project)
    assert not (project.report_dir("quick") / "02_b.html").exists()
    go.touch()
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert "2 of 2 ran" in index(project)
    assert "This report is being made" not in index(project)


def test_what_is_put_right_runs_and_what_ran_does_not_run_again(
    first: subprocess.CompletedProcess[str], project: Project
) -> None:
    before = executed_at(project)
    (project.root / "params" / "quick" / "03_mistyped.yaml").write_text("size: 4")
    for name in ("02_raises", "04_lost"):
        write_notebook(project.notebook_path(name), ["size"])
    done = report(project)
    assert (done.returncode, done.stderr) == (0, "")
    after = executed_at(project)
    assert after["01_good"] == before["01_good"]
    assert set(after) == set(project.notebooks)
    assert [line for line in FAULTS.values() if line in index(project)] == []

    again = report(project)
    assert again.returncode == 0
    assert "nothing changed" in again.stdout
    assert executed_at(project) == after

    _edit_prose(project, "01_good", "# A clearer title")
    prose = report(project)
    assert "nothing changed" in prose.stdout
    assert "A clearer title" in (project.report_dir("quick") / "01_good.html").read_text()


def _edit_prose(project: Project, notebook: str, text: str) -> None:
    path = project.notebook_path(notebook)
    content = nbformat.read(path, as_version=4)
    content.cells[0].source = text
    nbformat.write(content, path)


@slow
def test_ctrl_c_ends_everything_and_still_publishes(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    sleep = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)"
    project = make_project(tmp_path, {"01_a": [sleep], "02_b": [sleep]})
    command = [*COMMAND[:-1], "1", "--root", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    *failed, last = err.splitlines()
    assert len(failed) == 2
    assert "interrupted before its end" in err
    assert "interrupted before it started" in err
    assert [line for line in failed if line.split("failed: ")[1] not in index(project)] == []
    assert last == "report: interrupted; what is finished is kept, and the same command goes on from there"
    assert out.splitlines()[-1].startswith("file://")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return False


@slow
def test_nothing_outlives_a_killed_report_and_the_next_one_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    once = f"import os, pathlib, time\nfirst = not (file := pathlib.Path({str(pid_file)!r})).exists()"
    write = "if first:\n    file.write_text(f'{os.getpid()} {os.getppid()}')\n    time.sleep(100)"
    project = make_project(tmp_path, {"01_a": [once, write], "02_b": ["size"]})
    process = subprocess.Popen([*COMMAND[:-1], "1", "--root", str(tmp_path)], stdout=subprocess.DEVNULL)
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    pids = [int(pid) for pid in pid_file.read_text().split()]  # the kernel and the guard
    snakemake = subprocess.run(["ps", "-o", "ppid=", "-p", str(pids[1])], capture_output=True, text=True).stdout
    process.kill()
    process.wait()
    again = report(project)
    assert again.returncode == 0, again.stderr
    assert [pid for pid in [*pids, int(snakemake)] if _is_alive(pid)] == []


def test_an_unknown_preset_leaves_no_folder_and_stands_on_the_overview(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"01_a": ["1"]})
    done = report(project, "--preset", "quikc")
    assert done.returncode == 2
    assert done.stderr == "transnormer: preset='quikc': unknown; did you mean 'quick'?\n"
    assert "preset='quikc': unknown" in html.unescape((tmp_path / "reports" / "index.html").read_text())
    assert not (tmp_path / "reports" / "quikc").exists()


class Named(str):
    """A run that is its own name; ``a<b`` starts from ``b``."""

    __slots__ = ()

    @property
    def start_from(self) -> "Named | None":
        _, _, start = self.partition("<")
        return Named(start) if start else None


STUDY = {"01_a": [*map(Named, "xyz")], "02_b": [*map(Named, "zyw")]}


@pytest.mark.parametrize(
    ("stored", "runs", "waits"),
    [
        ("", [["01_a:0", "01_a:2"], ["01_a:1", "02_b:2"]], {"01_a": ["0", "1"], "02_b": ["0", "1"]}),
        ("yw", [["01_a:0", "01_a:2"]], {"01_a": ["0"], "02_b": ["0"]}),
        ("xyz", [["02_b:2"]], {"01_a": [], "02_b": ["0"]}),
        ("wxyz", [], {"01_a": [], "02_b": []}),
    ],
    ids=["nothing-stored", "some-stored", "one-lacking", "all-stored"],
)
def test_each_run_that_the_store_lacks_is_trained_by_one_share_and_all_who_need_it_wait(
    stored: str, runs: list[list[str]], waits: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transnormer_lib.training import identity, store

    project = make_project(tmp_path, {name: ["1"] for name in STUDY})
    preset = tmp_path / "params" / "quick" / "preset.yaml"
    preset.write_text(preset.read_text().replace("runs_per_job: 1", "runs_per_job: 2"))
    monkeypatch.setattr(studies, "has_study", lambda notebook: True)
    monkeypatch.setattr(train, "runs_of", lambda project, preset, notebook: STUDY[notebook])
    found = SimpleNamespace(find=lambda run: run if run in stored else None)
    monkeypatch.setattr(store, "RunStore", lambda: found)
    monkeypatch.setattr(identity, "run_id", lambda run: run)
    jobs = [Job(name, "digest", None) for name in STUDY]
    cut, waiting = pipeline.shares(project, "quick", jobs)
    assert [[f"{notebook}:{number}" for notebook, number in share.runs] for share in cut.values()] == runs
    assert not any(share.after for share in cut.values())
    assert waiting == waits
    lacking = sum(map(len, runs))
    for cores in (1, 2, 9):
        cut, _ = pipeline.shares(project, "quick", jobs, cores)
        assert len(cut) == max(len(runs), min(cores, lacking))
        assert sum(len(share.runs) for share in cut.values()) == lacking


def test_a_run_without_data_keeps_no_other_from_being_trained_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transnormer_lib.data.faults import DataUnavailable
    from transnormer_lib.training import identity, store

    def find(run: str) -> None:
        if run == "x":
            raise DataUnavailable("x is not here")

    project = make_project(tmp_path, {name: ["1"] for name in STUDY})
    monkeypatch.setattr(studies, "has_study", lambda notebook: True)
    monkeypatch.setattr(train, "runs_of", lambda project, preset, notebook: STUDY[notebook])
    monkeypatch.setattr(store, "RunStore", lambda: SimpleNamespace(find=find))
    monkeypatch.setattr(identity, "run_id", lambda run: run)
    cut, _ = pipeline.shares(project, "quick", [Job("01_a", "digest", None)])
    assert [run for share in cut.values() for run in share.runs] == [("01_a", 1), ("01_a", 2)]


@pytest.mark.parametrize(
    ("study", "stored", "expected"),
    [
        (["b", "c", "p<b", "q<b", "r<c"], "", [([0], []), ([1], []), ([2], ["0"]), ([3], ["0"]), ([4], ["1"])]),
        (["p<b", "b", "t<p<b"], "", [([1], []), ([0], ["0"]), ([2], ["1"])]),
        (["p<b", "q<b"], "", [([0], []), ([1], ["0"])]),  # nobody lists b: the first that starts from it makes it
        (["p<b", "q<b"], "b", [([0], []), ([1], [])]),
    ],
    ids=["two-starts", "a-chain", "not-listed", "stored"],
)
def test_a_share_comes_after_that_which_makes_what_its_runs_start_from(
    study: list[str], stored: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transnormer_lib.training import identity, store

    project = make_project(tmp_path, {"01_a": ["1"]})
    monkeypatch.setattr(studies, "has_study", lambda notebook: True)
    monkeypatch.setattr(train, "runs_of", lambda project, preset, notebook: [*map(Named, study)])
    monkeypatch.setattr(store, "RunStore", lambda: SimpleNamespace(find=lambda run: run if run in [*stored] else None))
    monkeypatch.setattr(identity, "run_id", lambda run: str(run))
    cut, _ = pipeline.shares(project, "quick", [Job("01_a", "digest", None)])
    assert [([number for _, number in share.runs], share.after) for share in cut.values()] == expected


def test_a_record_that_is_not_ok_keeps_the_last_good_one(tmp_path: Path) -> None:
    from transnormer_lib.report.records import Outcome, write_record

    project = make_project(tmp_path, {"01_a": ["1"]})
    good = write_record(project, Outcome("quick", "01_a", 0.0, {}, status="ok"))
    for _ in range(2):
        bad = write_record(project, Outcome("quick", "01_a", 1.0, {}, error="no"))
        assert bad["last_good"] == good
    assert json.loads((project.report_dir("quick") / "records" / "01_a.json").read_text()) == bad


@pytest.mark.slow
def test_a_reader_who_leaves_early_costs_no_notebook(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"01_a": ["print(size)"]})
    command = f"{shlex.join([*COMMAND[:-1], '1', '--root', str(tmp_path)])} | head -1"
    subprocess.run(command, shell=True, check=True, timeout=120, capture_output=True)
    record = json.loads((project.report_dir("quick") / "records" / "01_a.json").read_text())
    assert record["status"] == "ok"


def test_code_that_changed_while_a_notebook_ran_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transnormer_lib.ledger.seals import displayed
    from transnormer_lib.report import make
    from transnormer_lib.report.records import Outcome, write_record

    project = make_project(tmp_path, {"01_a": ["1"]})

    def ran(*_: object) -> int:
        shown = displayed(json.loads(project.notebook_path("01_a").read_text()))
        write_record(project, Outcome("quick", "01_a", 0.0, {}, status="ok", digest="of other code", displayed=shown))
        shutil.copy(project.notebook_path("01_a"), project.report_dir("quick") / "01_a.ipynb")
        return 0

    monkeypatch.setattr(make, "run", ran)
    assert make.make_report(project, "quick", None, 1, ()) == 1
    assert "report: 01_a: the code changed meanwhile; run the same command again\n" in capsys.readouterr().err
