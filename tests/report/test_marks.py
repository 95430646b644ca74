"""Marks on terms: nothing of a page changes but the marks, and they are only where a reader expects them."""

import re
from pathlib import Path

import pytest
import report_factory
from hypothesis import given
from hypothesis import strategies as st
from page_checks import Page

from transnormer_lib.report.index import build_report
from transnormer_lib.report.marks import marked
from transnormer_lib.report.terms import terms

MARK = re.compile(r'<span class="term">([^<]*)<button [^>]*></button></span>')
DEFINITION = re.compile(r'<p class="definition" popover id="([\w-]+)">.*?</p>\n?', re.DOTALL)


def within(inner: str) -> str:
    return f"<!doctype html><head><title>T2</title></head><body><main>{inner}</main></body>"


def marks(inner: str) -> list[str]:
    """The marked words of what stands in the main part of a page, which is otherwise unchanged."""
    html = marked(within(inner))
    assert unmarked(html) == within(inner)
    return MARK.findall(html)


def unmarked(html: str) -> str:
    return MARK.sub(r"\1", DEFINITION.sub("", html)).replace("\n</main>", "</main>")


def test_the_first_occurrence_in_a_part_is_marked_whatever_its_spelling() -> None:
    assert marks("<p>T2 and T2. TransNormer T2</p><h3>On</h3><p>T2</p>") == ["T2"]
    assert marks("<p>T2</p><h2>Next</h2><p>T2</p>") == ["T2", "T2"]
    assert marks("<p>Matched controls</p>") == ["Matched controls"]
    assert marks("<p>matched\ncontrol</p>") == ["matched\ncontrol"]


def test_the_longer_of_two_terms_is_marked_and_no_part_of_a_word() -> None:
    assert marks("<p>FLASH-quad, lsh-4 and T2's</p>") == ["FLASH-quad", "lsh-4", "T2"]
    assert marks("<p>T20, XT2, T2-like, cross-entropy, plan.yaml, a_floor, #T2, 1/T2</p>") == []


def test_an_everyday_word_is_marked_once_a_page() -> None:
    assert marks("<p>a claim</p><h2>Next</h2><p>a claim</p>") == ["claim"]


@pytest.mark.parametrize("apostrophe", ["'", "’", "&#39;"])
def test_an_apostrophe_may_be_written_in_any_way(apostrophe: str) -> None:
    assert marks(f"<p>Holm{apostrophe}s correction</p>") == [f"Holm{apostrophe}s correction"]


NO_PROSE = ["a", "button", "code", "h1", "h3", "kbd", "label", "math", "nav", "pre", "script", "style", "summary", "th"]


@pytest.mark.parametrize("tag", NO_PROSE)
def test_nothing_is_marked_in_what_is_no_prose(tag: str) -> None:
    assert marks(f"<div><p>by <{tag}>T2 <b>LRPE</b></{tag}></p></div>") == []
    assert marks(f"<div><{tag}><p>T2</p></{tag}></div>") == []


@pytest.mark.parametrize("tag", ["p", "li", "dd", "figcaption", "caption", "blockquote"])
def test_prose_and_captions_are_marked_and_tables_are_not(tag: str) -> None:
    assert marks(f"<div><{tag}>by <em>LRPE</em></{tag}></div>") == ["LRPE"]
    assert marks("<table><tr><td>LRPE</td></tr></table><div>LRPE</div>") == []
    assert marks('<table><tr><td class="what">LRPE</td></tr></table>') == ["LRPE"]


def test_a_comment_and_an_attribute_stay_as_they_are() -> None:
    assert marks('<p><!-- T2 > LRPE --><img alt="T2 > LRPE"> &amp; <br/> T1<!-- --></p>') == ["T1"]


def test_a_verdict_is_marked_on_its_badge_alone() -> None:
    badge = '<span class="tn-verdict tn-bad"><span aria-hidden="true">↘</span> opposite</span>'
    assert marks(f"<p>the opposite</p><table><tr><td>{badge}</td></tr></table>") == ["opposite"]
    assert marks(f"<details><summary>{badge}</summary></details>") == []
    assert marks("<p>0.2%, unresolved</p>") == ["unresolved"]


def test_a_fold_does_not_take_the_mark_from_what_is_in_sight() -> None:
    assert marks("<details><p>T2</p></details><p>T2</p>") == ["T2", "T2"]
    assert marks("<p>T2</p><details><p>T2</p></details>") == ["T2"]
    assert marks('<p>T2</p><details class="thesis"><p>T2</p></details>') == ["T2", "T2"]


def test_every_mark_has_its_definition_once() -> None:
    html = marked(within("<p>T2</p><h2>Next</h2><p>T2 and 1+elu</p>"))
    assert sorted(DEFINITION.findall(html)) == ["term-1-elu", "term-t2"]
    assert set(re.findall('popovertarget="([^"]*)"', html)) == set(re.findall('interestfor="([^"]*)"', html))
    assert set(re.findall('popovertarget="([^"]*)"', html)) == {"term-1-elu", "term-t2"}


SPELLINGS = [spelling for term in terms() for spelling in (term.term, *term.spellings)]
PIECES = st.one_of(
    st.sampled_from(SPELLINGS),
    st.sampled_from(["<p>", "</p>", "<a href='#'>", "</a>", "<td>", "<li>", "<br>", "<!--", "-->", "&amp;", "<", ">"]),
    st.text("ab &<>\"'$\n", max_size=5),
)


@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_whatever_a_page_holds_it_is_the_same_without_its_marks(inner: str) -> None:
    html = marked(within(inner))
    assert unmarked(html) == within(inner)


def test_a_whole_report_keeps_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = []
    monkeypatch.setattr("transnormer_lib.report.pages.marked", lambda html: before.append(html) or marked(html))
    report_factory.make_report(tmp_path)
    build_report(tmp_path, "quick", report_factory.CLAIMS)
    assert len(before) >= 5
    for html in before:
        assert unmarked(marked(html)) == html.replace("\n</main>", "</main>")
    ledger = Page(tmp_path / "reports" / "quick" / "ledger.html")
    assert "<script>alert('x')</script>" in ledger.text
