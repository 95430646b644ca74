"""What README and docs print works: Python blocks run, commands parse, and a stranger comes from a text to a model.

The tests marked ``printed`` really run every command, some minutes in all; ``.ci/run`` selects them. Benchmarks run
with fewer repeats than they have without options.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml

from transnormer_lib import cli
from transnormer_lib.project import find_project

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = [
    *(CHECKOUT / f"{name}.md" for name in ("README", "CONTRIBUTING", "REPRODUCIBILITY")),
    *sorted((CHECKOUT / "docs").glob("*.md")),
    *(CHECKOUT / folder / "README.md" for folder in ("kernels", "reports")),
]
# All fences at once: a closing fence looks like an opening one without a language.
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> dict[str, str]:
    """The fenced blocks of a language on all pages, by page and number."""
    found = {}
    for page in PAGES:
        blocks = [block for named, block in FENCE.findall(page.read_text()) if named == language]
        found |= {f"{page.relative_to(CHECKOUT)} {number}": block for number, block in enumerate(blocks, 1)}
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
# What runs a command otherwise than alone: a variable before it, a priority, a file for what it prints.
AROUND = re.compile(r"^(?:[A-Z_]+=\S* |nice -n \d+ )+| > \S+$| …$")


def _in_text() -> set[str]:
    """The commands that stand within a text or a table, one line each."""
    texts = [FENCE.sub("", page.read_text()) for page in PAGES]
    spans = {AROUND.sub("", " ".join(span.split())) for text in texts for span in re.findall(r"`([^`]+)`", text)}
    return {span for span in spans if span.partition(" ")[0] in CHECKS}


# What takes hours is started, interrupted once it shows this, and must end at once without a traceback.
INTERRUPTED = {
    "make lab": "Use Control-C to stop this server",
    "make report PRESET=night": "notebooks to run",
    "transnormer train --preset night --jobs 2": "train: ",
    "transnormer sweep --preset night --only 04": "runs to train",
}
# What needs the network says so, here where there is none.
REFUSED = {"transnormer data fetch": "is not on this machine and HF_HUB_OFFLINE forbids fetching it"}
# A CPU of another kind than the one that made the kept numbers gives others, and says so.
MACHINE_DECIDES = {"transnormer repeat --preset night --only 14 --sample 1": "of 1 give the kept numbers"}
ON_A_CLUSTER = ("transnormer sweep --preset paper --only 07 --processes 8 -- --executor slurm --jobs 50",)
OF_CI = ("make report", "make test", "make oracles", "make test-browser")  # .ci/run calls them itself
ON_OWN_TEXT = ("transnormer runs", "transnormer train my_run.yaml", "transnormer export")
EXPORTS = [line for line in COMMANDS if line.startswith("transnormer export")]
CARRY = [line for line in COMMANDS if line.startswith(("transnormer runs export", "transnormer runs import"))]
OTHERS = {*INTERRUPTED, *REFUSED, *MACHINE_DECIDES, *ON_A_CLUSTER, *OF_CI}
# One round and short lengths instead of the usual ones: the same path, without ten minutes of repeats.
SHORTENED = {
    "transnormer bench attention": " --repeats 1 --lengths 512,1024",
    "transnormer bench decoding": " --repeats 1 --lengths 512,1024",
    "transnormer bench kernels": " --quick",
    "python -m transnormer_kernels.bench --json reports/benchmarks": " --quick",
}
# Where no GPU is, Triton's interpreter runs the kernels; it cannot compute bfloat16.
WITHOUT_A_GPU = {'"cuda"': '"cpu"', "torch.bfloat16": "torch.float16"}
TO_THE_END = [line for line in COMMANDS if line not in OTHERS and not line.startswith(ON_OWN_TEXT)]


@pytest.fixture(scope="module")
def a_strangers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's run file, cut to a few steps, and a text; the run is trained in it, and exported."""
    folder = tmp_path_factory.mktemp("a stranger")
    (block,) = _blocks("yaml").values()
    run = yaml.safe_load(block)
    lines = [f"Once upon a time there was a number {number}, and it grew.\n\n" for number in range(400)]
    (folder / run["data"]["corpus"]).write_text("".join(lines))
    run["optimizer"]["warmup"] = 1
    (folder / "my_run.yaml").write_text(yaml.safe_dump(run | {"steps": 3}))
    _run(folder, [sys.executable, "-m", "transnormer_lib.cli", "train", "my_run.yaml"])
    for command in EXPORTS:
        _run(folder, _here(command))
    return folder


def _run(folder: Path, command: list[str]) -> str:
    environment = os.environ | {"TRANSNORMER_RUNS": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PYTHON)
def test_a_printed_block_of_python_runs(block: str, a_strangers_folder: Path) -> None:
    code = PYTHON[block]
    for of_a_gpu, instead in () if torch.cuda.is_available() else WITHOUT_A_GPU.items():
        code = code.replace(of_a_gpu, instead)
    _run(a_strangers_folder, [sys.executable, "-c", code])


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [line for line in COMMANDS if line.startswith("transnormer runs") and "my-" in line]
)
def test_a_printed_command_on_ones_own_run_works(command: str, a_strangers_folder: Path) -> None:
    shown = _run(a_strangers_folder, [sys.executable, "-m", "transnormer_lib.cli", *shlex.split(command)[1:]])
    assert "my-text" in shown or "Once upon" in shown


def test_a_printed_export_leaves_a_model(a_strangers_folder: Path) -> None:
    assert EXPORTS
    for command in EXPORTS:
        written = {path.name for path in (a_strangers_folder / shlex.split(command)[-1]).iterdir()}
        assert written == {"README.md", "SHA256SUMS", "config.json", "model.safetensors"}


@pytest.mark.slow
def test_printed_records_go_to_a_file_and_come_back(a_strangers_folder: Path) -> None:
    shown = [_run(a_strangers_folder, _here(command)) for command in CARRY]
    assert ["records of" in shown[0], "records added" in shown[1]] == [True, True]


def _here(command: str) -> list[str]:
    """The words of a printed command, with this environment's programs."""
    program, *arguments = shlex.split(command)
    own = {"transnormer": [sys.executable, "-m", "transnormer_lib.cli"], "python": [sys.executable]}
    return [*own.get(program, [program]), *arguments]


def _environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"TRANSNORMER_RUNS": str(tmp_path / "runs"), "HF_HUB_OFFLINE": "1"}


@pytest.mark.printed
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", TO_THE_END)
def test_a_printed_command_ends_well(command: str, tmp_path: Path) -> None:
    # Not in the program itself, since the checkout may lie below /tmp/ as well.
    here, command = shlex.quote(str(tmp_path)), command + SHORTENED.get(command, "")
    words = _here(command.replace("reports/benchmarks", here).replace("/tmp/", f"{here}/"))
    done = subprocess.run(words, cwd=CHECKOUT, env=_environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.printed
@pytest.mark.parametrize("command", REFUSED)
def test_a_printed_command_says_what_it_lacks_here_and_fails(command: str, tmp_path: Path) -> None:
    nothing_here = _environment(tmp_path) | {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    nothing_here.pop("TRANSNORMER_DATA_ROOT", None)
    done = subprocess.run(_here(command), cwd=CHECKOUT, env=nothing_here, capture_output=True, text=True)
    assert done.returncode == 1
    assert REFUSED[command] in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.printed
@pytest.mark.parametrize("command", MACHINE_DECIDES)
def test_a_printed_command_ends_with_what_the_machine_decides(command: str, tmp_path: Path) -> None:
    done = subprocess.run(_here(command), cwd=CHECKOUT, env=_environment(tmp_path), capture_output=True, text=True)
    assert done.returncode in (0, 1)
    assert MACHINE_DECIDES[command] in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.printed
@pytest.mark.parametrize("command", INTERRUPTED)
def test_a_printed_command_starts_and_can_be_interrupted(command: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        _here(command),
        cwd=CHECKOUT,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    shown, deadline = "", threading.Timer(240, lambda: os.killpg(process.pid, signal.SIGTERM))
    deadline.start()
    assert process.stdout is not None
    for line in process.stdout:
        shown += line
        if INTERRUPTED[command] in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    if command == "make lab":  # Jupyter asks whether it is meant, and nobody answers
        time.sleep(1)
        os.killpg(process.pid, signal.SIGTERM)
    shown += process.communicate(timeout=120)[0]
    deadline.cancel()
    assert INTERRUPTED[command] in shown
    assert process.returncode != 0 or command == "make lab"
    assert "Traceback" not in shown or command == "make lab"  # there the server is Jupyter, not ours


def test_ci_runs_the_rest() -> None:
    script = (CHECKOUT / ".ci" / "run").read_text()
    for command in (*OF_CI, "-m printed"):
        assert command in script


def _names_what_transnormer_has(*words: str) -> None:
    """The command and its options are parsed; a command alone, as a text names it, has a help."""
    arguments = words[: words.index("--")] if "--" in words else words
    if len(arguments) < 2:
        with pytest.raises(SystemExit) as ended:
            cli._parser().parse_args([*arguments, "--help"])
        assert ended.value.code == 0
        return
    options = cli._parser().parse_args(arguments)
    project = find_project(CHECKOUT)
    if getattr(options, "preset", None):
        project.preset(options.preset)
        project.select(getattr(options, "only", None) or None)


def _names_what_make_has(*words: str) -> None:
    assert subprocess.run(["make", "-n", *words], cwd=CHECKOUT, capture_output=True).returncode == 0
    given = dict(word.split("=") for word in words if "=" in word)
    assert given.keys() <= set(re.findall(r"^(\w+) *\?=", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    project = find_project(CHECKOUT)
    project.preset(given.get("PRESET", "quick"))
    project.select([number for name, number in given.items() if name == "ONLY" and number != NEW_STUDY])


def _names_a_module(*words: str) -> None:
    assert words[0] == "-m"
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({words[1]!r}) is None)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def _names_a_notebook_and_its_parameters(*words: str) -> None:
    lines = yaml_free((CHECKOUT / words[0]).read_text())
    given = [value.partition(":")[0] for option, value in pairwise(words) if option in ("-p", "-y")]
    assert given
    assert set(given) <= set(re.findall(r"^(\w+): ", lines, re.MULTILINE))


def _names_a_package(*words: str) -> None:
    command, what = words
    assert command == "install"
    assert what == "git+" or (CHECKOUT / what / "pyproject.toml").exists()  # tests/test_packages.py installs both


def _names_the_environment(*words: str) -> None:
    name = yaml.safe_load((CHECKOUT / "environment.yml").read_text())["name"]
    assert words in (("env", "create", "-f", "environment.yml"), ("activate", name))


def _names_the_image(*words: str) -> None:
    command, *rest = words
    built = re.findall(r"^#   podman build -t (\S+)", (CHECKOUT / "Containerfile").read_text(), re.MULTILINE)
    if command == "build":
        assert rest == ["-t", *built, "."]
    else:
        if rest[0] == "-v":
            here, _, there = rest[1].partition(":")
            assert here.removeprefix("$PWD/") == there.removeprefix("/companion/") == "reports"
            rest = rest[2:]
        image, program, *arguments = rest
        assert (command, [image]) == ("run", built)
        CHECKS[program](*arguments)


NEW_STUDY = "99"  # the number that CONTRIBUTING's recipe gives to a study that is not there
CHECKS = {
    "transnormer": _names_what_transnormer_has,
    "make": _names_what_make_has,
    "python": _names_a_module,
    ".venv/bin/papermill": _names_a_notebook_and_its_parameters,
    "pip": _names_a_package,
    "conda": _names_the_environment,
    "podman": _names_the_image,
}


@pytest.mark.parametrize("command", sorted({*COMMANDS, *_in_text()}))
def test_a_printed_command_names_what_exists(command: str) -> None:
    program, *words = shlex.split(command)
    CHECKS[program](*words)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(CHECKOUT)) for page in PAGES])
def test_a_printed_link_leads_to_a_file_and_to_a_part_of_it(page: Path) -> None:
    lost = []
    for address in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        file, _, part = address.partition("#")
        if address.startswith(("https:", "http:")):
            continue
        there = page.parent / file if file else page
        if not there.exists() or (there.suffix == ".html" and part and f'id="{part}"' not in there.read_text()):
            lost.append(address)
    assert lost == []


def yaml_free(notebook: str) -> str:
    """A notebook's text with the quotes and breaks of JSON taken away, line by line."""
    return "\n".join(line.strip().strip('",').removesuffix("\\n") for line in notebook.splitlines())
