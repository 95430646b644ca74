"""The glossary, ``terms.html``: every term of ``terms.yaml`` by subject, with where it is explained."""

from pathlib import Path

from transnormer_lib import sums
from transnormer_lib.report.math_font import LICENCE
from transnormer_lib.report.pages import content_digest, html_page, is_current
from transnormer_lib.report.terms import parts, terms

PAGE = "terms.html"


def write_terms_page(report_dir: Path) -> bool:
    """Write ``terms.html`` unless it shows this content already; returns whether it was written.

    To be called after the notebooks' pages, since it links only to parts that are there.
    """
    path = report_dir / PAGE
    ways = {term.anchor: term.see for term in terms() if term.see and _is_there(report_dir, term.see)}
    digest = content_digest(report_dir.name, ways)
    if is_current(path, digest):
        return False
    page = html_page(
        "terms.html.j2",
        marks=False,
        digest=digest,
        page_title=f"TransNormer companion: glossary, {report_dir.name}",
        preset=report_dir.name,
        parts=parts(),
        total=len(terms()),
        ways=ways,
        licence=LICENCE.read_text(encoding="utf-8"),
    )
    return sums.write(path, page)


def _is_there(report_dir: Path, address: str) -> bool:
    name, _, anchor = address.partition("#")
    page = report_dir / name
    return page.exists() and f'id="{anchor}"' in page.read_text(encoding="utf-8")
