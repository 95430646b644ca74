"""Each way in which a notebook can fail is seen, said in one line and recorded; nothing good is lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from project_factory import listen, make_project, wait_until

from transnormer_lib.project import Project
from transnormer_lib.report.guard import NotebookFailed, check_executed, run_notebook

pytestmark = pytest.mark.slow


def record(project: Project, name: str = "01_a", preset: str = "quick") -> dict[str, Any]:
    return json.loads((project.report_dir(preset) / "records" / f"{name}.json").read_text())


def guard(
    project: Project, name: str = "01_a", preset: str = "quick", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "transnormer_lib.report.guard",
            "--root",
            str(project.root),
            "--preset",
            preset,
            name,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


def test_a_good_run_is_recorded_with_what_is_needed_to_repeat_it(tmp_path: Path) -> None:
    mime = "application/vnd.transnormer.provenance+json"
    show = f"from IPython.display import display\ndisplay({{'{mime}': {{'data': {{'text': 'abc'}}}}}}, raw=True)"
    project = make_project(tmp_path, {"01_a": ["assert size == 5", show, "print(size)"]}, {"01_a": "size: 5"})
    done = guard(project)
    assert (done.returncode, done.stderr) == (0, "")
    written = record(project)
    assert written["status"] == "ok"
    assert written["parameters"] == {"scale": "quick", "size": 5}
    found = written["provenance"]
    assert found["data"] == {"text": "abc"}
    assert found["command"] == "make report PRESET=quick ONLY=01"
    assert found["peak_memory_bytes"] > 10_000_000
    assert found["wall_seconds"] > 0
    assert {"commit", "dirty", "versions", "device", "started", "seeds"} <= set(found)
    assert (project.report_dir("quick") / "01_a.ipynb").exists()


FAILURES = {
    "exception": ("raise ValueError('no\\nmore')", "code cell 2: ValueError: no", 1),
    "exit-zero": ("import sys; sys.exit(0)", "sys.exit(0)", 1),
    "exit-one": ("import sys; sys.exit(1)", "sys.exit(1)", 1),
    "killed-kernel": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the kernel died", 1),
    "missing-data": (
        "from transnormer_lib.data.faults import DataUnavailable\nraise DataUnavailable('text: pip install words')",
        "text: pip install words",
        1,
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_one_line_and_the_last_good_copy_stays(kind: str, tmp_path: Path) -> None:
    source, message, code = FAILURES[kind]
    project = make_project(tmp_path, {"01_a": [source, "print('after')"]})
    good = project.report_dir("quick") / "01_a.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("the last good copy")
    done = guard(project)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith("01_a: ")
    assert message in line
    written = record(project)
    assert written["status"] == "failed"
    assert message in written["error"]
    assert good.read_text() == "the last good copy"
    assert (project.report_dir("quick") / "failed" / "01_a.ipynb").exists()


def test_where_real_data_are_absent_the_notebook_has_no_data_and_has_not_failed(tmp_path: Path) -> None:
    source, message, _ = FAILURES["missing-data"]
    project = make_project(tmp_path, {"01_a": [source, "print('after')"]})
    (tmp_path / "params" / "quick").rename(tmp_path / "params" / "gpu")
    preset = tmp_path / "params" / "gpu" / "preset.yaml"
    preset.write_text(preset.read_text().replace("scale: quick", "scale: gpu"))
    done = guard(project, preset="gpu")
    assert done.returncode == 1  # it did not run to its end
    written = record(project, preset="gpu")
    assert (written["status"], written["error"]) == ("no data", message)
    assert (project.report_dir("gpu") / "failed" / "01_a.ipynb").exists()


def test_a_mistyped_parameter_runs_nothing_and_exits_with_two(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    project = make_project(tmp_path, {"01_a": [f"open({str(marker)!r}, 'w')"]}, {"01_a": "sise: 5"})
    done = guard(project)
    assert done.returncode == 2
    assert "did you mean 'size'?" in done.stderr
    assert not marker.exists()
    assert "did you mean 'size'?" in record(project)["error"]


def test_a_notebook_beyond_its_time_is_stopped_and_its_kernel_is_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    cells = [f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)"]
    project = make_project(tmp_path, {"01_a": cells}, minutes=0.15)
    done = guard(project)
    assert done.returncode == 1
    assert "stopped after 0.15 minutes" in record(project)["error"]
    assert not alive(int(pid_file.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interruption_is_recorded_and_leaves_no_kernel(number: signal.Signals, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    cells = [f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)"]
    project = make_project(tmp_path, {"01_a": cells})
    command = [
        sys.executable,
        "-m",
        "transnormer_lib.report.guard",
        "--root",
        str(tmp_path),
        "--preset",
        "quick",
        "01_a",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    process.send_signal(number)
    assert process.wait(30) == 130
    assert record(project)["status"] == "interrupted"
    assert not alive(int(pid_file.read_text()))


def test_the_kernel_is_this_interpreter_whatever_kernels_are_installed(tmp_path: Path) -> None:
    decoy = tmp_path / "jupyter" / "kernels" / "python3"
    decoy.mkdir(parents=True)
    (decoy / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "decoy", "language": "python"}')
    project = make_project(tmp_path, {"01_a": [f"import sys\nassert sys.executable == {sys.executable!r}"]})
    done = guard(project, JUPYTER_PATH=str(tmp_path / "jupyter"))
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_notebook_started_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    start = f"import subprocess\nopen({str(pid_file)!r}, 'w').write(str(subprocess.Popen(['sleep', '100']).pid))"
    project = make_project(tmp_path, {"01_a": [start, "1 / 0"]})
    assert guard(project).returncode == 1
    assert not alive(int(pid_file.read_text()))


def test_a_record_says_nothing_false_about_the_circumstances(tmp_path: Path) -> None:
    mime = "application/vnd.transnormer.provenance+json"
    told = {"commit": "none", "gpu": "x"}
    show = f"from IPython.display import display\ndisplay({{'{mime}': {told}}}, raw=True)"
    project = make_project(tmp_path, {"01_a": [show]})
    found = run_notebook(project, "quick", "01_a")["provenance"]
    assert found["gpu"] == "x"
    assert found["commit"] != "none"


def test_success_after_failure_clears_the_failed_copy(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"01_a": ["import pathlib\nassert pathlib.Path('go').exists()"]})
    assert run_notebook(project, "quick", "01_a")["status"] == "failed"
    (tmp_path / "go").touch()
    assert run_notebook(project, "quick", "01_a")["status"] == "ok"
    assert not (project.report_dir("quick") / "failed" / "01_a.ipynb").exists()


@pytest.mark.parametrize(
    ("cell", "passes"),
    [
        ({"source": "1", "execution_count": 1, "outputs": []}, True),
        ({"source": " \n", "execution_count": None, "outputs": []}, True),
        ({"source": "1", "execution_count": None, "outputs": []}, False),
    ],
    ids=["ran", "empty", "never-ran"],
)
def test_every_cell_with_code_must_have_run(cell: dict[str, Any], passes: bool) -> None:
    notebook = {"cells": [{"cell_type": "code", "metadata": {"papermill": {"status": "completed"}}, **cell}]}
    if passes:
        check_executed(notebook)
    else:
        with pytest.raises(NotebookFailed, match="never ran"):
            check_executed(notebook)
