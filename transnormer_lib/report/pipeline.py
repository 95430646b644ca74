"""From a preset to executed notebooks: which are stale, and Snakemake to run those.

One authority each. A notebook is stale unless its record says that it ran without a fault under the digest
that it has now: a record cannot outlive its reason, as a stamp or Snakemake's own bookkeeping can. Snakemake
gets the stale ones, with the training runs they lack, and runs them in order and in parallel, here or through
an executor plugin. The run store decides whether anything is trained at all.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from transnormer_lib.report.project import INTERRUPTED, Project, UserMistake
from transnormer_lib.report.records import Outcome, read_record, write_json, write_record
from transnormer_lib.report.signals import undisturbed


@dataclass(frozen=True)
class Job:
    """One notebook of the plan."""

    notebook: str
    digest: str | None  # None: its parameters are wrong, and it is left to the guard to record that
    mistake: str | None  # one line, where there is one


def plan(project: Project, preset: str, notebooks: Sequence[str]) -> list[Job]:
    """The notebooks with their digests; mistakes in their parameters are found before anything runs."""
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
    """Whether the job's notebook was executed, without a fault, as it stands now."""
    record = read_record(project, preset, job.notebook) or {}
    executed = project.report_dir(preset) / f"{job.notebook}.ipynb"
    return record.get("status") == "ok" and record.get("digest") == job.digest and executed.exists()


def missing_shares(project: Project, preset_name: str, job: Job) -> list[str]:
    """The shares ``NUMBERofCOUNT`` of the notebook's study that hold a run which is not in the store.

    Shares are cut from all runs of the study, so that a share means the same runs while others are being
    trained.
    """
    from transnormer_lib import studies

    if job.mistake or not studies.has_study(job.notebook):
        return []
    from transnormer_lib.report.parameters import resolve

    try:
        from transnormer_lib.training.store import RunStore

        store, runs = RunStore(), studies.runs(job.notebook, resolve(project, preset_name, job.notebook))
        count = ceil(len(runs) / project.preset(preset_name).runs_per_job)
        lacking = [store.find(config) is None for config in runs]
    except Exception:  # data that is not there, a config out of range: the notebook meets the same and reports it
        return []
    return [f"{number}of{count}" for number in range(count) if any(lacking[number::count])]


def run(project: Project, preset: str, stale: Sequence[Job], cores: int, extra: Sequence[str] = ()) -> int:
    """Run the stale notebooks; returns Snakemake's exit code, or 130 after an interruption.

    Afterwards each of them has a new record, whatever happened to its job.
    """
    from transnormer_lib.provenance.environment import provenance

    out = project.report_dir(preset)
    shutil.rmtree(out / ".stamps", ignore_errors=True)
    before = {job.notebook: read_record(project, preset, job.notebook) for job in stale}
    started = time.time()
    try:
        code = _snakemake(project, preset, stale, cores, extra)
    except KeyboardInterrupt:
        code = INTERRUPTED
    for job in stale:
        if read_record(project, preset, job.notebook) == before[job.notebook]:
            # Its job ended before the guard could write one.
            lost = Outcome(preset, job.notebook, started, provenance(), digest=job.digest)
            lost.error = f"its job was lost; see {out.relative_to(project.root)}/snakemake.log"
            if code == INTERRUPTED:
                lost.status, lost.error = "interrupted", "interrupted before it started"
            write_record(project, lost)
    return code


def _snakemake(project: Project, preset: str, stale: Sequence[Job], cores: int, extra: Sequence[str]) -> int:
    out, gpu = project.report_dir(preset), project.preset(preset).device == "gpu"
    jobs = {job.notebook: {"digest": job.digest, "shares": missing_shares(project, preset, job)} for job in stale}
    plan_file = out / ".plan.json"
    write_json(
        plan_file,
        {"root": str(project.root), "preset": preset, "python": sys.executable, "gpu": gpu, "jobs": jobs},
    )
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(project.root / "Snakefile")]
    command += ["--directory", str(project.root), "--configfile", str(plan_file), "--cores", str(cores)]
    command += ["--keep-going", "--rerun-triggers", "params", "--rerun-incomplete", "--nolock"]
    if "--executor" not in extra:
        command += ["--resources", "gpu=1"]  # jobs of one machine take turns
    command += ["--quiet", "all", *extra]
    with (out / "snakemake.log").open("w") as log:
        # A session of its own: the terminal's Ctrl-C comes to this process alone, which passes it on once.
        process = subprocess.Popen(command, stderr=log, start_new_session=True)
        try:
            return process.wait()
        except KeyboardInterrupt:
            print("report: interrupted; ending what runs", flush=True)
            with undisturbed():
                _stop(process)
            raise


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End Snakemake and its jobs, and return when all are gone; each job records that it was interrupted.

    At SIGTERM Snakemake starts nothing more and awaits its jobs, which end themselves; at SIGINT it would
    take them for failed and go on with the next. A job on a cluster hears of the end by the SIGINT that
    follows.
    """
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGINT, 10), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + patience
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()  # reaps it, without which its group would not end
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            continue
        return
