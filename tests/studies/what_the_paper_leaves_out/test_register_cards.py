"""The cards of the register: everything escaped, what failed first and open, every entry in the notebook once."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from transnormer_lib.papers import discrepancies
from transnormer_lib.papers.discrepancies import Discrepancy
from transnormer_lib.studies.common.register import Effect, Found
from transnormer_lib.studies.common.register import cards as register_cards
from transnormer_lib.studies.common.register.cards import card_html, show_cards, summary, value_text
from transnormer_lib.studies.what_the_paper_leaves_out import results
from transnormer_lib.studies.what_the_paper_leaves_out.results import Trained

NOTEBOOK = Path(__file__).resolve().parents[3] / "notebooks" / "10_what_the_paper_leaves_out.ipynb"
ENTRY = Discrepancy(
    id="a-case",
    subject="sizes",
    paper="transnormer",
    locus="Table <1>",
    says="1 < 2 & $x^2$",
    released="does <b>",
    evidence="e",
    settled="s",
    flag='f="<g>"',
    code=["attention/norms.py:rms_norm"],
    claims=["eq-61"],
)
GOOD = Found({"figure <i>": 1.5}, {"it is <so>": True}, (Effect("size", 1, 2),))
BAD = Found({"figure": 1.5}, {"it is so": False})


class Balanced(HTMLParser):
    """Refuses HTML whose tags are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_card_is_escaped_and_closed() -> None:
    html = card_html(ENTRY, GOOD)
    for text in ("Table &lt;1&gt;", "figure &lt;i&gt;", "it is &lt;so&gt;", "does &lt;b&gt;", "&lt;g&gt;", "<math"):
        assert text in html
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []


def test_a_card_shows_the_line_of_our_code_and_the_claim() -> None:
    html = card_html(ENTRY, GOOD)
    line = next(n for n, text in enumerate(_source("attention/norms.py"), 1) if text.startswith("def rms_norm"))
    assert f"transnormer_lib/attention/norms.py:{line}" in html
    assert "def rms_norm" in html
    assert 'href="01_gradient_theory.html#claim-eq-61"' in html


def _source(file: str) -> list[str]:
    import transnormer_lib

    return (Path(transnormer_lib.__file__).parent / file).read_text().splitlines()


def test_a_card_that_is_not_confirmed_says_so_and_is_open() -> None:
    html = card_html(ENTRY, BAD)
    assert "not confirmed" in html
    assert "<details open>" in html
    assert "not so: it is so" in html
    assert "<details open>" not in card_html(ENTRY, GOOD)


def test_a_trained_comparison_stands_on_the_card() -> None:
    trained = Trained("rotation", "a", "b", {"a": [1.0, 1.0], "b": [1.5, 1.7]})
    assert "b against a: " in card_html(ENTRY, GOOD, trained)


def test_an_entry_that_is_not_confirmed_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(register_cards, "display", lambda data, raw: shown.append(data))
    show_cards({"tokenizer": GOOD, "learning-rate": BAD}, "tokenizer", "learning-rate")
    assert shown[0]["text/html"].index("entry-learning-rate") < shown[0]["text/html"].index("entry-tokenizer")
    with pytest.raises(ValueError, match="entry='tokeniser': is not in the register"):
        show_cards({}, "tokeniser")


def test_the_summary_has_subjects_with_a_failure_first_and_counts_all() -> None:
    found = {entry.id: BAD if entry.id == "eq-63-squared" else GOOD for entry in discrepancies.load("transnormer")}
    lines = summary(found)
    assert lines[0]["subject"] == "theory"
    assert lines[0]["not confirmed"] == "eq-63-squared"
    assert lines[-1]["entries"] == len(found) == lines[-1]["confirmed"] + 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [2, 3]}, "a: 1, b: (2, 3)"),
        ([], "none"),
        (0.123456, "0.1235"),
        (833.3333, "833.333"),
        ({}, "none"),
    ],
    ids=["nested", "empty-list", "float", "large", "empty"],
)
def test_figures_are_readable(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_the_notebook_shows_every_entry_once() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    named = [name for name in re.findall(r'"([a-z0-9-]+)"', code) if name in discrepancies.by_id("transnormer")]
    assert sorted(named) == sorted(discrepancies.by_id("transnormer"))


def test_trained_rows_name_the_entry() -> None:
    trained = Trained("rotation", "a", "b", {"a": [1.0, 1.0], "b": [1.5, 1.7]})
    (line,) = results.trained_rows({"rotation": trained})
    assert line["entry"] == "rotation-not-mentioned"
