"""Wrong values in the environment, on the command line and in committed files: one line, exit code 2, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos_trials import Tried, cases
from hypothesis import given
from mutations import broken
from project_factory import STUDY, make_project, study_project
from report_factory import HOSTILE, make_report

from transnormer_lib.cli import main
from transnormer_lib.ledger import claims, theses
from transnormer_lib.ledger.claims import PACKAGE
from transnormer_lib.papers import catalogue
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.index import build_overview, build_report
from transnormer_lib.training.__main__ import main as train
from transnormer_lib.variables import names_refused_variables

RUN: dict[str, Any] = {
    "name": "tiny",
    "model": {"architecture": "linear", "dim": 8, "heads": 1, "layers": 1},
    "data": {"length": 8, "batch_size": 1},
    "optimizer": {"learning_rate": 0.001, "schedule": "constant"},
    "steps": 1,
    "seed": 0,
    "validation_windows": 1,
}
# Variable → values that it cannot have. A folder that cannot be made is a failure of the machine.
WRONG = {
    "TRANSNORMER_CHECKPOINT_SECONDS": ["x", "-1", "nan", "", "1,5", "1h", "0x10", "é"],
    "TRANSNORMER_CHECK_BANDS": ["x", "2", "", "yes", "True", " 1"],
    "TRANSNORMER_RUNS": ["FILE"],
    "TRANSNORMER_DATA_ROOT": ["FILE", "~nobodyx/y", "/no/such/folder"],
    "TRANSNORMER_CACHE": ["FILE"],
    "WORLD_SIZE": ["x", "0", "-2", "", "1.5", "1e3", "2"],
    "RANK": ["x", "1", "-1", ""],
    "LOCAL_RANK": ["x", "1"],
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ["x"],
    "ACCELERATE_DYNAMO_BACKEND": ["banana"],
    "ACCELERATE_USE_FSDP": ["banana"],
}


@pytest.fixture
def run_yaml(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(RUN))
    return path


@pytest.mark.parametrize(("variable", "value"), [(name, value) for name, values in WRONG.items() for value in values])
@pytest.mark.parametrize("command", ["training", "train FILE", "train"])
def test_a_wrong_variable_is_one_line_and_exit_code_2(
    variable: str,
    value: str,
    command: str,
    run_yaml: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tried: Tried,
) -> None:
    if command == "train" and variable.startswith("ACCELERATE_"):
        pytest.skip("each of its runs is refused, with a line of its own")
    (tmp_path / "project").mkdir()
    project = study_project(tmp_path / "project")
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv(variable, str(run_yaml) if value == "FILE" else value)
    arguments = {
        "training": lambda: train([str(run_yaml)]),
        "train FILE": lambda: main(["train", str(run_yaml)]),
        "train": lambda: main(["train", "--root", str(project.root), "--only", STUDY]),
    }
    assert arguments[command]() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{variable}=" in error
    tried("a wrong variable of the environment")


# What a library refuses when it is first imported, so in a process of its own.
REFUSED = {"TQDM_MININTERVAL": "x", "HF_HUB_ETAG_TIMEOUT": "x", "TORCH_LOGS": "banana", "PYTORCH_JIT": "x"}


@pytest.mark.parametrize("variable", REFUSED)
@pytest.mark.parametrize("command", ["train FILE", pytest.param("training", marks=pytest.mark.slow), "plan"])
def test_a_variable_that_a_library_refuses_is_one_line_and_exit_code_2(
    variable: str, command: str, run_yaml: Path, tmp_path: Path, tried: Tried
) -> None:
    project = study_project(tmp_path)
    arguments = {
        "train FILE": ["transnormer_lib.cli", "train", str(run_yaml)],
        "training": ["transnormer_lib.training", str(run_yaml)],
        "plan": ["transnormer_lib.cli", "plan", "--root", str(project.root), "--only", STUDY],
    }
    own = os.environ | {variable: REFUSED[variable], "HF_TOKEN": "a secret", "TRANSNORMER_RUNS": str(tmp_path / "runs")}
    done = subprocess.run([sys.executable, "-m", *arguments[command]], env=own, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{variable}={REFUSED[variable]!r}" in done.stderr
    assert "a secret" not in done.stderr
    tried("a wrong variable of the environment")


def test_help_imports_no_library_that_could_refuse() -> None:
    command = [sys.executable, "-m", "transnormer_lib.cli", "--help"]
    assert subprocess.run(command, env=os.environ | REFUSED, capture_output=True).returncode == 0


def test_a_fault_in_a_command_is_no_refused_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails later, or one of ours that fails at import, has a fault of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="could not convert"):
        names_refused_variables(lambda: int(float("x")))()
    with pytest.raises(ValueError, match="ours"):
        names_refused_variables(lambda: exec("raise ValueError('ours')", {"__name__": "transnormer_lib.data"}))()


@pytest.mark.parametrize("variable", ["TRANSNORMER_DATA_ROOT", "TRANSNORMER_CACHE"])
@pytest.mark.parametrize("what", ["list", "fetch", "check"])
def test_a_wrong_place_of_data_is_one_line_and_exit_code_2(
    variable: str, what: str, run_yaml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in [str(run_yaml)] + (["~nobodyx/y", "x" * 5000] if variable == "TRANSNORMER_DATA_ROOT" else []):
        monkeypatch.setenv(variable, value)
        assert main(["data", what]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{variable}=" in error


def test_a_sequence_longer_than_the_text_is_one_line_that_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.txt").write_text("A short text.\n\n" * 40)
    path = tmp_path / "run.yaml"
    path.write_text(
        yaml.safe_dump(RUN | {"data": {"corpus": str(tmp_path / "short.txt"), "length": 5000, "batch_size": 1}})
    )
    assert train([str(path), "--store", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "data.length=5000: " in error


@pytest.mark.parametrize("seed", ["-1", str(2**70), "1.5", "x"])
def test_a_seed_that_pytorch_does_not_take_is_refused_by_name(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "generate", "tiny", "--seed", seed])
    assert ended.value.code == 2
    assert "argument --seed" in capsys.readouterr().err


def test_a_run_of_one_field_says_which_others_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: mine\n")
    assert main(["train", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(f"{field}: is missing" in error for field in ("model", "data", "optimizer", "steps", "seed"))


@pytest.mark.parametrize("yaml_text", ["steps: 1180591620717411303424", "seed: 18446744073709551616", "seed: -1"])
def test_a_number_that_torch_has_no_room_for_is_refused(
    yaml_text: str, run_yaml: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_yaml.write_text(yaml.safe_dump(RUN | yaml.safe_load(yaml_text)))
    assert train([str(run_yaml), "--store", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert yaml_text.replace(": ", "=") in error


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (lambda text: text.replace(b"- id: eq-9\n", b"- id: eq-7\n"), "used twice"),
        (lambda text: text + b"\xff", "gradient_theory/claims.yaml: not UTF-8"),
        (lambda text: text.replace(b"kind: theorem", b"kind: idea", 1), "kind='idea'"),
        (lambda text: b"[" + text, "gradient_theory/claims.yaml: not valid YAML"),
    ],
    ids=["an id twice", "not UTF-8", "no such kind", "no YAML"],
)
def test_a_wrong_file_of_claims_ends_a_report_with_one_line(
    fault: Any, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    studies, sound = tmp_path / "studies", PACKAGE / "studies" / "gradient_theory" / "claims.yaml"
    content = sound.read_bytes()
    assert fault(content) != content
    (studies / "gradient_theory").mkdir(parents=True)
    (studies / "gradient_theory" / "claims.yaml").write_bytes(fault(content))
    monkeypatch.setattr(theses, "load_claims", lambda: claims.load(studies))
    project = make_project(tmp_path / "project", {"01_a": ["size"]})
    with pytest.raises(UserMistake) as refused:
        build_report(project.root, "quick")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_everything_asked_is_that_of_the_files() -> None:
    found, asked = theses.everything()
    assert found == claims.load()
    assert [paper for paper, _ in asked] == [
        paper for paper in catalogue.papers() for _ in theses.load(paper, claims.load())
    ]


def test_a_broken_claims_json_costs_its_presets_counts_alone(tmp_path: Path, tried: Tried) -> None:
    report = make_report(tmp_path)
    build_report(tmp_path, "quick", claims=())
    path, count = report / "claims.json", 0
    assert (report / "index.html").exists()

    @cases(15, 200)
    @given(content=broken(json.dumps([{"id": "é", "verdict": "trend"}]).encode()))
    def one(content: bytes) -> None:
        nonlocal count
        count += 1
        path.write_bytes(content)
        assert build_overview(tmp_path, None).exists()
        try:
            assert main(["claims", "--root", str(tmp_path)]) in (0, 2)
        finally:
            build_report(tmp_path, "quick", claims=())
        assert path.read_bytes() == b"[]\n"

    one()
    tried("a broken claims.json in a report", count)


def test_a_presets_description_is_text_on_every_page(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    preset = tmp_path / "params" / "quick" / "preset.yaml"
    values = yaml.safe_load(preset.read_text())
    preset.write_text(yaml.safe_dump(values | {"description": f"{HOSTILE} {{{{ 7 * 7 }}}} $x$ <b>"}))
    build_report(tmp_path, "quick", claims=())
    pages = [report / "index.html", build_overview(tmp_path, None)]
    for page in pages:
        text = page.read_text()
        assert "&lt;script&gt;alert" in text
        assert "<script>alert" not in text
        assert "<img src=http" not in text
        assert "{{ 7 * 7 }}" in text
    assert Project(tmp_path).preset("quick").description.startswith(HOSTILE)
