"""The page of all claims, by paper and place, with a search and filters that an address can set."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.families import multiplicity
from transnormer_lib.ledger.judging import Ledger, counts
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.report.pages import claim_rows, content_digest, html_page, is_current

Choice = tuple[str, str, list[tuple[str, str]]]  # name, label, values with their texts


def write_ledger_page(
    report_dir: Path,
    claims: Sequence[Claim],
    ledger: Ledger,
    answers: Sequence[Answer] = (),
    above: Sequence[Kept] = (),
) -> bool:
    """Write ``ledger.html`` unless it shows this content already; returns whether it was written.

    ``answers`` are the theses that a filter offers, ``above`` what was kept at larger scales.
    """
    path = report_dir / "ledger.html"
    judged = [(claim.model_dump(), vars(ledger.best[claim.id])) for claim in claims]
    serves = _theses(answers)
    records = {claim.notebook: f"records/{claim.notebook}.json" for claim in claims}
    records = {name: address for name, address in records.items() if (report_dir / address).exists()}
    kept = {(one.notebook, one.scale): one.href for one in above}
    digest = content_digest(report_dir.name, judged, ledger.claims, serves, records, sorted(kept.items()))
    if is_current(path, digest):
        return False
    rows = claim_rows(claims, ledger, ledger.best, here="ledger", anchored=None)
    entries = {entry["id"]: entry for entry in ledger.claims}
    for row in rows:
        entry = entries[row["id"]]
        place = (entry["notebook"], entry["scale"])
        record = kept.get(place) if entry["source"] == "kept" else records.get(entry["notebook"])
        serving = " ".join(serves.get(row["id"], ()))
        row |= {"paper": entry["paper"], "scale": entry["scale"], "theses": serving, "record": record}
    missing = Counter(_why(str(row["reason"])) for row in rows if row["verdict"] == "not run")
    choices = _choices(rows, answers)
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
    return sums.write(path, page)


def _theses(answers: Sequence[Answer]) -> dict[str, list[str]]:
    """The theses that a claim bears on, by the claim's id."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        for name in answer.thesis.claims:
            found.setdefault(name, []).append(answer.thesis.id)
    return found


def _why(reason: str) -> str:
    """The reason of a claim that was not run as it is counted: by the scale that decides it, if that is larger."""
    scale = re.search(r"\bdecided at (\w+):", reason)
    return f"decided at {scale[1]}" if scale else reason


def _choices(rows: Sequence[Mapping[str, Any]], answers: Sequence[Answer]) -> list[Choice]:
    """The filters: name, label, and values with their texts. A value is what an address has: ``#verdict=refuted``."""

    def plain(name: str, values: Iterable[str] | None = None) -> list[tuple[str, str]]:
        found = dict.fromkeys(values or sorted({str(row[name]) for row in rows}, key=_natural))
        return [(value, value) for value in found]

    titles = [(paper.id, paper.title) for paper in papers().values() if any(row["paper"] == paper.id for row in rows)]
    theses = [(answer.thesis.id, re.sub(r"[$\\]", "", answer.thesis.sentence)) for answer in answers]
    return [
        ("paper", "Paper", titles),
        ("thesis", "Thesis", theses),
        ("locus", "Place", plain("locus")),
        ("verdict", "Verdict", plain("verdict", [verdict for verdict, count in counts(rows).items() if count])),
        ("kind", "Kind", plain("kind")),
        ("notebook", "Notebook", plain("notebook")),
        ("scale", "Scale", plain("scale")),
    ]


def _papers(claims: Sequence[Claim], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_claim = {row["id"]: row for row in rows}
    sections = []
    for paper in papers().values():
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for claim in claims:
            if claim.paper == paper.id:
                groups.setdefault(claim.locus, []).append(by_claim[claim.id])
        if groups:
            found = [
                {"locus": locus, "rows": groups[locus], "counts": counts(groups[locus])}
                for locus in sorted(groups, key=_natural)
            ]
            sections.append({"anchor": f"paper-{paper.id}", "title": paper.title, "groups": found})
    return sections


def _natural(locus: str) -> list[tuple[int, str]]:
    """A key that puts Equation 9 before Equation 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", locus)]
