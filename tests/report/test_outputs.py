"""What a page adds to a notebook's outputs: regions that scroll, folds around what is long, and nothing lost."""

import pytest
from report_factory import HOSTILE

from transnormer_lib.report.outputs import (
    LONG_LIST,
    LONG_REGISTER,
    LONG_TABLE,
    finished,
    table_region,
)
from transnormer_lib.show.tables import table_html
from transnormer_lib.show.templating import output_styles, render


def table(rows: int, **options: str) -> str:
    return str(table_html([{"name": f"row {n}", "value": n} for n in range(rows)], caption="Rows $x$.", **options))


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


def test_many_entries_of_a_register_are_folded_with_their_anchors_outside() -> None:
    html = finished("".join(entry(n, "good") for n in range(LONG_REGISTER + 1)))
    fold = html.index('<details class="fold"><summary>')
    assert f"{LONG_REGISTER + 1} entries of the register" in html
    assert "all confirmed" in html
    for n in range(LONG_REGISTER + 1):
        assert html.index(f'<span id="entry-{n}" data-row="row-entry-{n}">') < fold
        assert html.count(f'id="row-entry-{n}"') == 1
        assert f"<summary>It says {n}.</summary>" in html
    assert html.count("<details") == html.count("</details>") == 2 * (LONG_REGISTER + 1) + 1


def test_an_entry_that_is_not_confirmed_is_never_folded() -> None:
    html = finished("".join(entry(n, "bad" if n == 1 else "good") for n in range(LONG_REGISTER + 1)))
    assert "1 not confirmed" in html
    assert html.count('<details class="fold" open>') == 2  # the list and the entry


def test_few_entries_stay_as_they_are() -> None:
    entries = "".join(entry(n, "good") for n in range(LONG_REGISTER))
    assert finished(entries) == entries
