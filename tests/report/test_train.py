"""A preset's runs are trained without notebooks: those that the store lacks, each once, in one process or several."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from project_factory import STUDY, TINY, study_project, wait_until

from transnormer_lib import studies
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import train
from transnormer_lib.report.plan import Device, plan
from transnormer_lib.report.train import train_lacking
from transnormer_lib.training import trainer
from transnormer_lib.training.config import Band, DataConfig, OptimizerConfig, RunConfig

RUNS = [f"causal-{name}-seed{seed}" for name in ("vanilla", "linear") for seed in (0, 1)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The notebook of a study with tiny parameters, and an empty store."""
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    project = study_project(tmp_path)
    set_parameters(project, TINY)
    return project


def set_parameters(project: Project, changes: dict[str, Any]) -> None:
    path = project.values_path("quick", STUDY)
    before = yaml.safe_load(path.read_text()) if path.exists() else {}
    path.write_text(yaml.safe_dump(before | changes))


def stored(project: Project) -> list[str]:
    return sorted(path.parent.name.rpartition("-")[0] for path in (project.root / "runs").glob("*/record.json"))


def test_a_run_is_trained_once_and_the_plan_knows_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned() -> dict[str, bool]:
        return {run.run: run.stored for run in plan(project, "quick", [STUDY], Device("a device", 1e12))}

    assert set(planned().values()) == {False}
    assert train_lacking(project, "quick", [STUDY], "*-vanilla-*") == 0
    assert stored(project) == sorted(RUNS[:2])
    assert {name for name, there in planned().items() if there} == set(RUNS[:2])
    assert train_lacking(project, "quick", [STUDY]) == 0
    assert stored(project) == sorted(planned()) == sorted(RUNS)
    monkeypatch.setattr(trainer, "train", lambda *_: pytest.fail("trained again"))
    assert train_lacking(project, "quick", [STUDY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(", into ")[0] for line in lines if line.startswith("train:")] == [
        "train: 2 of 2 runs to train",
        "train: 2 of 4 runs to train",
        "train: 0 of 4 runs to train",
    ]
    first, second = (line for line in lines if line.startswith((f"  {RUNS[0]}", f"  {RUNS[1]}")))
    assert re.search(r"1 of 2, \d+ s, about \d+ s left$", first)
    assert second.endswith(" s")  # nothing is left


def test_a_run_of_other_parameters_is_not_taken_for_stored(project: Project) -> None:
    assert train_lacking(project, "quick", [STUDY], RUNS[0]) == 0
    set_parameters(project, {"steps": 3})
    assert not any(run.stored for run in plan(project, "quick", [STUDY], Device("a device", 1e12)))


@pytest.mark.slow
def test_several_processes_train_what_one_would(project: Project) -> None:
    assert train_lacking(project, "quick", [STUDY], jobs=2) == 0
    assert stored(project) == sorted(RUNS)


def test_an_interruption_ends_every_process_and_waits_for_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[Any] = []

    class Process:
        def __init__(self, command: list[str], **_: Any) -> None:
            self.runs, self.heard = command[command.index("quick") + 1 :], []
            processes.append(self)

        def wait(self) -> int:
            self.heard.append("wait")
            if len(self.heard) == 1:
                raise KeyboardInterrupt
            return 130

        def terminate(self) -> None:
            self.heard.append("terminate")

    monkeypatch.setattr(train.subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        train_lacking(project, "quick", [STUDY], jobs=3)
    assert [process.heard[-2:] for process in processes] == [["terminate", "wait"]] * 3
    assert sorted(run for process in processes for run in process.runs) == [f"{STUDY}:{n}" for n in range(4)]


def test_an_interruption_while_processes_start_ends_those_that_have(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    class Process:
        def __init__(self, *_: Any, **__: Any) -> None:
            if heard:
                raise KeyboardInterrupt
            heard.append("started")

        def wait(self) -> int:
            heard.append("wait")
            return 130

        def terminate(self) -> None:
            heard.append("terminate")

    monkeypatch.setattr(train.subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        train_lacking(project, "quick", [STUDY], jobs=2)
    assert heard == ["started", "terminate", "wait"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_no_process_outlives_a_command_that_is_killed(project: Project) -> None:
    set_parameters(project, {"steps": 100_000})
    command = [sys.executable, "-m", "transnormer_lib.cli", "train", "--only", "03", "--jobs", "2"]
    main = subprocess.Popen(command, cwd=project.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def shares() -> list[int]:
        mine = [str(project.root), "transnormer_lib.report.share"]
        commands = {int(file.parent.name): file for file in Path("/proc").glob("[0-9]*/cmdline")}
        return [number for number, file in commands.items() if all(word in _text(file) for word in mine)]

    wait_until(lambda: len(shares()) == 2)
    main.kill()
    main.wait()
    wait_until(lambda: not shares())


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:  # the process has ended
        return ""


@pytest.mark.usefixtures("no_real_data")
def test_data_that_is_not_here_is_said_in_one_line(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    set_parameters(project, {"corpus": "wikitext-103", "vocabulary": "wikitext-103-words"})
    assert train_lacking(project, "quick", [STUDY]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"train: {RUNS[0]} and 3 more: no data: ")
    assert "wikitext-103" in error
    assert error.count("\n") == 1


def _with(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[RunConfig]], list[RunConfig]]) -> None:
    plain = studies.runs
    monkeypatch.setattr(studies, "runs", lambda *arguments: change(plain(*arguments)))


@pytest.mark.usefixtures("no_real_data")
def test_a_run_without_data_costs_only_itself(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = DataConfig(corpus="wikitext-103", length=8, batch_size=2)
    _with(monkeypatch, lambda runs: [replace(runs[0], name="elsewhere", data=absent), *runs[:2]])
    assert train_lacking(project, "quick", [STUDY]) == 1
    assert stored(project) == sorted(RUNS[:2])
    output = capsys.readouterr()
    assert output.err.startswith("train: elsewhere: no data: ")
    assert output.err.count("\n") == 1
    assert "train: 2 of 2 runs to train" in output.out
    assert train_lacking(project, "quick", [STUDY], "elsewhere") == 1


def test_a_run_whose_start_diverged_costs_only_itself(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(runs: list[RunConfig]) -> list[RunConfig]:
        broken = replace(runs[0], name="base", optimizer=OptimizerConfig(learning_rate=1e36, schedule="constant"))
        return [replace(runs[0], name="tuned", start_from=broken), runs[0]]

    _with(monkeypatch, change)
    assert train_lacking(project, "quick", [STUDY]) == 1
    assert stored(project) == ["base", RUNS[0]]
    assert "tuned: RunFailed: run tuned starts from another: run base-" in capsys.readouterr().err


def test_a_run_that_is_refused_costs_only_itself(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch, lambda runs: [replace(runs[0], name="refused", measured_at_end=("exam",)), runs[0]])
    assert train_lacking(project, "quick", [STUDY]) == 2
    assert stored(project) == [RUNS[0]]
    assert "refused: measured_at_end='exam': must be one of 'train'" in capsys.readouterr().err


def test_a_run_outside_its_band_is_said_with_the_reason(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch, lambda runs: [replace(runs[0], bands=(Band(2, 0.0, 0.1),)), runs[1]])
    assert train_lacking(project, "quick", [STUDY]) == 1
    output = capsys.readouterr()
    assert f"{RUNS[0]}: train loss " in output.err
    assert "after 2 steps, expected in [0, 0.1]; TRANSNORMER_CHECK_BANDS=0" in output.err
    assert f"{RUNS[0]}, outside-band: 1 of 2" in output.out
    assert stored(project) == [f".partial-{RUNS[0]}", RUNS[1]]


def test_a_process_that_was_killed_is_no_success(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([0, -9])

    class Process:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.code = next(codes)

        def wait(self) -> int:
            return self.code

    monkeypatch.setattr(train.subprocess, "Popen", Process)
    assert train_lacking(project, "quick", [STUDY], jobs=2) == 137
    assert "train: SIGKILL ended a process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "pattern", "message"),
    [
        ({}, "*-seed7", r"run='\*-seed7': no run of preset 'quick' has such a name"),
        ({"heads": 3}, None, f"{STUDY}: heads=3: must divide dim=8"),
        ({"head": 3}, None, "head=3: no such parameter; did you mean 'heads'"),
    ],
    ids=["no-such-run", "impossible-model", "unknown-parameter"],
)
def test_a_mistake_trains_nothing(changes: dict[str, Any], pattern: str | None, message: str, project: Project) -> None:
    set_parameters(project, changes)
    with pytest.raises(UserMistake, match=message):
        train_lacking(project, "quick", [STUDY], pattern)
    assert stored(project) == []
