"""A notebook's page: offline, escaped, with working contents, its claims on top and its provenance at the end."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest
import yaml
from markupsafe import escape
from page_checks import Page, check_page
from report_factory import (
    ABSENT,
    CLAIMS,
    HOSTILE,
    MEASURED,
    TABLE,
    THEORY,
    claim,
    fail,
    make_report,
    record_json,
    write_record,
)

from transnormer_lib.ledger.measurements import Measurements
from transnormer_lib.report.index import Summary, build_report
from transnormer_lib.report.pages import outside_resources, provenance_facts
from transnormer_lib.show.claims import bundle

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def display(**data: Any) -> nbformat.NotebookNode:
    kinds = {
        "html": "text/html",
        "text": "text/plain",
        "png": "image/png",
        "latex": "text/latex",
        "js": "application/javascript",
    }
    return nbformat.v4.new_output("display_data", data={kinds[name]: value for name, value in data.items()})


def stream(text: str, name: str = "stdout") -> nbformat.NotebookNode:
    return nbformat.v4.new_output("stream", name=name, text=text)


def build(root: Path) -> Summary:
    return build_report(root, "quick", CLAIMS)


def page_of(root: Path, name: str = THEORY) -> Path:
    return root / "reports" / "quick" / f"{name}.html"


def set_markdown(root: Path, name: str, text: str) -> None:
    """Put ``text`` into the notebook's second Markdown cell, in its source and its executed copy."""
    for path in (root / "notebooks" / f"{name}.ipynb", root / "reports" / "quick" / f"{name}.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        next(cell for cell in notebook.cells if cell.id == "more").source = text
        nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    outputs = [
        stream(f"step 1 \x1b[32mgreen\x1b[0m {HOSTILE}"),
        stream(f"warned {HOSTILE}", "stderr"),
        display(text=f"plain {HOSTILE}"),
        display(html="<table><tr><td>a frame</td></tr></table>", text="a frame"),
        display(png=PNG, text="a picture"),
        display(latex=r"$\frac{1}{2}$"),
        display(js="alert('no')", text="a widget"),
    ]
    make_report(root, outputs)
    build(root)
    return root


def test_only_a_page_with_a_figure_that_moves_runs_the_script_of_its_kind(tmp_path: Path) -> None:
    moving = "<figure id='fig-a' class='tn-figure'{}><img alt='a' src='data:,'><figcaption>A</figcaption></figure>"
    data = escape(json.dumps({"label": HOSTILE}))
    make_report(tmp_path, [display(html=moving.format(f' data-movable="cost" data-values="{data}"'))])
    build(tmp_path)
    page = check_page(page_of(tmp_path))
    assert [script.strip().splitlines()[1][:7] for script in page.scripts] == [
        "// A no",
        "// A li",
        "// What",
        "// Cost",
    ]
    assert [code for code in page.scripts if "alert" in code] == []
    assert check_page(page_of(tmp_path, ABSENT)).movable == set()


@pytest.mark.parametrize("name", [THEORY, TABLE, ABSENT])
def test_a_page_loads_nothing_and_all_its_links_and_contents_resolve(built: Path, name: str) -> None:
    page = check_page(page_of(built, name))
    assert [link for link in page.links if link.startswith("#")]


def test_hostile_text_of_streams_results_and_statements_is_shown_as_text(built: Path) -> None:
    html = page_of(built).read_text()
    assert html.count("<script") == 2  # the page's own
    assert "evil.example" in html
    assert not re.search(r"<img[^>]*evil", html)
    page = Page(page_of(built))
    assert page.text.count("<script>alert('x')</script>") >= 4


def test_every_heading_of_the_notebook_stands_in_the_contents_under_its_own_anchor(built: Path) -> None:
    page = Page(page_of(built))
    assert {"section-one", "section-one-2"} <= set(page.ids)
    for anchor in ("section-one", "section-one-2", "a-part-with-xi", "provenance"):
        assert f"#{anchor}" in page.links


def test_formulas_are_mathml_and_no_dollars_or_macros_are_left(built: Path) -> None:
    html = page_of(built).read_text()
    assert html.count("<mfrac") >= 2
    assert 'display="block"' in html
    assert "$" not in Page(page_of(built)).text
    assert r"\frac" not in Page(page_of(built)).text


def test_code_is_there_and_folded(built: Path) -> None:
    html = page_of(built).read_text()
    blocks = re.findall(r'<details class="code[^"]*"[^>]*>', html)
    assert len(blocks) == 5
    assert not any("open" in block for block in blocks)
    assert "Parameters and their defaults" in html


def test_code_is_marked_where_the_mark_has_a_colour_and_nowhere_else(tmp_path: Path) -> None:
    code = "x = f(1.5) + 'a<b'  # why\nfor y in {x}: print(y)"
    report_dir = make_report(tmp_path)
    path = report_dir / f"{THEORY}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].source = code
    nbformat.write(notebook, path)
    write_record(report_dir, THEORY)
    build(tmp_path)
    html = page_of(tmp_path).read_text()
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", html, re.DOTALL)
    assert code in [unescape(re.sub(r"<[^>]+>", "", block)).strip() for block in blocks]
    marked = {mark for block in blocks for mark in re.findall(r'<span class="(\w+)">', block)}
    assert marked >= {"k", "ow", "mf", "s1", "c1", "nb"}
    assert {mark for mark in marked if f".highlight .{mark}" not in html} <= {"kt"}


def test_claims_stand_before_the_text_failures_first_with_their_counts(built: Path) -> None:
    text = Page(page_of(built)).text
    summary = text[
        text.index("Claims checked here") : text.index("Section one", text.index("Claims checked here") + 600)
    ]
    assert summary.index("bound-breaks") < summary.index("unmeasured") < summary.index("bound-holds")
    assert "the notebook ran and did not measure it" in summary


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.notebook in MEASURED], ids=lambda claim: claim.id)
def test_every_claim_has_one_anchor_on_its_page(built: Path, claim: Any) -> None:
    assert Page(page_of(built, claim.notebook)).ids.count(f"claim-{claim.id}") == 1


def test_the_page_ends_with_all_of_its_provenance_and_the_command_that_makes_it_again(built: Path) -> None:
    text = Page(page_of(built)).text
    record = json.loads((page_of(built).parent / "records" / f"{THEORY}.json").read_text())
    for part in (
        "make report PRESET=quick ONLY=01", "1234567890ab with local changes", "2026-01-02 03:04 UTC", "12 s",
        "512 MB", "A processor, 2 cores", "steps", "300", "sha256:00ff", "2.13.0", record["digest"],
    ):  # fmt: skip
        assert part in text[text.rindex("How this page was made") :], part


@pytest.mark.parametrize(
    ("training", "told"),
    [({"242.25": 242.25}, "12 s, beside 242 s of training"), ({}, "12 s"), (None, "12 s")],
    ids=["trained", "trains-nothing", "not-recorded"],
)
def test_the_page_begins_and_ends_with_the_time_of_the_notebook_and_of_its_training(
    training: Any, told: str, tmp_path: Path
) -> None:
    report_dir = make_report(tmp_path)
    recorded = record_json(THEORY)["provenance"] | ({} if training is None else {"training": training})
    write_record(report_dir, THEORY, provenance=recorded)
    build(tmp_path)
    assert f"preset quick, {told}, A processor, 2 cores" in Page(page_of(tmp_path)).text
    facts = provenance_facts({"provenance": recorded})
    assert dict(facts)["took"] == told


def test_the_page_adapts_to_dark_mode_phones_and_print(built: Path) -> None:
    html = page_of(built).read_text()
    assert "@media (prefers-color-scheme:dark)" in html
    assert '<meta name="color-scheme" content="light dark">' in html
    assert "@media print" in html
    assert 'content="width=device-width, initial-scale=1"' in html


def test_the_style_of_outputs_is_there_once(built: Path) -> None:
    assert page_of(built).read_text().count('<style class="tn-outputs">') == 1


def test_a_picture_without_description_does_not_break_the_page(built: Path) -> None:
    assert f"data:image/png;base64,{PNG}" in page_of(built).read_text()


def test_a_card_shows_the_ledgers_verdict_and_not_the_one_of_the_run(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    path = report_dir / f"{THEORY}.ipynb"
    path.write_text(path.read_text().replace("does not hold", "STALE"))
    build(tmp_path)
    assert "STALE" not in page_of(tmp_path).read_text()


@pytest.mark.parametrize(("many", "rows"), [(3, 3), (4, 1)], ids=["few", "many"])
def test_many_claims_of_one_cell_that_were_not_run_are_one_row(tmp_path: Path, many: int, rows: int) -> None:
    report_dir = make_report(tmp_path)
    path = report_dir / f"{TABLE}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    members = [claim(f"absent-{number}", "number", TABLE, locus=f"Table {number}") for number in range(many)]
    measurements = Measurements(TABLE, "quick", [*CLAIMS, *members])
    recorded = [measurements.not_run(member.id, "the data are <absent>") for member in members]
    outputs = [nbformat.v4.new_output("display_data", data=bundle(recorded))]
    notebook.cells.append(nbformat.v4.new_code_cell("absent", id="absent", execution_count=99, outputs=outputs))
    nbformat.write(notebook, path)
    write_record(report_dir, TABLE)
    build_report(tmp_path, "quick", [*CLAIMS, *members])
    html = page_of(tmp_path, TABLE).read_text()
    assert [html.count(f'id="claim-{member.id}"') for member in members] == [1] * many
    text = html.split("<main", 1)[-1]
    assert text.count("The data are &lt;absent&gt;.") == rows


def test_parameters_that_differ_from_the_notebooks_defaults_come_first_and_are_marked(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    source = tmp_path / "notebooks" / f"{THEORY}.ipynb"
    source.write_text(source.read_text().replace('scale: str = \\"quick\\"', "seeds: list = [0, 1]\\nsteps: int = 9"))
    write_record(report_dir, THEORY, parameters={"seeds": [0, 1], "steps": 300})
    build(tmp_path)
    html = page_of(tmp_path).read_text()
    assert re.search(r"<code>steps</code></th><td><mark>300</mark></td><td>9</td>", html)
    folded = html[html.index("1 parameter has its default") :]
    assert "<dt>seeds</dt><dd>0, 1</dd>" in folded


@pytest.mark.parametrize("formula", [r"$\foo$", r"$$\begin{nothing} a \end{nothing}$$"], ids=["macro", "environment"])
def test_a_formula_that_cannot_be_shown_fails_its_page_and_no_other(tmp_path: Path, formula: str) -> None:
    make_report(tmp_path)
    set_markdown(tmp_path, THEORY, f"Text {formula}")
    summary = build(tmp_path)
    assert [failed.notebook for failed in summary.failed] == [THEORY]
    assert formula.strip("$") in summary.failed[0].line
    assert "This page cannot show its notebook" in check_page(page_of(tmp_path)).text
    check_page(page_of(tmp_path, TABLE))
    assert [failed.notebook for failed in build(tmp_path).failed] == [THEORY]


@pytest.mark.slow
@pytest.mark.parametrize(
    "html",
    [
        "<script src='https://x.example/a.js'></script>",
        "<script>1</script>",
        "<link rel=stylesheet href=https://x.example/a.css>",
        "<img src='//x.example/a.png'>",
        "<img src=local.png>",
        "<div style=\"background:url('https://x.example/a.png')\"></div>",
        "<style>@import 'https://x.example/a.css';</style>",
        "<iframe src=https://x.example></iframe>",
        "<video poster=https://x.example/a.png></video>",
    ],
)
def test_an_output_that_would_load_something_fails_its_page(tmp_path: Path, html: str) -> None:
    assert outside_resources(html)
    make_report(tmp_path, [display(html=html)])
    summary = build(tmp_path)
    assert {failed.notebook for failed in summary.failed} == {THEORY, TABLE}
    assert "would load" in summary.failed[0].line
    check_page(page_of(tmp_path))


def test_hyperlinks_and_embedded_images_load_nothing() -> None:
    html = '<a href="https://x.example">x</a><img src="data:image/png;base64,AA"><svg><use href="#a"/></svg>'
    assert outside_resources(html) == []


def test_a_failed_notebooks_page_starts_with_one_line_and_what_was_kept(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    fail(report_dir, THEORY, "code cell 3: ValueError: wrong")
    build(tmp_path)
    page = check_page(page_of(tmp_path))
    banner = page.text.index("This notebook failed: code cell 3: ValueError: wrong")
    assert banner < page.text.index("Claims checked here")
    assert "1 of its 4 claims were measured and are kept" in page.text
    assert f"{THEORY}.ipynb" in page.links
    assert "ValueError" in page.text[page.text.index("Section one") :]
    assert page_of(tmp_path).read_text().count("<script") == 2


def test_a_notebook_that_never_ran_shows_its_text_and_says_so(built: Path) -> None:
    text = check_page(page_of(built, ABSENT)).text
    assert "This notebook has not been run at this preset." in text
    assert "make report PRESET=quick ONLY=03" in text


def test_neighbours_are_linked_in_the_order_of_the_notebooks(built: Path) -> None:
    links = Page(page_of(built, TABLE)).links
    assert f"{THEORY}.html" in links
    assert f"{ABSENT}.html" in links
    assert f"{ABSENT}.html" not in Page(page_of(built, THEORY)).links


def test_a_page_is_rendered_again_only_when_what_it_shows_changed(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    build(tmp_path)
    pages = {name: page_of(tmp_path, name) for name in (THEORY, TABLE)}
    before = {name: path.stat().st_mtime_ns for name, path in pages.items()}
    build(tmp_path)
    assert before == {name: path.stat().st_mtime_ns for name, path in pages.items()}
    write_record(report_dir, TABLE, parameters={"steps": 301})
    build(tmp_path)
    after = {name: path.stat().st_mtime_ns for name, path in pages.items()}
    assert after[THEORY] == before[THEORY]
    assert after[TABLE] > before[TABLE]


def test_the_same_report_is_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        make_report(tmp_path / name)
        build(tmp_path / name)
        texts.append(page_of(tmp_path / name).read_bytes())
    assert texts[0] == texts[1]


def test_a_title_with_markup_is_shown_as_text(tmp_path: Path) -> None:
    make_report(tmp_path)
    path = tmp_path / "notebooks" / f"{THEORY}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source = f"# A {HOSTILE} title\n\nAbstract {HOSTILE}"
    nbformat.write(notebook, path)
    write_record(tmp_path / "reports" / "quick", THEORY)
    build(tmp_path)
    check_page(page_of(tmp_path))
    check_page(tmp_path / "reports" / "quick" / "index.html")


def test_the_executed_notebook_and_its_parameters_can_be_kept(built: Path) -> None:
    links = Page(page_of(built)).links
    assert f"{THEORY}.ipynb" in links
    (parameters,) = [link for link in links if link.startswith("data:text/yaml")]
    assert yaml.safe_load(unquote(parameters.partition(",")[2])) == {"scale": "quick", "steps": 300, "seeds": [0, 1]}
    assert not [link for link in Page(page_of(built, ABSENT)).links if link.startswith("data:")]


def test_headings_have_a_link_to_themselves(built: Path) -> None:
    html = page_of(built).read_text()
    assert '<a class="anchor" href="#section-one-2" aria-label="Link to this part">' in html


def test_a_link_to_another_notebook_leads_to_its_page(tmp_path: Path) -> None:
    make_report(tmp_path)
    set_markdown(tmp_path, THEORY, f"## More\n\n[the table]({TABLE}.ipynb#section-one), [a file](data.ipynb).")
    (tmp_path / "reports" / "quick" / "data.ipynb").write_text("{}")
    build(tmp_path)
    links = check_page(page_of(tmp_path)).links
    assert f"{TABLE}.html#section-one" in links
    assert "data.ipynb" in links


@pytest.mark.parametrize(("lines", "folded"), [(8, False), (9, True)])
def test_long_printed_output_is_folded_and_whole(tmp_path: Path, lines: int, folded: bool) -> None:
    make_report(tmp_path, [stream("\n".join(f"line {n} {HOSTILE}" for n in range(lines)))])
    build(tmp_path)
    page = check_page(page_of(tmp_path))
    assert (f"Printed {lines} lines" in page.text) is folded
    assert all(f"line {n} {HOSTILE}" in page.text for n in range(lines))


def test_many_claims_of_one_cell_are_folded_with_their_counts_and_anchors_outside(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    path = report_dir / f"{TABLE}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    members = [claim(f"many-{number}", "property", TABLE) for number in range(4)]
    measurements = Measurements(TABLE, "quick", [*CLAIMS, *members])
    recorded = [measurements.property(member.id, value=1, expected=1) for member in members]
    outputs = [nbformat.v4.new_output("display_data", data=bundle(recorded))]
    notebook.cells.append(nbformat.v4.new_code_cell("many", id="many", execution_count=99, outputs=outputs))
    nbformat.write(notebook, path)
    write_record(report_dir, TABLE)
    build_report(tmp_path, "quick", [*CLAIMS, *members])
    check_page(page_of(tmp_path, TABLE))
    html = page_of(tmp_path, TABLE).read_text()
    article = html[html.index("<article>") :]
    fold = article.index("Claims measured here: 4 ")
    for member in members:
        assert article.index(f'<span id="claim-{member.id}" data-row="row-{member.id}">') < fold
        assert article.count(f'<tr id="row-{member.id}"') == 1
