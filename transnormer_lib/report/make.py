"""``make report``: run the stale notebooks, then build ledger, pages and index even if some of them failed."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from transnormer_lib.ledger.judging import last_run, read_notebook
from transnormer_lib.progress import GOES_ON, say
from transnormer_lib.project import INTERRUPTED, Project, UserMistake
from transnormer_lib.report import front
from transnormer_lib.report.pipeline import is_current, plan, run
from transnormer_lib.report.records import write_json
from transnormer_lib.report.signals import undisturbed
from transnormer_lib.report.staleness import refresh_markdown


def make_report(project: Project, preset: str, only: list[str] | None, cores: int, snakemake: Sequence[str]) -> int:
    """Returns the exit code: 0 only if every selected notebook ran.

    A mistake in a notebook's parameters stops only that notebook. For an unknown preset or notebook,
    ``reports/index.html`` shows the mistake and :class:`UserMistake` is raised.
    """
    from transnormer_lib.report.index import build_overview

    try:
        project.preset(preset)
        selected = project.select(only)
    except UserMistake as mistake:
        build_overview(project.root, str(mistake))
        raise
    with _alone(project, preset):
        return _make(project, preset, selected, cores, snakemake)


@contextmanager
def _alone(project: Project, preset: str) -> Iterator[None]:
    """Allow one report per preset at a time. The lock of a killed process is released."""
    from filelock import FileLock, Timeout

    out = project.report_dir(preset)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            yield
    except Timeout:
        raise UserMistake(f"preset={preset!r}: another report of it is running") from None


def _make(project: Project, preset: str, selected: Sequence[str], cores: int, snakemake: Sequence[str]) -> int:
    from transnormer_lib.report.index import build_overview, build_report

    clock = time.perf_counter()
    say((project.report_dir(preset) / "index.html").resolve().as_uri())
    jobs = plan(project, preset, selected)
    stale = [job for job in jobs if not is_current(project, preset, job)]
    for job in stale:
        if (run_before := last_run(project.report_dir(preset), job.notebook)).status == "failed":
            say(f"report: {job.notebook} runs again: {run_before.error}")
    if stale:
        say(f"report: {len(stale)} of {len(jobs)} notebooks to run: {', '.join(job.notebook for job in stale)}")
    else:
        say(f"report: nothing changed, none of {len(jobs)} notebooks runs again")
    code = 0
    if stale:
        publish = partial(build_report, project.root, preset, unfinished=True)
        publish()
        code = run(project, preset, stale, cores, snakemake, publish)
    with undisturbed() if code == INTERRUPTED else nullcontext():
        _refresh_prose(project, preset)
        summary = build_report(project.root, preset)
        build_overview(project.root, None)
    ran = [job.notebook for job in jobs if is_current(project, preset, job)]
    # A notebook that ran fails here if its measurements cannot be judged or its page cannot be made.
    failed = [fault for fault in summary.failed if fault.notebook in selected]
    for fault in failed:
        print(f"report: {fault.notebook} failed: {fault.line}", file=sys.stderr)
    known = {*ran, *(fault.notebook for fault in failed), *(job.notebook for job in jobs if job.mistake)}
    changed = [job.notebook for job in jobs if job.notebook not in known]
    if changed and code != INTERRUPTED:
        print(f"report: {', '.join(changed)}: the code changed meanwhile; run the same command again", file=sys.stderr)
    say(f"report: {len(ran)} of {len(jobs)} notebooks ran, {time.perf_counter() - clock:.0f} s")
    say("claims: " + ", ".join(f"{count} {verdict}" for verdict, count in summary.counts.items() if count))
    for line in front.lines(summary.answers):
        say(line)
    say(summary.index_path.resolve().as_uri())
    if code == INTERRUPTED:
        print(f"report: {GOES_ON}", file=sys.stderr)
        return INTERRUPTED
    if any(job.mistake for job in jobs):
        return 2
    return 0 if len(ran) == len(jobs) and not failed else 1


def _refresh_prose(project: Project, preset: str) -> None:
    """Copy edited prose into the executed notebooks whose code is unchanged."""
    for notebook in project.notebooks:
        path = project.report_dir(preset) / f"{notebook}.ipynb"
        executed, source = read_notebook(path), read_notebook(project.notebook_path(notebook))
        if executed and source and refresh_markdown(source, executed):
            write_json(path, executed)
