"""Train the runs of a preset as jobs of Snakemake, one per run: on this machine's cores, or on a cluster.

Each job is ``python -m transnormer_lib.training`` on its own YAML, under ``torchrun`` if a run takes several processes.
It may be ended at any time and continues from its checkpoint when the sweep is started again. Runs that start from
another run wait for its job. The run store decides whether anything is trained.
"""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from transnormer_lib.files import write_text
from transnormer_lib.progress import GOES_ON, left_text, say
from transnormer_lib.project import INTERRUPTED, Project, UserMistake
from transnormer_lib.report.pipeline import snakemake
from transnormer_lib.report.records import write_json
from transnormer_lib.report.train import MissingData, runs_of

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig

_STAMPS = "stamps"  # a folder with a file for each run that was made


def sweep(
    project: Project,
    preset: str,
    notebooks: Sequence[str],
    pattern: str | None = None,
    cores: int = 1,
    processes: int = 1,
    extra: Sequence[str] = (),
) -> int:
    """Train the runs of these notebooks that the store lacks and whose names match ``pattern``.

    ``processes`` share each run; ``extra`` goes to Snakemake. Returns 0 if every run is in the store afterwards,
    diverged ones included; 1 if one could not be trained, the others being trained all the same; 130 after an
    interruption. Raises :class:`UserMistake` for wrong parameters, a ``pattern`` that matches no run, or another sweep
    of the preset that is running, and OSError for a store that cannot be written.
    """
    from filelock import FileLock, Timeout

    from transnormer_lib.training.store import default_root

    folder = project.report_dir(preset) / ".sweep"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_name("sweep.log")
    try:
        with FileLock(folder.with_name(".sweep.lock"), timeout=0):
            jobs, missing = _jobs(project, preset, notebooks, pattern)
            missing.tell()
            say(f"sweep: {len(jobs)} runs to train, into {default_root().resolve()}")
            if not jobs:
                return 1 if missing.reasons else 0
            _check_writable(default_root().resolve())
            say(f"sweep: what the runs print goes to {log.relative_to(project.root)}")
            plan_file = _write(project, preset, jobs, processes)
            look = _watch(folder / _STAMPS, len(jobs))
            code = snakemake(project, plan_file, "sweep", cores, extra, log, look)
            look()
    except Timeout:
        raise UserMistake(f"preset={preset!r}: another sweep of it is running") from None
    except KeyboardInterrupt:
        print(f"sweep: {GOES_ON}", file=sys.stderr)
        return INTERRUPTED
    if code:
        print(f"sweep: a run could not be trained; see {log.relative_to(project.root)}", file=sys.stderr)
    return 1 if code or missing.reasons else 0


def _check_writable(store: Path) -> None:
    """Raise the OSError that every run would end with, naming the folder."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=store):
            pass
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(store)) from None


def _watch(stamps: Path, total: int) -> Callable[[], None]:
    """Says, whenever it is called and more runs have their stamp than before, how many and how long the rest takes."""
    said, begun = 0, time.perf_counter()

    def look() -> None:
        nonlocal said
        if (made := len(list(stamps.glob("*.run")))) > said:
            said = made
            left = f", {left_text(time.perf_counter() - begun, made, total)}" if made < total else ""
            say(f"sweep: {made} of {total} runs made{left}")

    return look


def _jobs(
    project: Project, preset: str, notebooks: Sequence[str], pattern: str | None
) -> "tuple[dict[str, tuple[RunConfig, list[str]]], MissingData]":
    """The runs to train, by their names in the store, each with the jobs it waits for; and the runs without data."""
    from transnormer_lib.training.store import RunStore

    store, missing, matched = RunStore(), MissingData("sweep"), False
    jobs: dict[str, tuple[RunConfig, list[str]]] = {}

    def add(config: "RunConfig") -> str | None:
        """The name of the run's job; None if the store has the run or its data are missing."""
        identity = missing.identity(config)
        if identity is None:
            return None
        if identity not in jobs:
            if store.find(config) is not None:
                return None
            start = None if config.start_from is None else add(config.start_from)
            jobs[identity] = (config, [] if start is None else [start])
        return identity

    for notebook in notebooks:
        for config in runs_of(project, preset, notebook):
            if pattern is None or fnmatch(config.name, pattern):
                matched = True
                add(config)
    if pattern is not None and not matched:
        raise UserMistake(f"run={pattern!r}: no run of preset {preset!r} has such a name")
    return jobs, missing


def _write(project: Project, preset: str, jobs: "dict[str, tuple[RunConfig, list[str]]]", processes: int) -> Any:
    """Write a YAML per run and the workflow's plan; returns the plan's path."""
    import yaml

    from transnormer_lib.training.store import default_root

    folder, chosen = project.report_dir(preset) / ".sweep", project.preset(preset)
    shutil.rmtree(folder, ignore_errors=True)
    runs = {}
    for identity, (config, after) in jobs.items():
        file = folder / f"{identity}.yaml"
        write_text(file, yaml.safe_dump(json.loads(json.dumps(asdict(config)))))  # through JSON: no tuples
        runs[identity] = {"file": str(file), "after": after}
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = chosen.environment | {"TQDM_DISABLE": "1"}
    plan = {
        "preset": preset,
        "gpu": chosen.device == "gpu",
        "stamps": str(folder.relative_to(project.root) / _STAMPS),
        "store": str(default_root().resolve()),
        "launcher": shlex.join(launcher),
        "processes": processes,
        "environment": " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items()),
        "runs": runs,
    }
    write_json(folder / "plan.json", plan)
    return folder / "plan.json"
