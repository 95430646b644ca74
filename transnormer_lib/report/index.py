"""The report of one preset: ledger, one page per notebook, and the index.

``build_report`` reads what the last runs left and never runs a notebook. If a notebook failed or its page cannot be
made, the index names it and everything else is built.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.ledger import kept, theses
from transnormer_lib.ledger.claims import Claim, by_id
from transnormer_lib.ledger.judging import (
    Ledger,
    Run,
    counts,
    judge_claims,
    last_run,
    read_json_list,
    write_if_changed,
    write_json_list,
)
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer, Thesis
from transnormer_lib.ledger.verdicts import FAILURES
from transnormer_lib.papers import discrepancies
from transnormer_lib.papers.catalogue import Paper, papers
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import front, origins
from transnormer_lib.report.findings import write_found_page
from transnormer_lib.report.ledger_page import write_ledger_page
from transnormer_lib.report.notebook_page import write_notebook_page
from transnormer_lib.report.notebooks import Notebook, load_notebook
from transnormer_lib.report.pages import (
    PageError,
    claim_rows,
    commit_text,
    content_digest,
    date_text,
    html_page,
    is_current,
    size_text,
)
from transnormer_lib.report.terms_page import write_terms_page

# Shown on the scoreboard even if zero.
_ALWAYS = ("refuted", "not reproduced", "not run")
SHOWN_FAILURES = 5  # of either kind; the others unfold
_IN_PRINT = ("refuted", "misprint", "inconsistent")  # what is wrong in a paper whoever trains what


@dataclass(frozen=True)
class Failed:
    """A notebook that did not finish or whose results cannot be shown, and why, in one line."""

    notebook: str
    line: str


@dataclass(frozen=True)
class Summary:
    """What ``build_report`` made: the page to open, the answers, the verdicts' counts, the notebooks that failed."""

    index_path: Path
    answers: list[Answer]
    counts: dict[str, int]
    failed: list[Failed]


def build_report(
    root: Path,
    preset: str,
    claims: Sequence[Claim] | None = None,
    asked: Sequence[tuple[str, Thesis]] | None = None,
    unfinished: bool = False,
) -> Summary:
    """Judge ``claims`` on ``reports/<preset>/``, answer the theses, and write both as JSON, the pages and the index.

    ``asked`` are theses with their papers. The default is all claims and theses. While a report is ``unfinished`` it
    says so, and notebooks that have not run have no page yet. Files that would not change are not written.
    """
    project = Project(root)
    report_dir = project.report_dir(preset)
    scale, description = project.preset(preset).scale, project.preset(preset).description
    if claims is None:
        claims, asked = theses.everything()
    notebooks, failed = _load_notebooks(project)
    above: list[Kept] = []
    for notebook in notebooks:
        try:
            above += kept.larger(scale, notebook.name, project)
        except ValueError as fault:
            failed.append(Failed(notebook.name, str(fault)))
    ledger = judge_claims(report_dir, scale, claims, [notebook.name for notebook in notebooks], above)
    write_json_list(report_dir / "claims.json", ledger.claims)
    known, entries = by_id(claims), {entry["id"]: entry for entry in ledger.claims}
    answers = [theses.answer(paper, thesis, known, entries) for paper, thesis in asked or ()]
    write_json_list(report_dir / "theses.json", theses.as_json(answers))
    runs = {notebook.name: last_run(report_dir, notebook.name) for notebook in notebooks}
    failed += [Failed(run.notebook, str(run.error)) for run in runs.values() if run.status not in ("ok", "not run")]
    failed += [Failed(name, line) for name, line in ledger.problems.items()]
    failed = list(dict.fromkeys(failed))  # a kept file that is refused is met by its notebook too
    for position, notebook in enumerate(notebooks):
        around = (notebooks[position - 1] if position else None, next(iter(notebooks[position + 1 :]), None))
        own = [claim for claim in claims if claim.notebook == notebook.name]
        if unfinished and runs[notebook.name].status == "not run":
            continue
        try:
            serves = front.served(answers, notebook.name, known)
            mine = [one for one in above if one.notebook == notebook.name]
            write_notebook_page(report_dir, notebook, runs[notebook.name], own, ledger, around, serves, mine)
        except PageError as fault:
            failed.append(Failed(notebook.name, str(fault)))
    write_ledger_page(report_dir, claims, ledger, answers, above)
    write_found_page(report_dir, answers, above)
    write_terms_page(report_dir)
    told = [] if unfinished else origins.told(project, preset, [notebook.name for notebook in notebooks])
    _write_index(
        report_dir, scale, description, notebooks, runs, claims, ledger, failed, above, answers, unfinished, told
    )
    build_overview(root, None)
    return Summary(report_dir / "index.html", answers, counts(ledger.claims), failed)


def build_overview(root: Path, mistake: str | None) -> Path:
    """Write ``reports/index.html``, which links to every preset's report, and to ``reports/api`` where that is.

    ``mistake`` is the message that refused the last command; the page shows it first.
    """
    project = Project(root)
    presets = []
    for name in project.presets:
        claims_path = project.report_dir(name) / "claims.json"
        try:
            description = project.preset(name).description
        except UserMistake as fault:
            description = str(fault)
        judged, status = None, "not made yet"
        if claims_path.exists() and (project.report_dir(name) / "index.html").exists():
            try:
                judged, status = counts(read_json_list(claims_path)), ""
            except UserMistake as fault:
                status = str(fault)
        presets.append(
            {
                "name": name,
                "description": description,
                "href": f"{name}/index.html" if judged else None,
                "status": status,
                "counts": judged,
            }
        )
    path = project.root / "reports" / "index.html"
    page = html_page(
        "overview.html.j2",
        marks=False,  # the glossary is beside a preset's pages
        digest=None,
        page_title="TransNormer companion",
        presets=presets,
        mistake=mistake,
        reference=(path.parent / "api" / "index.html").exists(),
    )
    write_if_changed(path, page)
    return path


def _load_notebooks(project: Project) -> tuple[list[Notebook], list[Failed]]:
    notebooks, failed = [], []
    for name in project.notebooks:
        try:
            notebooks.append(load_notebook(project, name))
        except PageError as fault:
            failed.append(Failed(name, str(fault)))
    return notebooks, failed


def _write_index(
    report_dir: Path,
    scale: str,
    description: str,
    notebooks: Sequence[Notebook],
    runs: Mapping[str, Run],
    claims: Sequence[Claim],
    ledger: Ledger,
    failed: Sequence[Failed],
    above: Sequence[Kept],
    answers: Sequence[Answer],
    unfinished: bool,
    told: Sequence[str],
) -> None:
    path = report_dir / "index.html"
    have_page = {notebook.name for notebook in notebooks if (report_dir / f"{notebook.name}.html").exists()}
    records = [runs[notebook.name].record for notebook in notebooks if runs[notebook.name].record]
    judged = [(claim.model_dump(), vars(ledger.best[claim.id])) for claim in claims]
    texts = [(notebook.name, notebook.title, notebook.abstract) for notebook in notebooks]
    statuses = [(run.notebook, run.status, run.error) for run in runs.values()]
    shows = (report_dir.name, scale, description, judged, texts, statuses, records, failed, sorted(have_page))
    digest = content_digest(
        *shows, unfinished, told, [vars(found) for found in above], [vars(found) for found in answers]
    )
    if is_current(path, digest):
        return
    rows = claim_rows(claims, ledger, ledger.best, here="index", anchored=set())
    found = counts(rows)
    deciding = {name for one in answers if not one.beyond for name in one.thesis.claims}
    own = {claim.id for claim in claims if claim.beyond} - deciding
    in_print = [row for verdict in _IN_PRINT for row in rows if row["verdict"] == verdict]
    measured = _by_weight([row for row in rows if row["verdict"] in set(FAILURES).difference(_IN_PRINT)], answers)
    sections = front.sections(answers, above, by_id(claims))
    page = html_page(
        "index.html.j2",
        "reveal.js",
        digest=digest,
        page_title=f"TransNormer companion: {report_dir.name}",
        preset=report_dir.name,
        scale=scale,
        description=description.rstrip("."),
        unfinished=unfinished,
        told=told,
        broken=[_broken(item, have_page) for item in failed],
        fast=next((one.thesis.id for one in answers if one.thesis.id == papers()[one.paper].speed), None),
        sections=sections,
        causes=[row for section in sections for row in section["rows"] if row["causes"]],
        ours={row["id"]: row["ours"] for row in rows},
        counts=found,
        always=_ALWAYS,
        decided=sum(found.values()) - found["not run"] - found["undecided"],
        run_facts=run_facts(records, len(notebooks)),
        failed=[
            ("In print", [row for row in in_print if row["id"] not in own]),
            ("In what was measured", [row for row in measured if row["id"] not in own]),
        ],
        own_failed=[row for row in (*in_print, *measured) if row["id"] in own],
        shown_failures=SHOWN_FAILURES,
        total=len(rows),
        registers=[register for paper in papers().values() if (register := _register(paper, have_page))],
        notebooks=[_notebook_item(n, runs[n.name], claims, ledger, have_page, failed, above) for n in notebooks],
        command=f"make report PRESET={report_dir.name}",
        provenance=_shared_provenance(records),
        files=[f"{n.name}.ipynb" for n in notebooks if (report_dir / f"{n.name}.ipynb").exists()],
    )
    sums.write(path, page)


def _by_weight(rows: Sequence[dict[str, Any]], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Failed claims by what they mean for the paper: those that decide a thesis first, then by verdict."""
    deciding = [name for found in answers for name in found.thesis.claims]
    last = len(deciding)
    return sorted(rows, key=lambda row: deciding.index(row["id"]) if row["id"] in deciding else last)


def _register(paper: Paper, have_page: set[str]) -> dict[str, Any] | None:
    """How many discrepancies of a paper are known, how many are a flag here, and the page that lists them."""
    entries = discrepancies.load(paper.id)
    page = next((name for name in have_page if name.endswith(f"_{paper.listed_by}")), None)
    if not entries:
        return None
    flags = sum(bool(entry.flag) for entry in entries)
    return {"title": paper.title, "entries": len(entries), "flags": flags, "href": f"{page}.html" if page else None}


def _broken(item: Failed, have_page: set[str]) -> dict[str, str]:
    return {
        "name": item.notebook,
        "line": item.line,
        "href": f"{item.notebook}.html" if item.notebook in have_page else "#notebooks",
    }


def _notebook_item(
    notebook: Notebook,
    run: Run,
    claims: Sequence[Claim],
    ledger: Ledger,
    have_page: set[str],
    failed: Sequence[Failed],
    above: Sequence[Kept],
) -> dict[str, Any]:
    lines = [item.line for item in failed if item.notebook == notebook.name]
    seconds = (run.record.get("provenance") or {}).get("wall_seconds")
    own = [{"verdict": ledger.best[claim.id].verdict} for claim in claims if claim.notebook == notebook.name]
    ran = f"ran in {seconds:.0f} s" if run.status == "ok" and seconds is not None else run.status
    return {
        "name": notebook.name,
        "title": notebook.title,
        "abstract": notebook.abstract,
        "href": f"{notebook.name}.html" if notebook.name in have_page else None,
        "status": ran if run.status != "ok" or not lines else "ran, with a problem",
        "bad": bool(lines),
        "line": "; ".join(lines) or None,
        "counts": counts(own) if own else None,
        "kept": [found.sentence() for found in above if found.notebook == notebook.name],
    }


def run_facts(records: Sequence[Mapping[str, Any]], notebooks: int) -> list[tuple[str, str]]:
    """What the front page says of the records of ``notebooks`` notebooks: how many ran, how long, where, when."""
    provenances: list[Mapping[str, Any]] = [record.get("provenance") or {} for record in records]
    seconds = [p["wall_seconds"] for p in provenances if isinstance(p.get("wall_seconds"), int | float)]
    memory = [p["peak_memory_bytes"] for p in provenances if isinstance(p.get("peak_memory_bytes"), int | float)]
    ran = sum(record.get("status") == "ok" for record in records)
    facts = [("notebooks", f"{ran} of {notebooks} ran")]
    if seconds:
        if span := _span(provenances):
            facts.append(("wall time", f"{_minutes(span)}, from the first notebook's start to the last one's end"))
        facts.append(("work", f"{_minutes(sum(seconds))} of notebooks, {_training_text(provenances)}"))
    if devices := dict.fromkeys(str(p["device"]) for p in provenances if p.get("device")):
        facts.append(("device", "; ".join(devices)))
    if memory:
        facts.append(("largest memory", str(size_text(max(memory)))))
    started = sorted(str(p["started"]) for p in provenances if p.get("started"))
    if started:
        facts.append(("last run", str(date_text(started[-1]))))
    return facts


def _span(provenances: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds from the first start to the last end; None where notebooks did not run in one go.

    In one go there was always something at work, and up to as many jobs at once as there are processors.
    """
    known = [p for p in provenances if isinstance(p.get("wall_seconds"), int | float)]
    try:
        starts = [datetime.fromisoformat(str(p.get("started"))).timestamp() for p in known]
    except ValueError:
        return None
    ends = [start + p["wall_seconds"] for start, p in zip(starts, known, strict=True)]
    trained = sum(seconds for p in known for seconds in p.get("training", {}).values())
    span = max(ends) - min(starts) if known else 0.0
    return span if 0.0 < span <= sum(p["wall_seconds"] for p in known) + trained else None


def _training_text(provenances: Sequence[Mapping[str, Any]]) -> str:
    """How long the runs that notebooks read were trained; a run that several read counts once."""
    runs = {name: seconds for p in provenances for name, seconds in p.get("training", {}).items()}
    if not runs:
        return "training not counted"
    return f"beside {_minutes(sum(runs.values()))} in which their runs were trained"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes"


def _shared_provenance(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What the runs were made with; all values where they differ."""
    provenances: list[Mapping[str, Any]] = [record.get("provenance") or {} for record in records]
    values: dict[str, list[Any]] = {
        "commit": [commit_text(p) for p in provenances],
        "python": [p.get("python") or (p.get("versions") or {}).get("python") for p in provenances],
        "torch": [(p.get("versions") or {}).get("torch") for p in provenances],
        "runs": [f"trained with {what}" for p in provenances for what in p.get("runs", {})],
    }
    distinct = {name: dict.fromkeys(str(v) for v in found if v) for name, found in values.items()}
    return [(name, "; ".join(found)) for name, found in distinct.items() if found]
