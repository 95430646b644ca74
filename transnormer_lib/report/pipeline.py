"""From a preset to executed notebooks: find the stale ones and run them with Snakemake.

A notebook is stale unless its record says that it ran without an error under its present digest. Snakemake gets the
stale notebooks and the training runs that the store lacks, and runs them in order and in parallel, here or through an
executor plugin. The run store decides whether anything is trained.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

from transnormer_lib.exhausted import DiskFull, is_full, writing
from transnormer_lib.ledger.judging import last_run
from transnormer_lib.progress import left_text, say
from transnormer_lib.project import INTERRUPTED, Project, UserMistake
from transnormer_lib.report.records import Outcome, read_record, record_path, write_json, write_record
from transnormer_lib.report.signals import undisturbed

_LOOK_SECONDS = 2.0  # how often a running report looks for notebooks that have ended


@dataclass(frozen=True)
class Job:
    """One notebook of the plan."""

    notebook: str
    digest: str | None  # None: its parameters are wrong; the guard will record that
    mistake: str | None  # one line that says what is wrong


def plan(project: Project, preset: str, notebooks: Sequence[str]) -> list[Job]:
    """The notebooks with their digests, or with the mistake in their parameters."""
    from transnormer_lib.report.parameters import resolve
    from transnormer_lib.report.staleness import digest

    jobs = []
    for notebook in notebooks:
        try:
            values = resolve(project, preset, notebook)
            jobs.append(Job(notebook, digest(project, notebook, values), None))
        except UserMistake as mistake:
            jobs.append(Job(notebook, None, str(mistake)))
    return jobs


def is_current(project: Project, preset: str, job: Job) -> bool:
    """Whether the job's notebook was executed without an error under its present digest, and is as its run left it."""
    run = last_run(project.report_dir(preset), job.notebook)
    return run.status == "ok" and run.record.get("digest") == job.digest


@dataclass(frozen=True)
class Share:
    """Training runs that one job makes, one after the other."""

    runs: list[tuple[str, int]]  # notebook, and the run's number in its study
    after: list[str]  # the shares that train what these runs start from


@dataclass
class _Lacking:
    """A run that the store lacks."""

    places: list[tuple[str, int]]  # the notebooks that need it, each with the run's number in its study
    start: str | None  # the store's name of the run that it starts from


def shares(
    project: Project, preset_name: str, jobs: Sequence[Job], cores: int = 1
) -> tuple[dict[str, Share], dict[str, list[str]]]:
    """The training runs that the store lacks, divided into shares, and the shares that each notebook waits for.

    There is work for all ``cores``, even if one share could hold all runs. A run is in one share even if several
    notebooks need it, and its share comes after that of the run it starts from, so that no job occupies a core while it
    waits for another.
    """
    wanted = _missing(project, preset_name, jobs)
    cut = _cut(wanted, project.preset(preset_name).runs_per_job, cores)
    share_of = {place: name for name, share in cut.items() for place in share.runs}
    waits: dict[str, set[str]] = {job.notebook: set() for job in jobs}
    for run in wanted.values():
        for notebook, _ in run.places:
            waits[notebook].add(share_of[run.places[0]])
    return cut, {notebook: sorted(numbers, key=int) for notebook, numbers in waits.items()}


def _cut(wanted: Mapping[str, _Lacking], runs_per_job: int, cores: int) -> dict[str, Share]:
    after: dict[str, str] = {}
    maker = {identity: identity for identity in wanted}  # a start that no notebook lists: the first run that needs it
    for identity, run in wanted.items():
        if run.start is not None:
            first = maker.setdefault(run.start, identity)
            if first != identity:
                after[identity] = first
    levels: dict[int, list[str]] = {}
    for identity in wanted:
        levels.setdefault(_level(identity, after), []).append(identity)
    found: dict[str, Share] = {}
    share_of: dict[str, str] = {}
    for level in sorted(levels):
        count = max(ceil(len(levels[level]) / runs_per_job), min(cores, len(levels[level])))
        for mine in (levels[level][number::count] for number in range(count)):
            name = str(len(found))
            waits = {share_of[after[run]] for run in mine if run in after}
            found[name] = Share([wanted[run].places[0] for run in mine], sorted(waits, key=int))
            share_of |= dict.fromkeys(mine, name)
    return found


def _level(identity: str, after: Mapping[str, str]) -> int:
    """The number of runs before this one in its chain of starts."""
    return 1 + _level(after[identity], after) if identity in after else 0


def _missing(project: Project, preset_name: str, jobs: Sequence[Job]) -> dict[str, _Lacking]:
    """The runs that the store lacks, by their names there."""
    from transnormer_lib import studies
    from transnormer_lib.report.train import runs_of
    from transnormer_lib.training.identity import run_id
    from transnormer_lib.training.store import RunStore

    found: dict[str, _Lacking] = {}
    for job in jobs:
        if job.mistake or not studies.has_study(job.notebook):
            continue
        try:
            store = RunStore()
            configs = runs_of(project, preset_name, job.notebook)
        except Exception:  # a value out of range: the notebook meets the same error and reports it
            continue
        for number, config in enumerate(configs):
            with suppress(Exception):  # missing data: the notebook reports them; the other runs are trained
                if store.find(config) is None:
                    start = config.start_from
                    lacks_start = start is not None and store.find(start) is None
                    lacking = _Lacking([], run_id(start) if start is not None and lacks_start else None)
                    found.setdefault(run_id(config), lacking).places.append((job.notebook, number))
    return found


def run(
    project: Project,
    preset: str,
    stale: Sequence[Job],
    cores: int,
    extra: Sequence[str] = (),
    publish: Callable[[], object] = lambda: None,
) -> int:
    """Run the stale notebooks; returns Snakemake's exit code, or 130 after an interruption.

    ``publish`` is called whenever some of them have ended while others still run. Afterwards each of them has a new
    record, even if its job was lost.
    """
    from transnormer_lib.provenance.environment import provenance

    out = project.report_dir(preset)
    shutil.rmtree(out / ".stamps", ignore_errors=True)
    before = {job.notebook: read_record(project, preset, job.notebook) for job in stale}
    started = time.time()
    try:
        code = _snakemake(project, preset, stale, cores, extra, publish)
    except KeyboardInterrupt:
        code = INTERRUPTED
    for job in stale:
        if read_record(project, preset, job.notebook) == before[job.notebook]:
            # The job ended before the guard could write a record.
            lost = Outcome(preset, job.notebook, started, provenance(), digest=job.digest)
            lost.error = f"its job was lost; see {out.relative_to(project.root)}/snakemake.log"
            if is_full(out):
                lost.error = str(DiskFull(out))
            if code == INTERRUPTED:
                lost.status, lost.error = "interrupted", "interrupted before it started"
            write_record(project, lost)
    return code


def _snakemake(
    project: Project,
    preset: str,
    stale: Sequence[Job],
    cores: int,
    extra: Sequence[str],
    publish: Callable[[], object],
) -> int:
    out = project.report_dir(preset)
    cut, waits = shares(project, preset, stale, cores)
    content = {
        "root": str(project.root),
        "preset": preset,
        "python": sys.executable,
        "gpu": project.preset(preset).device == "gpu",
        "jobs": {job.notebook: {"digest": job.digest, "shares": waits[job.notebook]} for job in stale},
        "shares": {name: asdict(share) for name, share in cut.items()},
    }
    write_json(out / ".plan.json", content)
    records = [record_path(project, preset, job.notebook) for job in stale]
    seen = _stamps(records)

    first, begun = seen, time.perf_counter()

    def meanwhile() -> None:
        nonlocal seen
        if (now := _stamps(records)) != seen:
            seen = now
            ended = sum(before != after for before, after in zip(first, now, strict=True))
            if ended < len(records):
                left = left_text(time.perf_counter() - begun, ended, len(records))
                say(f"report: {ended} of {len(records)} notebooks ended, {left}")
            publish()

    return snakemake(project, out / ".plan.json", "all", cores, extra, out / "snakemake.log", meanwhile)


# All that Snakemake shares by default but its cache of sources, which would be in the user's home.
_SHARED = (
    *("persistence", "input-output", "sources", "storage-local-copies"),
    *("software-deployment", "software-deployment-cache"),
)


def _stamps(files: Sequence[Path]) -> list[int]:
    return [file.stat().st_mtime_ns if file.exists() else 0 for file in files]


def snakemake(
    project: Project,
    plan_file: Path,
    target: str,
    cores: int,
    extra: Sequence[str],
    log_file: Path,
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Make a target of the Snakefile; returns the exit code. An interruption ends its jobs and is raised again.

    ``meanwhile`` is called every few seconds until then.
    """
    command = [sys.executable, "-m", "transnormer_lib.report.workflow", str(os.getpid()), f"{log_file}.lock"]
    command += [target, "--snakefile", str(project.root / "Snakefile"), "--directory", str(project.root)]
    command += ["--configfile", str(plan_file), "--cores", str(cores), "--keep-going"]
    command += ["--rerun-triggers", "params", "--rerun-incomplete", "--nolock"]
    if "--executor" not in extra:
        command += ["--shared-fs-usage", *_SHARED, "--resources", "gpu=1"]  # jobs on one machine take turns
    command += ["--quiet", "all", *extra]
    with writing(log_file.parent), log_file.open("w", encoding="utf-8") as log:
        # In its own session, so that only this process gets Ctrl-C from the terminal and passes it on once.
        process = subprocess.Popen(command, stderr=log, start_new_session=True)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=_LOOK_SECONDS)
                    _stop(process)  # its jobs, if it was killed
                    return code
                with suppress(Exception):  # all is published again at the end, which says what is wrong
                    meanwhile()
        except KeyboardInterrupt:
            print("interrupted; ending the running jobs", flush=True)
            with undisturbed():
                _stop(process)
            raise


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End Snakemake and its jobs, and return when all have ended; each job records that it was interrupted.

    At SIGTERM Snakemake starts no further job and waits for the running ones, which end themselves. At SIGINT it would
    count them as failed and go on, but only SIGINT reaches jobs on a cluster, so it follows.
    """
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGINT, 10), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + patience
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()  # reaps it; otherwise its group would not end
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            continue
        return
