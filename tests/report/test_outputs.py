"""What a page adds to a notebook's outputs: regions that scroll, folds around what is long, and nothing lost."""

import re
from typing import Any

import pytest
from report_factory import HOSTILE

from transnormer_lib.report.outputs import (
    LONG_LIST,
    LONG_REGISTER,
    LONG_TABLE,
    finished,
    shortened,
    table_region,
)
from transnormer_lib.show.movable import Movable
from transnormer_lib.show.tables import table_html
from transnormer_lib.show.templating import output_styles, render


def table(rows: int, **options: Any) -> str:
    return str(table_html([{"name": f"row {n}", "value": n} for n in range(rows)], caption="Rows $x$.", **options))


def figure(
    caption: str = "It grows. Slowly.", alt: str = "A line.", aside: bool = False, moves: Movable | None = None
) -> str:
    fields = {"name": "a-line", "alt": alt, "caption": caption, "size": (640, 400), "source": "AA", "values": ""}
    return str(render("show/templates/figure.html.j2", aside=aside, moves=moves, **fields))


def cell(outputs: str, name: str) -> str:
    return f'<div class="outputs" data-code="code-{name}">{outputs}</div>'


def test_figures_and_tables_are_numbered_in_order_with_the_notebook_and_lead_to_their_code() -> None:
    html = finished(cell(figure() + table(2), "one") + cell(table(2) + figure(), "two"), 9)
    assert re.findall(r"(?:Figure|Table) 9\.\d", html) == ["Figure 9.1", "Table 9.1", "Table 9.2", "Figure 9.2"]
    assert re.findall(r'href="#(code-\w+)"', html) == ["code-one", "code-two"]


@pytest.mark.parametrize("moves", [None, Movable("cost", {"label": "a > b"})], ids=["still", "movable"])
def test_what_stands_aside_is_folded_and_whole(moves: Movable | None) -> None:
    html = finished(cell(figure(aside=True, moves=moves) + table(2, aside=True), "one"), 9)
    assert "<summary>Figure 9.1. It grows.</summary>" in html
    assert html.count('<details class="fold"') == html.count("</details>") == 2
    assert "Slowly." in html


@pytest.mark.parametrize("caption", ["small, and no stop", "1+elu is worse.", "The ε of 1e-6. another", "Two. Three."])
def test_a_figure_that_stands_aside_is_named_whatever_its_caption_is(caption: str) -> None:
    html = finished(cell(figure(caption=caption, aside=True), "one"), 9)
    summary = re.search("<summary>(.*?)</summary>", html)
    assert summary is not None
    assert summary[1].startswith(f"Figure 9.1. {caption[:4]}")
    assert "Code" not in summary[1]


def test_a_text_that_stands_aside_keeps_its_heading_or_its_first_paragraph() -> None:
    rest = "<p>Second.</p><ul><li>Third.</li></ul>"
    for first in ("<h2>How</h2>", "<h3>How</h3>", "<p>First.</p>"):
        html = shortened(f"{first}{rest}")
        assert html.startswith(f"{first}<details")
        assert html.endswith(f"{rest}</details>")
        assert shortened(first) == first
    assert shortened("<h2>A</h2><p>one</p><h3>B</h3>").startswith("<h2>A</h2><details")
    assert shortened("<ul><li>All.</li></ul>").startswith("<details")


@pytest.mark.parametrize("note", ["", "A note."], ids=["bare", "with a note"])
def test_a_long_table_is_folded_below_its_caption_with_its_number_of_rows(note: str) -> None:
    long = table(LONG_TABLE + 1, note=note)
    html = finished(f"<p>before</p>{long}<p>after</p>", 9)
    assert html.startswith(
        '<p>before</p><details class="fold"><summary>Table 9.1. Rows <span class="tn-together"><math'
    )
    assert f"{LONG_TABLE + 1} rows" in html
    assert long.replace("<caption>", "<caption>Table 9.1. ") in html
    assert html.endswith("</details><p>after</p>")


def test_a_short_table_stays_as_it_is() -> None:
    assert finished(table(LONG_TABLE), 9) == table(LONG_TABLE).replace("<caption>", "<caption>Table 9.1. ")


def test_a_table_of_few_rows_with_long_texts_is_folded() -> None:
    html = finished(str(table_html([{"a": "b", "text": "word " * 300}], caption="c")), 9)
    assert html.startswith("<details")
    assert "1 row<" in html


def test_two_tables_are_folded_apart() -> None:
    html = finished(table(LONG_TABLE + 1) + table(LONG_TABLE + 2), 9)
    assert html.count("<details") == html.count("</details>") == 2


def test_a_figure_scrolls_in_a_region_that_the_keyboard_reaches() -> None:
    html = finished(figure(alt=HOSTILE, caption=HOSTILE), 9)
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Figure a line"><img alt=' in html
    assert html.count("<div") == html.count("</div>") == 1
    assert "<script" not in html


def test_a_table_of_the_text_is_a_region_named_by_its_heads() -> None:
    html = table_region("<table><thead><tr><th>one &amp; two</th><th><code>x</code></th></tr></thead></table>")
    assert 'aria-label="Table: one &amp; two, x"' in html


def test_styles_that_an_older_run_left_in_its_outputs_are_removed() -> None:
    assert finished(str(output_styles()) + '<style class="tn-outputs">.old{}</style><p>x</p>', 9) == "<p>x</p>"


def test_a_long_list_of_sentences_is_folded_and_whole() -> None:
    items = [f"Sentence {n}." for n in range(LONG_LIST + 1)]
    html = finished(f'<div class="html">{render("show/templates/list.html.j2", sentences=items)}</div>', 9)
    assert "<details" in html
    assert all(item in html for item in items)
    short = f'<div class="html">{render("show/templates/list.html.j2", sentences=items[1:])}</div>'
    assert finished(short, 9) == short


def entry(number: int, tone: str) -> str:
    return (
        f'<section class="tn-claim tn-entry tn-{tone}" id="entry-{number}" aria-label="Entry">'
        f'<p class="tn-head">{number}</p>'
        f'\n<dl class="tn-facts"><div><dt>The paper says</dt><dd>It says {number}.</dd></div></dl>'
        '<details><summary>More</summary><dl class="tn-facts"></dl></details></section>'
    )


def test_many_entries_of_a_register_are_folded_with_their_anchors_outside() -> None:
    html = finished("".join(entry(n, "good") for n in range(LONG_REGISTER + 1)), 9)
    fold = html.index('<details class="fold"><summary>')
    assert f"{LONG_REGISTER + 1} entries of the register" in html
    assert "all confirmed" in html
    for n in range(LONG_REGISTER + 1):
        assert html.index(f'<span id="entry-{n}" data-row="row-entry-{n}">') < fold
        assert html.count(f'id="row-entry-{n}"') == 1
        assert f"<summary>It says {n}.</summary>" in html
    assert html.count("<details") == html.count("</details>") == 2 * (LONG_REGISTER + 1) + 1


def test_an_entry_that_is_not_confirmed_is_never_folded() -> None:
    html = finished("".join(entry(n, "bad" if n == 1 else "good") for n in range(LONG_REGISTER + 1)), 9)
    assert "1 not confirmed" in html
    assert html.count('<details class="fold" open>') == 2  # the list and the entry


def test_few_entries_stay_as_they_are() -> None:
    entries = "".join(entry(n, "good") for n in range(LONG_REGISTER))
    assert finished(entries, 9) == entries
