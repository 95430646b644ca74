"""Ways through the report in a real browser: from README to a claim's evidence, filters by keyboard, hostile text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser_factory import CHECKOUT, Open
from report_factory import CLAIMS, make_report

from transnormer_lib.report.index import build_report

pytestmark = pytest.mark.browser

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
IN_SIGHT = """(id) => {
  const box = document.getElementById(id).getBoundingClientRect();
  return box.bottom > 0 && box.top < innerHeight;
}"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with texts that would run a script or fetch a picture if they were not escaped."""
    root = tmp_path_factory.mktemp("hostile")
    make_report(root)
    build_report(root, "quick", CLAIMS)
    return root / "reports" / "quick"


def at(page: Any) -> str:
    return page.url.rpartition("/")[2]


def published(link: str) -> tuple[Path, str]:
    """The committed page that README's link leads to, and the part of it: the first click."""
    assert f"](reports/published/{link})" in README
    page, _, part = link.partition("#")
    return CHECKOUT / "reports" / "published" / page, f"#{part}" if part else ""


def reads(page: Any, record: str) -> dict[str, Any]:
    """The JSON of the page that was opened last."""
    page.wait_for_url(f"**/{record}")
    found: dict[str, Any] = json.loads(page.locator("pre").inner_text())
    return found


@pytest.mark.parametrize("width", [390, 1440], ids=["phone", "desktop"])
@pytest.mark.parametrize("scale", ["quick", "night"])
@pytest.mark.parametrize(
    "bears", ["[data-thesis='']", "[data-thesis]:not([data-thesis=''])"], ids=["on-no-thesis", "on-a-thesis"]
)
def test_three_clicks_lead_from_readme_to_the_record_of_any_claim(
    bears: str, scale: str, width: int, visit: Open
) -> None:
    page = visit(published("ledger.html")[0], width).page
    group = page.locator("details.group", has=page.locator(f"tr{bears}[data-scale={scale}]")).last
    row = group.locator(f"tr{bears}[data-scale={scale}]").last
    notebook, claim = row.get_attribute("data-notebook"), str(row.get_attribute("id")).removeprefix("claim-")
    group.locator("summary").first.click()
    row.get_by_role("link", name="record", exact=True).click()
    record = reads(page, f"{notebook}.json")
    assert (record["notebook"], record["preset"]) == (notebook, scale)
    assert scale == "quick" or claim in [entry["id"] for entry in record["claims"]]


def test_every_row_of_the_committed_ledger_is_below_one_fold_and_leads_to_a_record(visit: Open) -> None:
    page = visit(published("ledger.html")[0]).page
    rows = page.locator("tr[id^=claim-]")
    records = page.locator("details.group > table tr[id^=claim-] .ways > a[href$='.json']")
    assert records.count() == rows.count() > 0
    assert page.locator("details details tr[id^=claim-]").count() == 0


ANSWERS = re.findall(r"\]\(reports/published/(index\.html#thesis-[\w-]+)\)", README)


@pytest.mark.parametrize(
    ("link", "width"), [(ANSWERS[0], 390), (ANSWERS[0], 1440), (ANSWERS[-1], 390)], ids=["phone", "desktop", "last"]
)
def test_three_clicks_lead_from_an_answer_in_readme_to_a_run_s_record(link: str, width: int, visit: Open) -> None:
    path, part = published(link)
    page = visit(path, width, fragment=part).page
    claim = page.locator(f"{part} .why li a[href*='#claim-']").first
    there = str(claim.get_attribute("href"))
    claim.click()
    page.wait_for_url(f"**/{there}")
    assert page.evaluate(IN_SIGHT, there.partition("#")[2])
    page.get_by_role("link", name="the run's record").click()
    assert reads(page, "records/*.json")["notebook"] in there


QUESTIONS = ["Does it hold?", "Why?", "How fast?", "What is wrong?", "Run a number again", "Notebooks"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_of_the_front_page_is_one_tap_from_its_answer_on_a_phone(
    question: str, report: Path, visit: Open
) -> None:
    page = visit(report / "index.html", 390).page
    link = page.get_by_role("navigation", name="Questions").get_by_role("link", name=question)
    box = link.bounding_box()
    assert box["y"] + box["height"] < 200  # on the first screen
    page.evaluate("scrollTo(0, document.body.scrollHeight)")  # and it stays in sight
    link.click()
    page.wait_for_load_state()
    if "#" not in at(page):
        assert page.locator("h1").first.is_visible()
        return
    anchor = at(page).partition("#")[2]
    assert page.evaluate(IN_SIGHT, anchor)
    if anchor == "why":
        assert page.get_by_role("table", name="Causes").locator("tbody tr").count() > 0
    if anchor.startswith("thesis-"):
        assert page.locator(f"[id='{anchor}'] .why").is_visible()


def test_the_contents_of_a_page_mark_where_one_is(report: Path, visit: Open) -> None:
    page = visit(report / "04_autoregressive_lm.html").page
    headings = page.locator("article h2")
    for number in (1, 3):
        heading = headings.nth(number)
        heading.evaluate("(node) => node.scrollIntoView()")
        name = heading.get_attribute("id")
        page.wait_for_function(
            "(name) => document.querySelector('.contents.wide [aria-current]')?.hash === '#' + name", arg=name
        )
        assert page.locator(".contents.wide [aria-current]").count() == 1


def test_the_contents_stay_in_sight_on_a_phone_and_fold_when_one_has_chosen(report: Path, visit: Open) -> None:
    page = visit(report / "04_autoregressive_lm.html", 390).page
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    contents = page.locator(".contents.narrow")
    summary = contents.locator("summary")
    assert summary.bounding_box()["y"] < 60
    summary.click()
    link = contents.locator("a").nth(2)
    name = str(link.get_attribute("href")).removeprefix("#")
    link.click()
    assert contents.get_attribute("open") is None
    assert page.evaluate(IN_SIGHT, name)


def test_a_claim_leads_to_the_code_that_measured_it_and_to_its_row_in_the_ledger(report: Path, visit: Open) -> None:
    page = visit(report / "01_gradient_theory.html", fragment="#claim-eq-9").page
    ways = page.locator("[id='row-eq-9'] .ways, [id='claim-eq-9'] .ways").first
    ways.get_by_role("link", name="code").click()
    code = page.evaluate("location.hash.slice(1)")
    assert page.evaluate("(id) => document.getElementById(id).open", code)
    page.go_back()
    ways.get_by_role("link", name="ledger").click()
    page.wait_for_url("**/ledger.html#claim-eq-9")
    assert page.evaluate(IN_SIGHT, "claim-eq-9")


def test_the_filters_are_set_by_keyboard_and_kept_in_the_address(report: Path, visit: Open) -> None:
    page = visit(report / "ledger.html").page
    total = page.locator("table.claims tbody tr").count()
    search = page.get_by_role("searchbox")
    search.focus()
    page.keyboard.type("softmax")
    found = page.locator("table.claims tbody tr:visible").count()
    assert 0 < found < total
    assert page.locator("output").inner_text() == f"{found} of {total}"
    assert at(page) == "ledger.html#words=softmax"
    page.keyboard.press("Tab")  # to the papers
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    fewer = page.locator("table.claims tbody tr:visible").count()
    assert 0 < fewer < found
    assert "&paper=" in at(page)
    page.reload()
    assert page.locator("table.claims tbody tr:visible").count() == fewer
    page.get_by_role("button", name="Show all").press("Enter")
    page.wait_for_function("!location.hash.includes('=')")
    assert page.locator("output").inner_text() == f"{total} of {total}"
    assert page.locator("table.claims tbody tr:visible").count() == 0  # folded again


@pytest.mark.parametrize("place", [0, 0.5, 1], ids=["first", "middle", "last"])
def test_a_claim_s_address_clears_the_filter_opens_its_fold_and_brings_it_in_sight(
    place: float, report: Path, visit: Open
) -> None:
    page = visit(report / "ledger.html", fragment="#words=no-such-claim").page
    assert page.locator("table.claims tbody tr:visible").count() == 0
    anchors = page.evaluate("[...document.querySelectorAll('tr[id^=claim-]')].map((row) => row.id)")
    wanted = anchors[round(place * (len(anchors) - 1))]
    page.evaluate("(id) => { location.hash = id; }", wanted)
    page.locator(f"[id='{wanted}']").wait_for()
    assert page.evaluate(IN_SIGHT, wanted)


def test_a_reader_s_own_folds_stay_open(report: Path, visit: Open) -> None:
    page = visit(report / "ledger.html").page
    for number in (0, 1):
        page.locator("details.group").nth(number).locator("summary").first.click()
    page.locator("details.group").nth(1).locator("a[href^='#claim-']").first.click()
    assert page.locator("details.group[open]").count() == 2


def test_a_count_on_the_front_page_shows_just_those_claims(report: Path, visit: Open) -> None:
    page = visit(report / "index.html").page
    count = page.locator(".score a").first
    number = int(count.locator("b").inner_text())
    count.click()
    page.wait_for_load_state()
    assert page.locator("table.claims tbody tr:visible").count() == number


def test_code_unfolds_by_one_switch_that_is_remembered(report: Path, visit: Open) -> None:
    page = visit(report / "01_gradient_theory.html").page
    page.get_by_role("button", name="Show all code").click()
    assert page.locator("details.code:not([open])").count() == 0
    page.goto((report / "02_gradient_stability.html").resolve().as_uri())
    assert page.locator("details.code:not([open])").count() == 0
    page.get_by_role("button", name="Show all code").click()
    assert page.locator("details.code[open]").count() == 0


def test_a_figure_leads_to_the_code_that_draws_it_and_to_its_values(report: Path, visit: Open) -> None:
    page = visit(report / "01_gradient_theory.html").page
    caption = page.locator("figcaption").first
    assert caption.inner_text().startswith("Figure 1.1.")
    with page.expect_download() as saved:
        caption.get_by_role("link", name="Values (CSV)").click()
    assert Path(saved.value.path()).read_text().startswith("panel,series,x,y,value\n")
    caption.get_by_role("link", name="Code").click()
    code = page.evaluate("location.hash.slice(1)")
    assert page.evaluate(IN_SIGHT, code)
    assert page.evaluate("(id) => document.getElementById(id).open", code)


@pytest.mark.parametrize("name", ["index", "ledger", "01_theory", "02_table"])
def test_text_from_data_stays_text(name: str, hostile: Path, visit: Open) -> None:
    found = visit(hostile / f"{name}.html")
    found.page.wait_for_load_state("networkidle")
    found.check()
    assert found.page.locator("img[src*=evil]").count() == 0


def test_the_hostile_statement_is_shown_as_it_is_written(hostile: Path, visit: Open) -> None:
    page = visit(hostile / "ledger.html").page
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert "<script>alert('x')</script>" in page.locator("main").inner_text()
