"""The page of one notebook: its text and results, the claims it checks, and how it was made.

nbconvert is imported only when something that the page shows has changed.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.judging import Ledger, Run, counts, write_if_changed
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import FAILURES
from transnormer_lib.report.pages import (
    PageError,
    claim_rows,
    content_digest,
    html_page,
    is_current,
    provenance_facts,
)
from transnormer_lib.show.cards import claim_card, not_run_list
from transnormer_lib.show.scoreboard import refill

_FOLDED = 4  # claims of one cell that were not run: from so many on they are one list

if TYPE_CHECKING:
    from transnormer_lib.report.render import NotebookHtml

Neighbours = tuple["Notebook | None", "Notebook | None"]


@dataclass(frozen=True)
class Notebook:
    """A notebook as the pages speak of it."""

    name: str
    title: str
    abstract: str  # its first paragraph, as text
    source: dict[str, Any]  # as it lies in notebooks/, without outputs


def load_notebook(path: Path) -> Notebook:
    """A notebook with title and abstract from its first Markdown cell. Raises PageError for another file."""
    try:
        source = json.loads(path.read_text(encoding="utf-8"))
        cells = source["cells"]
        first = next(("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"), "")
    except (ValueError, KeyError, TypeError) as fault:
        raise PageError(f"{path.name}: is not a notebook: {type(fault).__name__}: {fault}") from None
    title, rest = split_title(first)
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", rest) if p.strip()]
    # The paper's section stands first, in italics; the abstract is the text after it.
    text = next(
        (p for p in paragraphs if not p.startswith(("*", "_", "#", "$$"))),
        paragraphs[0] if paragraphs else "",
    )
    return Notebook(path.stem, title or path.stem, _without_markup(text), source)


def split_title(markdown: str) -> tuple[str, str]:
    """The level-1 heading that a cell starts with, and the rest; an empty title if it starts otherwise."""
    match = re.match(r"\s*#[ \t]+(.+?)[ \t#]*(?:\n|$)", markdown)
    return (match[1], markdown[match.end() :]) if match else ("", markdown)


def _without_markup(markdown: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    # Emphasis and code marks go, except inside $math$.
    pieces = re.split(r"(\$[^$]+\$)", text)
    return "".join(p if i % 2 else re.sub(r"[*`]+", "", p) for i, p in enumerate(pieces))


def _pairs(values: Any) -> list[tuple[str, str]]:
    return [(str(name), shown(value)) for name, value in values.items()] if isinstance(values, Mapping) else []


def _banner(run: Run, problem: str | None, claims: Sequence[Claim], ledger: Ledger, last_good: str | None) -> Any:
    if run.status == "ok" and problem is None:
        return None
    if run.status == "ok":
        line = f"What this notebook measured cannot be judged: {problem}"
        return {"line": line, "kept": "Its text and outputs follow; none of its claims counts.", "link": None}
    if run.status == "not run":
        return {
            "line": "This notebook has not been run at this preset.",
            "kept": "Its text and code follow, without results.",
            "link": None,
        }
    ended = {"interrupted": "was interrupted", "no data": "came to data that are not here"}.get(run.status, "failed")
    line = f"This notebook {ended}: {run.error}"
    if run.executed is None:
        return {"line": line, "kept": "It left no results. Its text and code follow.", "link": last_good}
    measured = sum(ledger.judgements[claim.id].verdict != "not run" for claim in claims)
    kept = f"What ran before that follows: {measured} of its {len(claims)} claims were measured and are kept."
    return {"line": line, "kept": kept, "link": last_good}


def write_notebook_page(
    report_dir: Path,
    notebook: Notebook,
    run: Run,
    claims: Sequence[Claim],
    ledger: Ledger,
    around: Neighbours,
) -> bool:
    """Make ``NN_name.html`` unless it shows this content already; whether it was made.

    ``claims`` are the notebook's own, ``around`` its neighbours. Where the text or the results cannot be
    shown (an unknown macro in a formula, an output that would load something), the page says so and lists
    the claims, and PageError is raised.
    """
    path = report_dir / f"{notebook.name}.html"
    executed = _content(notebook, run)
    refill(executed, ledger.claims)
    good = report_dir / f"{notebook.name}.ipynb"
    banner = _banner(run, ledger.problems.get(notebook.name), claims, ledger, good.name if good.exists() else None)
    judged = [(claim.model_dump(), vars(ledger.judgements[claim.id])) for claim in claims]
    names = [None if other is None else (other.name, other.title) for other in around]
    digest = content_digest(report_dir.name, notebook.title, executed, run.record, banner, judged, names)
    if is_current(path, digest):
        return False

    from transnormer_lib.report.render import NotebookHtml, notebook_html

    members = {claim.id: (claim, ledger.judgements[claim.id]) for claim in claims}
    cards = {name: claim_card(*member, standalone=False) for name, member in members.items()}

    def fold(names: Sequence[str]) -> dict[str, str]:
        """Instead of the cards of many claims of one cell that were not run: a list in place of the first."""
        not_run = [name for name in names if members[name][1].verdict == "not run"]
        if len(not_run) < _FOLDED:
            return {}
        return dict.fromkeys(not_run, "") | {not_run[0]: not_run_list([members[name] for name in not_run])}

    frame = {**_frame(report_dir.name, notebook, run, around), "digest": digest, "banner": banner}
    try:
        page = _page(frame, notebook_html(executed, cards, fold), claims, ledger)
    except Exception as fault:  # a malformed notebook costs its own page, not the report
        line = " ".join(str(fault).split()) or type(fault).__name__
        problem = f"This page cannot show its notebook: {line}"
        frame |= {
            "digest": None,
            "banner": {"line": problem, "kept": "Only its claims are listed.", "link": None},
        }
        write_if_changed(path, _page(frame, NotebookHtml("", "", [], set()), claims, ledger))
        raise PageError(f"its page cannot be made: {line}") from None
    return write_if_changed(path, page)


def _content(notebook: Notebook, run: Run) -> dict[str, Any]:
    """The executed notebook; the one without results where none was left, or where it cannot be read."""
    if run.executed is None:
        return copy.deepcopy(notebook.source)
    try:
        executed = json.loads(run.executed.read_text(encoding="utf-8"))
        return {**executed, "cells": executed["cells"]}
    except (ValueError, KeyError, TypeError):  # the ledger names the problem, and the banner says so
        return copy.deepcopy(notebook.source)


def _page(frame: Mapping[str, Any], rendered: "NotebookHtml", claims: Sequence[Claim], ledger: Ledger) -> str:
    from markupsafe import Markup

    without_card = {claim.id for claim in claims} - rendered.claims
    rows = claim_rows(claims, ledger, here=frame["notebook"], anchored=without_card)
    failed = [row for row in rows if row["verdict"] in FAILURES]
    return html_page(
        "page.html.j2",
        **frame,
        lead=Markup(rendered.lead),
        body=Markup(rendered.body),
        headings=[{**vars(heading), "html": Markup(heading.html)} for heading in rendered.headings],
        rows=rows,
        counts=counts(rows),
        failed=failed,
        others=[row for row in rows if row not in failed],
        missing=bool(without_card),
    )


def _frame(preset: str, notebook: Notebook, run: Run, around: Neighbours) -> dict[str, Any]:
    """What surrounds the notebook's text: names, links and provenance."""
    provenance = run.record.get("provenance") or {}
    number = notebook.name.split("_")[0]
    return {
        "page_title": notebook.title.replace("$", ""),
        "preset": preset,
        "notebook": notebook.name,
        "title": notebook.title,
        "command": provenance.get("command") or f"make report PRESET={preset} ONLY={number}",
        "facts": provenance_facts(run.record),
        "lists": [
            ("Parameters", _pairs(run.record.get("parameters"))),
            ("Data, by fingerprint", _pairs(provenance.get("data"))),
            ("Versions", _pairs(provenance.get("versions"))),
        ],
        "previous": _link(around[0]),
        "following": _link(around[1]),
    }


def _link(notebook: Notebook | None) -> dict[str, str] | None:
    if notebook is None:
        return None
    return {"href": f"{notebook.name}.html", "title": notebook.title}
