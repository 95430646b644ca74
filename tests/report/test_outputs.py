"""What a page adds to a notebook's outputs: regions that scroll, folds around what is long, and nothing lost."""

import re

import pytest
from report_factory import HOSTILE

from transnormer_lib.report.outputs import LONG_LIST, LONG_REGISTER, LONG_TABLE, finished, table_region
from transnormer_lib.show.tables import table_html
from transnormer_lib.show.templating import output_styles, render


def table(rows: int, **options: str) -> str:
    return str(table_html([{"name": f"row {n}", "value": n} for n in range(rows)], caption="Rows $x$.", **options))


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize("note", ["", "A note."], ids=["bare", "with a note"])
def test_a_long_table_is_folded_below_its_caption_with_its_number_of_rows(note: str) -> None:
    long = table(LONG_TABLE + 1, note=note)
    html = finished(f"<p>before</p>{long}<p>after</p>")
    assert html.startswith('<p>before</p><details class="fold"><summary>Rows <span class="tn-together"><math')
    assert f"{LONG_TABLE + 1} rows" in html
    assert long in html
    assert html.endswith("</details><p>after</p>")


def test_a_short_table_stays_as_it_is() -> None:
    assert finished(table(LONG_TABLE)) == table(LONG_TABLE)


def test_a_table_of_few_rows_with_long_texts_is_folded() -> None:
    html = finished(str(table_html([{"a": "b", "text": "word " * 300}], caption="c")))
    assert html.startswith("<details")
    assert "1 row<" in html


def test_two_tables_are_folded_apart() -> None:
    html = finished(table(LONG_TABLE + 1) + table(LONG_TABLE + 2))
    assert html.count("<details") == html.count("</details>") == 2


def test_a_figure_scrolls_in_a_region_that_the_keyboard_reaches() -> None:
    fields = {"name": "a-line", "alt": HOSTILE, "caption": HOSTILE, "size": (640, 400), "source": "AA"}
    html = finished(str(render("show/templates/figure.html.j2", **fields)))
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Figure a line"><img alt=' in html
    assert html.count("<div") == html.count("</div>") == 1
    assert "<script" not in html


def test_a_table_of_the_text_is_a_region_named_by_its_heads() -> None:
    html = table_region("<table><thead><tr><th>one &amp; two</th><th><code>x</code></th></tr></thead></table>")
    assert 'aria-label="Table: one &amp; two, x"' in html


def test_styles_that_an_older_run_left_in_its_outputs_are_removed() -> None:
    assert finished(str(output_styles()) + '<style class="tn-outputs">.old{}</style><p>x</p>') == "<p>x</p>"


def test_a_long_list_of_sentences_is_folded_and_whole() -> None:
    items = [f"Sentence {n}." for n in range(LONG_LIST + 1)]
    html = finished(f'<div class="html">{render("show/templates/list.html.j2", sentences=items)}</div>')
    assert "<details" in html
    assert all(item in html for item in items)
    short = f'<div class="html">{render("show/templates/list.html.j2", sentences=items[1:])}</div>'
    assert finished(short) == short


def entry(number: int, tone: str) -> str:
    return (
        f'<section class="tn-claim tn-entry tn-{tone}" id="entry-{number}" aria-label="Entry">'
        f'<p class="tn-head">{number}</p>'
        f'\n<dl class="tn-facts"><div><dt>The paper says</dt><dd>It says {number}.</dd></div></dl>'
        '<details><summary>More</summary><dl class="tn-facts"></dl></details></section>'
    )


def test_entries_of_a_long_register_are_folded_below_what_the_paper_says_unless_they_are_not_confirmed() -> None:
    entries = [entry(n, "good") for n in range(LONG_REGISTER)] + [entry(99, "bad")]
    html = finished("".join(entries))
    assert "<summary>It says 0.</summary>" in html
    assert html.count('<details class="fold">') == LONG_REGISTER
    assert html.count('<details class="fold" open>') == 1
    assert html.count("<details") == html.count("</details>") == 2 * len(entries)
    assert text("".join(entries[:1])) in text(finished("".join(entries[:1])))
