"""What README and docs print works: Python blocks run, commands parse, and a stranger comes from a text to a model."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from transnormer_lib import cli
from transnormer_lib.project import find_project

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]


def _blocks(language: str) -> dict[str, str]:
    """The fenced blocks of a language on all pages, by page and number."""
    found = {}
    for page in PAGES:
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        found |= {f"{page.name} {number}": block for number, block in enumerate(blocks, 1)}
    return found


PYTHON = _blocks("python")
COMMANDS = sorted(
    {
        line.split("  #")[0].strip()
        for block in _blocks("").values()
        for line in block.splitlines()
        if re.match(r"(transnormer|make|python|\.venv/bin/papermill) ", line)
    }
)


@pytest.fixture(scope="module")
def a_strangers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's run file, cut to a few steps, and a text; the run is trained in it."""
    folder = tmp_path_factory.mktemp("a stranger")
    (block,) = _blocks("yaml").values()
    run = yaml.safe_load(block)
    lines = [f"Once upon a time there was a number {number}, and it grew.\n\n" for number in range(400)]
    (folder / run["data"]["corpus"]).write_text("".join(lines))
    run["optimizer"]["warmup"] = 1
    (folder / "my_run.yaml").write_text(yaml.safe_dump(run | {"steps": 3}))
    _run(folder, [sys.executable, "-m", "transnormer_lib.cli", "train", "my_run.yaml"])
    return folder


def _run(folder: Path, command: list[str]) -> str:
    environment = os.environ | {"TRANSNORMER_RUNS": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PYTHON)
def test_a_printed_block_of_python_runs(block: str, a_strangers_folder: Path) -> None:
    _run(a_strangers_folder, [sys.executable, "-c", PYTHON[block]])


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("transnormer runs")])
def test_a_printed_command_on_ones_own_run_works(command: str, a_strangers_folder: Path) -> None:
    shown = _run(a_strangers_folder, [sys.executable, "-m", "transnormer_lib.cli", *shlex.split(command)[1:]])
    assert "my-text" in shown or "Once upon" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_names_what_exists(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "transnormer":
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        options = cli._parser().parse_args(arguments[:cut])
        project = find_project(CHECKOUT)
        if getattr(options, "preset", None):
            project.preset(options.preset)
            project.select(getattr(options, "only", None) or None)
    elif program == "make":
        assert subprocess.run(["make", "-n", *arguments], cwd=CHECKOUT, capture_output=True).returncode == 0
    elif program == "python":
        assert arguments[0] == "-m"
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({arguments[1]!r}) is None)"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    else:
        source = CHECKOUT / arguments[0]
        assert source.exists()
        names = re.findall(r"^(\w+): ", yaml_free(source.read_text()), re.MULTILINE)
        given = re.findall(r"-p (\w+)|-y '(\w+):", command)
        assert {one or other for one, other in given} <= set(names)


def yaml_free(notebook: str) -> str:
    """A notebook's text with the quotes and breaks of JSON taken away, line by line."""
    return "\n".join(line.strip().strip('",').removesuffix("\\n") for line in notebook.splitlines())
