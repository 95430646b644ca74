"""The command answers at once, and a user's mistake is one line and exit code 2."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transnormer_lib.cli import main
from transnormer_lib.ledger.judging import write_json_list


def test_help_loads_nothing_heavy() -> None:
    code = "import sys\nfrom transnormer_lib.cli import main\n"
    code += "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
    code += "print(sorted({'torch', 'numpy', 'papermill', 'pydantic', 'yaml', 'grimp'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["report", "claims", "plan", "train", "sweep", "bench", "data"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "--preset" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reprot"], "invalid choice: 'reprot'"),
        (["report", "--cores", "0"], "'0': must be a whole number of at least 1"),
        (["report", "--cores", "two"], "'two': must be a whole number of at least 1"),
        (["claims", "--", "--executor", "slurm"], "claims takes nothing after --"),
        (["bench", "memory"], "invalid choice: 'memory'"),
        (["bench", "attention", "--lengths", "512,x"], "'x': must be a whole number of at least 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistaken_option_is_refused_by_name(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "notebooks").mkdir()
    preset = tmp_path / "params" / "quick" / "preset.yaml"
    preset.parent.mkdir(parents=True)
    preset.write_text(
        "scale: quick\ndescription: A test.\ndevice: cpu\nthreads: 1\nminutes_per_notebook: 1\nruns_per_job: 1\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claims", "--preset", "quikc"], "transnormer: preset='quikc': unknown; did you mean 'quick'?"),
        (
            ["claims"],
            "transnormer: preset='quick': has no report yet; run: make report PRESET=quick",
        ),
        (["report", "--preset", "quikc"], "transnormer: preset='quikc': unknown; did you mean 'quick'?"),
        (["report", "--only", "07"], "transnormer: only='07': no such notebook; must be one of nothing"),
        (["plan", "--only", "07"], "transnormer: only='07': no such notebook; must be one of nothing"),
        (["train", "--run", "*"], "transnormer: run='*': no run of preset 'quick' has such a name"),
        (
            ["train", "a.yaml", "--only", "03"],
            "transnormer: config: give one run's YAML, or --preset with --only, --run and --jobs, not both",
        ),
        (["sweep", "--dry-run", "--run", "*"], "transnormer: run='*': no run of preset 'quick' has such a name"),
        (["sweep", "--json"], "transnormer: json: belongs to --dry-run"),
        (["sweep", "--dry-run", "--preset", "nihgt"], "transnormer: preset='nihgt': unknown; must be one of quick"),
        (
            ["sweep", "--dry-run", "--processes", "2"],
            "transnormer: dry-run: trains nothing, so it takes neither --processes nor arguments after --",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--root", str(root)]) == 2
    assert capsys.readouterr().err == message + "\n"


@pytest.mark.parametrize("command", ["report", "claims", "train", "plan", "sweep", "data list --preset=quick"])
@pytest.mark.parametrize("place", ["nowhere", "empty", "notebooks"])
def test_a_root_that_holds_no_project_is_refused_and_no_other_is_taken(
    command: str, place: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    (root / "empty").mkdir()
    assert main([*command.split(), "--root", place]) == 2
    line = f"transnormer: root='{place}': must be a folder that holds notebooks/ and params/\n"
    assert capsys.readouterr().err == line
    assert not (root / "reports").exists()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("threads", "one", ""),
        ("threads", "-3", "must be a whole number of at least 1"),
        ("minutes_per_notebook", "0.0", "must be a positive finite number"),
        ("minutes_per_notebook", ".nan", "must be a positive finite number"),
        ("minutes_per_notebook", "1.0e+12", "must be at most 525600"),
        ("threads", "1000000", "must be at most 1024"),
        ("runs_per_job", "0", "must be a whole number of at least 1"),
    ],
)
def test_a_preset_that_is_wrong_itself_is_named_with_its_field(
    field: str, value: str, rule: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = root / "params" / "quick" / "preset.yaml"
    preset.write_text(re.sub(rf"{field}: .*", f"{field}: {value}", preset.read_text()))
    assert main(["claims", "--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"transnormer: params/quick/preset.yaml: {field}=")
    assert rule in error
    assert error.count("\n") == 1


def test_claims_prints_the_ledger_as_it_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = {"id": "eq-9", "locus": "Eq. 9", "verdict": "survives", "notebook": "01_a", "scale": "quick"}
    claim |= {"measured": 1.0, "reason": "", "seeds": None, "source": "run", "anchor": "01_a.html#claim-eq-9"}
    write_json_list(root / "reports" / "quick" / "claims.json", [claim])
    assert main(["claims", "--json", "--root", str(root)]) == 0
    assert json.loads(capsys.readouterr().out) == [claim]
    assert main(["claims", "--root", str(root)]) == 0
    assert capsys.readouterr().out.split() == ["survives", "Eq.", "9", "eq-9"]
