"""The page of all claims, by paper and place, with a search."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.families import multiplicity
from transnormer_lib.ledger.judging import Ledger, counts, write_if_changed
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.report.pages import claim_rows, content_digest, html_page, is_current


def write_ledger_page(report_dir: Path, claims: Sequence[Claim], ledger: Ledger) -> bool:
    """Write ``ledger.html`` unless it shows this content already; returns whether it was written."""
    path = report_dir / "ledger.html"
    judged = [(claim.model_dump(), vars(ledger.best[claim.id])) for claim in claims]
    digest = content_digest(report_dir.name, judged, ledger.claims)
    if is_current(path, digest):
        return False
    rows = claim_rows(claims, ledger, ledger.best, here="ledger", anchored=None)
    missing = Counter(str(row["reason"]) for row in rows if row["verdict"] == "not run")
    verdicts = [verdict for verdict, count in counts(rows).items() if count]
    choices = [
        ("verdict", "Verdict", verdicts),
        ("kind", "Kind", sorted({claim.kind for claim in claims})),
        ("notebook", "Notebook", sorted({claim.notebook for claim in claims})),
    ]
    page = html_page(
        "ledger.html.j2",
        "filter.js",
        digest=digest,
        page_title=f"TransNormer companion: all claims, {report_dir.name}",
        preset=report_dir.name,
        total=len(rows),
        choices=choices,
        not_run=missing.total(),
        reasons=missing.most_common(),
        papers=_papers(claims, rows),
        multiplicity=multiplicity(claims, ledger.best),
    )
    return write_if_changed(path, page)


def _papers(claims: Sequence[Claim], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_claim = {row["id"]: row for row in rows}
    sections = []
    for paper in papers().values():
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for claim in claims:
            if claim.paper == paper.id:
                groups.setdefault(claim.locus, []).append(by_claim[claim.id])
        if groups:
            found = [{"locus": locus, "rows": groups[locus]} for locus in sorted(groups, key=_natural)]
            sections.append({"anchor": f"paper-{paper.id}", "title": paper.title, "groups": found})
    return sections


def _natural(locus: str) -> list[tuple[int, str]]:
    """A key that puts Equation 9 before Equation 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", locus)]
