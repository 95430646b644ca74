"""The page of one notebook: its text and results, the claims it checks, and how it was made.

nbconvert is imported only when something that the page shows has changed.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml
from markupsafe import Markup

from transnormer_lib import sums
from transnormer_lib.ledger.claims import Claim, by_id
from transnormer_lib.ledger.judging import Ledger, Run, counts, read_notebook
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import FAILURES
from transnormer_lib.report.notebooks import Notebook
from transnormer_lib.report.pages import PageError, claim_rows, content_digest, html_page, is_current, provenance_facts
from transnormer_lib.show.cards import claims_html
from transnormer_lib.show.scoreboard import refill

if TYPE_CHECKING:
    from transnormer_lib.report.render import NotebookHtml

_SHOWN_FAILURES = 3  # the others unfold
_MOVABLE = re.compile(r'<figure [^>]* data-movable="(\w+)"')  # the kind of a figure that a visitor can move

Neighbours = tuple[Notebook | None, Notebook | None]


def write_notebook_page(
    report_dir: Path,
    notebook: Notebook,
    run: Run,
    claims: Sequence[Claim],
    ledger: Ledger,
    around: Neighbours,
    serves: Sequence[Mapping[str, Any]] = (),
    above: Sequence[Kept] = (),
) -> bool:
    """Write ``NN_name.html`` unless it shows this content already; returns whether it was written.

    ``claims`` are the notebook's own, ``around`` its neighbours, ``serves`` the theses that its claims bear on, with
    their answers, ``above`` what was kept of the notebook at larger scales. If the text or the results cannot be shown
    (an unknown macro in a formula, an output that would load something), the page says so and lists the claims, and
    PageError is raised.
    """
    path = report_dir / f"{notebook.name}.html"
    executed = _content(notebook, run)
    refill(executed, ledger.claims)
    good = report_dir / f"{notebook.name}.ipynb"
    banner = _banner(run, ledger.problems.get(notebook.name), claims, ledger, good.name if good.exists() else None)
    origins = [one.origin(by_id(claims)) for one in above]
    judged = [(claim.model_dump(), vars(ledger.judgements[claim.id])) for claim in claims]
    names = [None if other is None else (other.name, other.title) for other in around]
    shows = (
        report_dir.name,
        notebook.title,
        notebook.defaults,
        executed,
        run.record,
        banner,
        good.exists(),
        judged,
        names,
        serves,
        (ledger.claims, origins) if above else None,
    )
    digest = content_digest(*shows)
    if is_current(path, digest):
        return False

    from transnormer_lib.report.render import NotebookHtml, notebook_html

    own = by_id(claims)

    def draw(measured: Sequence[str], code: str) -> Markup:
        return claims_html([(own[name], ledger.judgements[name]) for name in measured], standalone=False, code=code)

    frame = {
        **_frame(report_dir.name, notebook, run, around),
        "downloads": _downloads(run, good),
        "digest": digest,
        "banner": banner,
        "serves": serves,
        "kept": origins,
    }
    try:
        page = _page(frame, notebook_html(executed, int(notebook.name[:2]), own, draw), claims, ledger)
    except Exception as fault:  # a malformed notebook costs its own page, not the report
        line = " ".join(str(fault).split()) or type(fault).__name__
        problem = f"This page cannot show its notebook: {line}"
        frame |= {"digest": None, "banner": {"line": problem, "kept": "Only its claims are listed.", "link": None}}
        sums.write(path, _page(frame, NotebookHtml(), claims, ledger))
        raise PageError(f"its page cannot be made: {line}") from None
    return sums.write(path, page)


def _content(notebook: Notebook, run: Run) -> dict[str, Any]:
    """The executed notebook, or the one without results if there is none that can be read."""
    executed = None if run.executed is None else read_notebook(run.executed)
    return executed or copy.deepcopy(notebook.source)


def _banner(run: Run, problem: str | None, claims: Sequence[Claim], ledger: Ledger, last_good: str | None) -> Any:
    """What the page says first if the notebook did not run to its end or could not be judged."""
    link = None
    if run.status == "ok" and problem is None:
        return None
    if run.status == "ok":
        line = f"What this notebook measured cannot be judged: {problem}"
        kept = "Its text and outputs follow; none of its claims counts."
    elif run.status == "not run":
        line = "This notebook has not been run at this preset."
        kept = "Its text and code follow, without results."
    else:
        ended = {"interrupted": "was interrupted", "no data": "needs data that are not here"}.get(run.status, "failed")
        line, link = f"This notebook {ended}: {run.error}", last_good
        measured = sum(ledger.judgements[claim.id].verdict != "not run" for claim in claims)
        kept = f"What ran before that follows: {measured} of its {len(claims)} claims were measured and are kept."
        if run.executed is None:
            kept = "It left no results. Its text and code follow."
    return {"line": line, "kept": kept, "link": link}


def _page(frame: Mapping[str, Any], rendered: "NotebookHtml", claims: Sequence[Claim], ledger: Ledger) -> str:
    without_place = {claim.id for claim in claims}.difference(rendered.claims)
    rows = claim_rows(claims, ledger, ledger.judgements, here=frame["notebook"], anchored=without_place)
    failed = [row for row in rows if row["verdict"] in FAILURES][:_SHOWN_FAILURES]
    kinds = sorted(set(_MOVABLE.findall(rendered.body)))
    return html_page(
        "page.html.j2",
        "page.js",
        "reveal.js",
        *(["movable.js"] if kinds else []),
        *(f"movable_{kind}.js" for kind in kinds),
        **frame,
        rendered=rendered,
        counts=counts(rows),
        found_above=_found_above(claims, ledger, frame["notebook"]),
        failed=failed,
        others=rows[len(failed) :],  # failures come first
        missing=bool(without_place),
    )


def _found_above(claims: Sequence[Claim], ledger: Ledger, here: str) -> list[dict[str, Any]]:
    """Rows of the claims on which kept evidence of a larger scale stands."""
    kept = {entry["id"] for entry in ledger.claims if entry["source"] == "kept"}
    return claim_rows([claim for claim in claims if claim.id in kept], ledger, ledger.best, here=here, anchored=set())


def _frame(preset: str, notebook: Notebook, run: Run, around: Neighbours) -> dict[str, Any]:
    """What surrounds the notebook's text: names, links and provenance."""
    provenance = run.record.get("provenance") or {}
    changed, unchanged = _parameters(run.record.get("parameters"), notebook.defaults)
    facts = provenance_facts(run.record)
    made = [f"preset {preset}", *(text for name, text in facts if name in ("device", "took"))]
    return {
        "page_title": notebook.title.replace("$", ""),
        "preset": preset,
        "notebook": notebook.name,
        "title": notebook.title,
        "command": provenance.get("command") or f"make report PRESET={preset} ONLY={notebook.name.split('_')[0]}",
        "made": ", ".join(made),
        "record": f"records/{notebook.name}.json" if run.record else None,
        "facts": facts,
        "changed": changed,
        "unchanged": unchanged,
        "lists": [
            ("Data, by fingerprint", _pairs(provenance.get("data"))),
            ("Versions", _pairs(provenance.get("versions"))),
        ],
        "previous": around[0],
        "following": around[1],
    }


def _downloads(run: Run, good: Path) -> list[tuple[str, str]]:
    """What the page offers to keep: its notebook with results, and the parameters as a preset's file has them."""
    found = [("Executed notebook", good.name)] if good.exists() else []
    values = run.record.get("parameters")
    if isinstance(values, Mapping) and values:
        text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
        found.append(("Its parameters", f"data:text/yaml;charset=utf-8,{quote(text)}"))
    return found


def _parameters(values: Any, defaults: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """The parameters that differ from the notebook's defaults, with the default, and the others."""
    given = values if isinstance(values, Mapping) else {}
    changed = [
        (name, shown(value), shown(defaults[name]) if name in defaults else "none")
        for name, value in given.items()
        if name not in defaults or _plain(defaults[name]) != value
    ]
    names = {name for name, _, _ in changed}
    return changed, [(name, text) for name, text in _pairs(values) if name not in names]


def _plain(value: Any) -> Any:
    """A default as the record has it: JSON has no tuples."""
    return json.loads(json.dumps(value))


def _pairs(values: Any) -> list[tuple[str, str]]:
    return [(str(name), shown(value)) for name, value in values.items()] if isinstance(values, Mapping) else []
