"""The glossary: every term is defined once, verdicts agree with their rules, and links lead to parts that exist."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import report_factory
from page_checks import Page, check_page

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.theses import ANSWERS
from transnormer_lib.ledger.verdicts import SEEDS, VERDICTS, judge
from transnormer_lib.project import find_project
from transnormer_lib.report.index import build_report
from transnormer_lib.report.render import notebook_html
from transnormer_lib.report.terms import FILE, parts, terms

BADGES = {badge: {term.term: term for term in terms() if term.badge == badge} for badge in ("verdict", "answer")}
AHEAD, BEHIND, WIDE = [1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.9, 2.1, 2.0], [0.0, 4.0, 0.5, 1.0, 2.5]


def test_every_verdict_and_every_answer_is_defined_and_nothing_else_is_one() -> None:
    assert set(BADGES["verdict"]) == set(VERDICTS)
    assert set(BADGES["answer"]) == set(ANSWERS)


def measurements(kind: str) -> Iterator[dict[str, Any]]:
    """Measurements of a kind from which every verdict that it can get follows, at one scale or another."""
    yield {"kind": "not run", "reason": "needs a GPU"}
    if kind in ("theorem", "misprint"):
        for holds in (True, False):
            yield {"kind": kind, "holds": holds, "margin": 0.1, "searched": 9, "counter_example": {"n": 2}}
    elif kind in ("property", "print"):
        yield from ({"kind": kind, "value": value, "expected": 3} for value in (3, 4))
    elif kind == "number":
        yield from ({"kind": kind, "values": [value], "seeds": None} for value in (4.98, 1e6))
    else:
        for better, worse in itertools.permutations((AHEAD, BEHIND, WIDE), 2):
            for count, floor in itertools.product((SEEDS - 1, SEEDS), (0.5, 10.0)):
                sides = {"better": better[:count], "worse": worse[:count], "seeds": list(range(count))}
                yield {"kind": kind, **sides, "higher_is_better": False, "floor": {"name": "bigram", "value": floor}}


def claims_of(kind: str) -> Iterator[Claim]:
    own: dict[str, Any] = {"comparable": {"tolerance": 0.5}, "misprint": {"corrected": "another"}}.get(kind, {})
    own |= {"least": 5.0} if kind == "ordering" else {}
    for scale in ("quick", "paper"):
        yield report_factory.claim("a-claim", kind, report_factory.THEORY, decided_at=scale, **own)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_kinds_named_beside_a_verdict_are_those_that_the_rules_give_it(verdict: str) -> None:
    kinds = ("theorem", "misprint", "property", "print", "number", "ordering", "comparable")
    reached = {
        kind
        for kind in kinds
        for claim in claims_of(kind)
        for measured in measurements(kind)
        if judge(claim, measured, "quick").verdict == verdict
    }
    assert set(BADGES["verdict"][verdict].kinds) == reached


def test_the_fewest_seeds_are_those_of_the_rules() -> None:
    assert f"fewer than {['', 'one', 'two', 'three', 'four', 'five', 'six'][SEEDS]} seeds" in (
        BADGES["verdict"]["not run"].means
    )


def test_what_leads_to_a_notebook_leads_to_a_part_of_it() -> None:
    project = find_project()
    wanted: dict[str, set[str]] = {}
    for term in terms():
        if term.see:
            page, _, anchor = term.see.partition("#")
            wanted.setdefault(page.removesuffix(".html"), set()).add(anchor)
    assert wanted
    for name, anchors in wanted.items():
        source = nbformat.read(project.root / "notebooks" / f"{name}.ipynb", as_version=4)
        shown = notebook_html(source, int(name[:2]), (), lambda *_: "")
        assert anchors <= {heading.anchor for heading in shown.headings}, name


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"term": "floor"}, "'term-floor': belongs to 'floor' and to 'floor'"),
        ({"term": "another", "also": ["bigrams"]}, "'bigrams': belongs to"),
        ({"term": "1+ELU"}, "'term-1-elu': belongs to"),
        ({"term": "x", "means": None}, "means"),
        ({"term": "x", "means": "No full stop"}, "means"),
        ({"term": "x", "alone": False}, "needs another spelling"),
        ({"term": "x", "kinds": ["number"]}, "kinds"),
        ({"term": "x", "see": "elsewhere.html"}, "see"),
        ({"term": "x", "colour": "red"}, "colour"),
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else "",
)
def test_a_broken_entry_is_refused_by_name(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    import yaml

    entry = {name: value for name, value in ({"means": "A word."} | change).items() if value is not None}
    path = tmp_path / "terms.yaml"
    more = yaml.safe_dump([{"part": "More", "terms": [entry]}], allow_unicode=True)
    path.write_text(f"{FILE.read_text(encoding='utf-8')}\n{more}", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(fault)) as refused:
        parts(path)
    assert str(refused.value).startswith("terms.yaml: ")


def test_the_glossary_has_every_term_and_links_only_to_what_is_there(tmp_path: Path) -> None:
    report_factory.make_report(tmp_path)
    build_report(tmp_path, "quick", report_factory.CLAIMS)
    page = check_page(tmp_path / "reports" / "quick" / "terms.html")
    assert {term.anchor for term in terms()} <= set(page.ids)
    assert all(term.means in page.text for term in terms())
    assert "SIL OPEN FONT LICENSE" in page.text


@pytest.mark.parametrize("name", ["index", "found", "ledger", report_factory.THEORY])
def test_every_page_leads_to_the_glossary(name: str, tmp_path: Path) -> None:
    report_factory.make_report(tmp_path)
    build_report(tmp_path, "quick", report_factory.CLAIMS)
    assert "terms.html" in Page(tmp_path / "reports" / "quick" / f"{name}.html").links
