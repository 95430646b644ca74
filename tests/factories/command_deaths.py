"""A small project whose report trains and measures, and the death of any process that works on it."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import nbformat
import yaml
from project_factory import CHECKOUT, STUDY, TINY, listen, write_notebook
from training_cases import RUN_CONDITIONS

from transnormer_lib.ledger.judging import last_run
from transnormer_lib.project import Project
from transnormer_lib.training.stored_run import RunDamaged, read_run

# The command lines of the processes that a report starts, and that of a sweep's run, beside which the command dies.
PROCESSES = {
    "snakemake": "transnormer_lib.report.workflow",
    "share": "transnormer_lib.report.share",
    "guard": "transnormer_lib.report.guard",
    "kernel": "ipykernel_launcher",
    "transnormer that trains": "transnormer_lib.training",
}
# What the ledger says of a record or a notebook that is not as a run left it.
UNREADABLE = re.compile("its (record|executed notebook) (cannot|is)")
_CELLS = (
    "from transnormer_lib.studies.attention_dilution import runs as study\n"
    "from transnormer_lib.studies.common.notebook import begin\n"
    "from transnormer_lib.studies.common.parameters import read\n"
    "from transnormer_lib.training.store import RunStore\n"
    f"claims = begin({STUDY!r}, globals())",
    "losses = [RunStore().get(run).validation for run in study.runs(read(study.Parameters, globals()))]",
    "import time\ntime.sleep(1.0)\nprint(losses)",
    "claims.property('appendix-f-as-printed-ends', value=[loss['nats_per_token'] for loss in losses], expected=[])",
)


def make_project(root: Path) -> Project:
    """A project of one notebook, which trains four small runs and measures a claim on them."""
    (root / "params").mkdir(parents=True)
    shutil.copytree(CHECKOUT / "params" / "quick", root / "params" / "quick")
    shutil.copy(CHECKOUT / "Snakefile", root)
    real = nbformat.read(CHECKOUT / "notebooks" / f"{STUDY}.ipynb", as_version=4)
    (parameters,) = (cell.source for cell in real.cells if "parameters" in cell.metadata.get("tags", []))
    write_notebook(root / "notebooks" / f"{STUDY}.ipynb", _CELLS, parameters)
    project = Project(root)
    project.values_path("quick", STUDY).write_text(yaml.safe_dump(TINY | {"steps": 40}))
    return project


@dataclass
class Command:
    """A command of the project in a process of its own; all that it starts can be told by a mark."""

    project: Project
    arguments: tuple[str, ...] = ("report", "--cores", "2")
    prefix: tuple[str, ...] = ()  # a command that runs the command

    def __post_init__(self) -> None:
        self.mark = f"TRANSNORMER_TEST_MARK={uuid4().hex}"
        self.process: Any = None

    def begin(self, **environment: str) -> None:
        command = [
            *self.prefix,
            sys.executable,
            "-m",
            "transnormer_lib.cli",
            *self.arguments,
            "--root",
            str(self.project.root),
        ]
        name, _, value = self.mark.partition("=")
        own = {name: value, "TRANSNORMER_RUNS": str(self.project.root / "runs"), "TRANSNORMER_CHECKPOINT_SECONDS": "0"}
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | own | environment, preexec_fn=listen, **pipes)

    def end(self, seconds: float = 240.0) -> tuple[int, str]:
        """Wait for the command; returns exit code and standard error."""
        _, error = self.process.communicate(timeout=seconds)
        return self.process.returncode, error

    def run(self, **environment: str) -> tuple[int, str]:
        self.begin(**environment)
        return self.end()

    def pids(self, command_line: str = "") -> list[int]:
        """The processes of this command whose command lines hold a text."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if mine and command_line in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found.append(int(folder.name))
            except OSError:  # ended meanwhile
                continue
        return found

    def left_behind(self, seconds: float = 45.0) -> list[int]:
        """The processes that do not end within so many seconds, which are killed now."""
        deadline = time.monotonic() + seconds
        while (found := self.pids()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return found


def strike(command: Command, victim: str, name: str, draw: random.Random, seconds: float) -> bool:
    """Send a signal to one of the command's processes at a random point; False if there was none."""
    number = signal.Signals[name]
    if victim == "transnormer":
        time.sleep(draw.uniform(0.05, 0.95) * seconds)
        command.process.send_signal(number)
        return command.process.poll() is None
    deadline = time.monotonic() + 240  # other tests may keep the machine busy
    while not (found := command.pids(PROCESSES[victim])) and time.monotonic() < deadline:
        if command.process.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(draw.uniform(0.0, 0.3) * seconds)
    if victim == "transnormer that trains":
        command.process.send_signal(number)
        return command.process.poll() is None
    try:
        os.kill(draw.choice(found), number)
    except ProcessLookupError:  # ended meanwhile
        return False
    return True


@dataclass(frozen=True)
class Undisturbed:
    """What a command of a project does where nothing disturbs it, for :meth:`survives`."""

    arguments: tuple[str, ...]
    seconds: float
    results: dict[str, Any]

    @classmethod
    def of(cls, root: Path, arguments: tuple[str, ...] = Command.arguments) -> "Undisturbed":
        project = make_project(root)
        began = time.monotonic()
        assert Command(project, arguments).run() == (0, "")
        return cls(arguments, time.monotonic() - began, results(project))

    def survives(self, victim: str, name: str, count: int, folder: Path) -> Iterator[None]:
        """Strike so many commands, and run each again; yields after each that ended as if nothing had been.

        A strike that comes too late, since the machine is less busy than it was, is tried again, earlier.
        """
        draw, seconds, struck, missed = random.Random(f"{victim} {name}"), self.seconds, 0, 0
        while struck < count:
            project = make_project(folder / str(struck + missed))
            command = Command(project, self.arguments)
            command.begin()
            hit = strike(command, victim, name, draw, seconds)
            _, error = command.end()
            assert command.left_behind() == []
            assert "Traceback" not in error, error
            assert half_written(project) == []
            if hit and victim == "transnormer that trains":
                assert len(results(project)) < len(self.results), "its runs went on without it"
            again = Command(project, self.arguments)
            assert again.run() == (0, "")
            assert results(project) == self.results
            assert again.left_behind() == []
            if hit:
                struck += 1
                yield
            else:
                missed, seconds = missed + 1, seconds / 2
                assert missed < 5, "no strike found its process"


def results(project: Project) -> dict[str, Any]:
    """What two reports must have in common to the last bit: claims.json if it was made, records of runs, weights."""
    claims = project.report_dir("quick") / "claims.json"
    found: dict[str, Any] = {"claims": claims.read_bytes() if claims.exists() else None}
    for folder in sorted((project.root / "runs").glob("[!.]*/")):
        record = read_run(folder).record
        found[folder.name] = {name: value for name, value in record.items() if name not in RUN_CONDITIONS}
        found[f"{folder.name} weights"] = (folder / "model.safetensors").read_bytes()
    return found


def half_written(project: Project) -> list[str]:
    """The files with their final names that are not whole."""
    out, found = project.report_dir("quick"), []
    for path in (*out.glob("*.json"), *out.glob("records/*.json"), *out.glob("*.ipynb")):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found.append(path.name)
    for path in out.glob("*.html"):
        if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
            found.append(path.name)
    for folder in (project.root / "runs").glob("[!.]*/"):
        try:
            read_run(folder)
        except RunDamaged as damage:
            found.append(str(damage))
    if UNREADABLE.match(error := last_run(out, STUDY).error or "") and (out / f"{STUDY}.ipynb").exists():
        found.append(error)
    return found
