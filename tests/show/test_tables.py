"""Tables of results: accessible, escaped, numbers aligned, and what cannot be a table refused."""

import re
from typing import Any

import pandas as pd
import pytest

from transnormer_lib.show.tables import table_html

ROWS = [
    {"method": "1+elu", "paper": 4.98, "ours": 5.0123456, "seeds": 3},
    {"method": "<script>x</script>", "paper": 797.08, "ours": None, "seeds": 3},
]


def cells(html: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html)


def test_headers_have_a_scope_and_the_first_column_heads_its_row() -> None:
    html = table_html(ROWS, caption="Perplexity")
    assert html.count('scope="col"') == 4
    assert html.count('scope="row"') == 2
    assert cells(html, "caption") == ["Perplexity"]


def test_a_frame_and_its_rows_give_the_same_table() -> None:
    assert table_html(pd.DataFrame(ROWS), caption="c") == table_html(ROWS, caption="c")


def test_text_is_escaped_and_formulas_are_shown() -> None:
    html = table_html(ROWS, caption="A <b> of $x^2$", note="see $\\phi$ & more")
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<math") == 2
    assert "A &lt;b&gt; of" in html


def test_formulas_are_set_in_the_columns_that_may_hold_them_and_nowhere_else() -> None:
    html = table_html([{"a": "costs $x$ & more", "b": "costs $x$ & more"}], caption="c", math=["b"])
    assert html.count("<math") == 1
    assert "costs $x$ &amp; more" in html


def test_numbers_are_short_and_published_ones_complete() -> None:
    html = table_html([{"m": "a", "paper": 155.98765, "ours": 155.98765}], caption="c", published=["paper"])
    assert cells(html, "td") == ["155.98765", "155.99"]
    assert 'class="tn-number tn-published"' in html


def test_a_missing_number_is_a_dash_and_keeps_its_column_numeric() -> None:
    html = table_html(ROWS, caption="c")
    assert cells(html, "td") == ["4.98", "5.0123", "3", "797.08", "–", "3"]
    assert html.count("tn-number") == 3 * 3


def test_a_wide_table_scrolls_in_a_box_that_the_keyboard_reaches() -> None:
    html = table_html([{f"column {i}": i for i in range(40)}], caption="c")
    assert html.startswith('<div class="tn-table" tabindex="0" role="group" aria-label="c">')


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"caption": " "}, "caption=' ': must say something"),
        ([], {"caption": "c"}, "rows=[]: a table needs at least one row"),
        ([{"a": 1}, {"b": 1}], {"caption": "c"}, "rows: all need the columns ['a']"),
        (ROWS, {"caption": "c", "published": ["theirs"]}, "published='theirs': no such column"),
        (ROWS, {"caption": "c", "math": ["theirs"]}, "math='theirs': no such column"),
    ],
    ids=["caption", "empty", "ragged", "published", "math"],
)
def test_what_is_no_table_is_refused(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"=|:") as error:
        table_html(rows, **options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([155.98765, 5.0123], ["155.99", "5.01"]),
        ([3.5, -3.4941], ["3.5000", "−3.4941"]),
        ([0.25, None, 1.0], ["0.25", "–", "1.00"]),
        ([0.0, 0.5, 2], ["0.0", "0.5", "2.0"]),
        ([0.00123, 4.5], ["0.00123", "4.50000"]),
        ([1e-9, 2.5], ["10⁻⁹", "2.5"]),
        ([float("inf"), 2.5], ["∞", "2.5"]),
        ([12, 3], ["12", "3"]),
    ],
    ids=["sizes", "minus", "gap", "zero", "small", "too far apart", "infinite", "whole"],
)
def test_the_numbers_of_a_column_have_equally_many_decimals(values: list[Any], shown: list[str]) -> None:
    html = table_html([{"name": "a", "value": value} for value in values], caption="c")
    assert cells(html, "td") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1.37 [-0.01, 2.75]", "1.37 [−0.01, 2.75]"), ("-1 to -.5", "−1 to −.5"), ("2-3", "2-3"), ("lr 1e-3", "lr 1e-3"),
     ("T-1", "T-1"), ("inf", "∞")],
)  # fmt: skip
def test_a_minus_inside_text_is_a_minus_sign(text: str, shown: str) -> None:
    assert cells(table_html([{"name": "a", "value": text}], caption="c"), "td") == [shown]


BOLD = re.compile(r"<b>(.*?)<span")


@pytest.mark.parametrize(
    ("values", "lowest", "highest"),
    [
        ([3.5, 2.25, None], ["2.25"], ["3.50"]),
        ([-1, -3], ["−3"], ["−1"]),
        ([1200, 2.5e7], ["1,200"], ["2.5·10⁷"]),
        (["3.50 (3.47 to 3.53)", "3.49 (2.90 to 3.60)"], ["3.49 (2.90 to 3.60)"], ["3.50 (3.47 to 3.53)"]),
        ([2, 2, 1], ["1"], ["2", "2"]),
        ([1.5, None], [], []),
        (["29.6 / 31.0", "none"], [], []),
        (["838 tokens", "1,024 tokens"], ["838 tokens"], ["1,024 tokens"]),
    ],
    ids=["numbers", "below zero", "thousands", "text", "ties", "nothing to compare", "two numbers", "grouped"],
)
def test_the_best_of_a_column_is_bold_and_named(values: list[Any], lowest: list[str], highest: list[str]) -> None:
    rows = [{"row": str(number), "loss": value} for number, value in enumerate(values)]
    for options, expected in (({"lowest": ["loss"]}, lowest), ({"highest": ["loss"]}, highest)):
        html = table_html(rows, caption="A", **options)
        assert BOLD.findall(html) == expected
        assert html.count("(best)") == len(expected)
        assert ("Bold: the best of its column." in html) == bool(expected)
    assert "<b>" not in table_html(rows, caption="A")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(3.5, 1), (2.25, 9)], "A. Best: b&amp;1, 2.25.</caption>"),
        ([(2.0, 1), (2.0, 1)], "A. Best: b&amp;0, b&amp;1, 2.</caption>"),
        ([(2.0, 1)] * 4, "A. 4 rows are equally good.</caption>"),
        ([(None, 1), (2.0, 1)], "<caption>A</caption>"),
    ],
    ids=["one", "ties", "too many to name", "nothing to compare"],
)
def test_a_caption_ends_with_the_best_row_of_its_column(rows: list[tuple[Any, Any]], says: str) -> None:
    found = [{"row": f"b&{number}", "loss": loss, "size": size} for number, (loss, size) in enumerate(rows)]
    assert says in table_html(found, caption="A", lowest=["loss"])
    assert "<caption>A</caption>" in table_html(found, caption="A")


def test_a_caption_says_which_row_is_best_in_most_columns() -> None:
    rows = [{"row": "a", "x": 1, "y": 1, "z": 9}, {"row": "b", "x": 2, "y": 3, "z": 3}]
    assert "A! Best in 2 of 3 columns: a.</caption>" in table_html(rows, caption="A!", lowest=["x", "y", "z"])
    html = table_html(rows, caption="A", lowest=["x"], highest=["y"])
    assert "A. Another row is best in each of the 2 columns.</caption>" in html


def test_published_numbers_have_as_many_decimals_as_the_most_that_one_has() -> None:
    html = table_html(
        [{"row": "a", "printed": 33.5}, {"row": "b", "printed": 31.01}], caption="A", published=["printed"]
    )
    assert ">33.50<" in html
    assert ">31.01<" in html
