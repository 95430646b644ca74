"""Every page of the quick and of the committed report in a real browser: phone to desktop, light and dark, on paper."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from browser_factory import CHECKOUT, REPORT, Open, Visit
from report_factory import CLAIMS, make_report

from transnormer_lib.project import Project
from transnormer_lib.report import publish
from transnormer_lib.report.compare import compare
from transnormer_lib.report.index import build_overview, build_report

pytestmark = pytest.mark.browser

NAMES = [*sorted(path.stem for path in (CHECKOUT / "notebooks").glob("*.ipynb")), "index", "found", "ledger", "terms"]
WIDTHS = (390, 820, 1440)
TALLEST = 12_000  # pixels of a page on a desktop before anything is unfolded
ON_PAPER = {"width": 718, "height": 1047}  # A4 in CSS pixels, inside margins of a centimetre
SHEETS = 12  # of a page on paper, as it opens
PUBLISHED = REPORT.parent / publish.FOLDER
# Every rule is tried on all pages, on a phone in light and on a desktop in dark. What folds is alike on the pages of
# notebooks, so that some stand for all where a page is looked at folded; and a tablet has the colours of a phone.
STAND_FOR_ALL = ("03", "11", "index", "ledger")
WITHOUT_CONTRAST = {"rules": {"color-contrast": {"enabled": False}}}

UNFOLD = "for (const fold of document.querySelectorAll('details')) fold.open = true"

# By how much the page is wider than the window.
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Formulas that take no room.
LOST_FORMULAS = """() => [...document.querySelectorAll("math")].filter((m) => m.checkVisibility()).filter((m) => {
  const box = m.getBoundingClientRect();
  return box.width < 3 || box.height < 5;
}).map((m) => m.textContent)"""
LANDS = """(hash) => {
  const target = document.getElementById(decodeURIComponent(hash.slice(1)));
  const box = target.getBoundingClientRect();
  const atEnd = Math.abs(document.documentElement.scrollHeight - innerHeight - scrollY) < 2;
  return target.checkVisibility() && (Math.abs(box.top) < 40 || (atEnd && box.top < innerHeight));
}"""
CUT_ON_PAPER = """(height) => [...document.querySelectorAll("figure, .tn-figure, img, svg.forest")]
  .filter((one) => one.checkVisibility())
  .filter((one) => one.getBoundingClientRect().height > height
    || (one.tagName === "FIGURE" && getComputedStyle(one).breakInside !== "avoid"))
  .map((one) => one.outerHTML.slice(0, 120))"""
WIDER_THAN_PAPER = """(width) => [...document.querySelectorAll("figure img, table, pre")]
  .filter((one) => one.checkVisibility())
  .filter((one) => one.getBoundingClientRect().right > width + 1)
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest, report: Path) -> Path:
    found = report / f"{request.param}.html"
    if not found.exists():
        pytest.skip(f"the report has no page {request.param}")
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_its_window_and_keeps_to_itself(path: Path, width: int, visit: Open) -> None:
    found = visit(path, width)
    for scheme in ("light", "dark"):
        found.page.emulate_media(color_scheme=scheme)
        assert (scheme, found.page.evaluate(SIDEWAYS) <= 0) == (scheme, True)
        assert (scheme, found.page.evaluate(LOST_FORMULAS)) == (scheme, [])
    found.check()


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (820, "light"), (1440, "dark")], ids=["phone", "tablet", "desktop-dark"]
)
def test_axe_finds_no_violation(path: Path, width: int, scheme: str, visit: Open) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit(path, width, scheme).page
    for fold in ("folded", "unfolded") if width != 820 and path.stem.startswith(STAND_FOR_ALL) else ("unfolded",):
        if fold == "unfolded":
            page.evaluate(UNFOLD)
        found = Axe().run(page, options=WITHOUT_CONTRAST if width == 820 else None).response["violations"]
        assert [(fold, one["id"], one["nodes"][0]["html"][:200]) for one in found] == []


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the two pages that are beside the presets' folders, each with all that it can show."""
    root = tmp_path_factory.mktemp("beside")
    make_report(root)
    build_report(root, "quick", CLAIMS)
    build_overview(root, "preset='fast': unknown")
    quick = root / "reports" / "quick" / "claims.json"
    other = [entry | {"verdict": "refuted", "measured": None} for entry in json.loads(quick.read_text())]
    (root / "other.json").write_text(json.dumps(other[1:]))
    compare(Project(root), ["quick", str(root / "other.json")])
    return root / "reports"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")], ids=["phone", "desktop-dark"])
@pytest.mark.parametrize("name", ["index", "compare"])
def test_a_page_beside_the_presets_is_sound(name: str, width: int, scheme: str, beside: Path, visit: Open) -> None:
    sound(visit(beside / f"{name}.html", width, scheme))


@pytest.mark.parametrize("name", sorted(path.stem for path in PUBLISHED.glob("*.html")))
def test_a_committed_page_is_sound_with_the_styles_beside_it(name: str, visit: Open) -> None:
    found = visit(PUBLISHED / f"{name}.html", 390)
    assert found.page.evaluate("[...document.styleSheets].filter((one) => one.href?.endsWith('.css')).length") > 0
    sound(found)


def sound(found: Visit) -> None:
    """Assert that all of a page fits its window, keeps to itself and breaks no rule of axe."""
    from axe_playwright_python.sync_playwright import Axe

    found.page.evaluate(UNFOLD)
    assert found.page.evaluate(SIDEWAYS) <= 0
    # Without axe's own request for the style sheets, which the page's policy forbids.
    violations = Axe().run(found.page, options={"preload": False}).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in violations] == []
    found.check()


def test_a_page_is_not_too_long_before_anything_is_unfolded(path: Path, visit: Open) -> None:
    assert visit(path).page.evaluate("document.documentElement.scrollHeight") <= TALLEST


def test_every_entry_of_the_contents_leads_to_its_part(path: Path, visit: Open) -> None:
    page = visit(path).page
    links = page.query_selector_all(".contents.wide a")
    assert bool(links) == path.stem[:2].isdigit()
    for link in links:
        link.click()
        address = str(link.get_attribute("href"))
        page.wait_for_function("(hash) => decodeURIComponent(location.hash) === hash", arg=unquote(address))
        page.wait_for_function(LANDS, arg=address, timeout=10_000)


def test_without_scripts_the_same_words_can_be_read(path: Path, visit: Open) -> None:
    def words(page: Any) -> list[str]:
        return re.findall(r"\w{4,}", page.evaluate("document.querySelector('main').innerText"))

    with_scripts, without = (visit(path, scripts=scripts).page for scripts in (True, False))
    # Without scripts nothing can be evaluated; the browser still lays the page out and says what is visible.
    seen = re.findall(r"\w{4,}", without.inner_text("main"))
    assert set(words(with_scripts)) - set(seen) <= {"Show", "code", "Search", "Filter", "Copy"} | _made(with_scripts)


def _made(page: Any) -> set[str]:
    """Words of what scripts make: filters, and figures that can be moved."""
    found = page.query_selector_all("form.filter, .tn-moves")
    return {word for one in found for word in re.findall(r"\w{4,}", one.inner_text())}


def test_on_paper_nothing_is_cut_and_a_page_takes_few_sheets(path: Path, visit: Open) -> None:
    """What is folded stays folded on paper; a reader who wants it unfolds it first."""
    page = visit(path).page
    assert len(re.findall(rb"/Type\s*/Page[^s]", page.pdf(format="A4"))) <= SHEETS
    page.set_viewport_size(ON_PAPER)
    page.emulate_media(media="print")
    for fold in ("as it opens", "all unfolded"):
        if fold == "all unfolded":
            page.evaluate(UNFOLD)
        assert (fold, page.evaluate(CUT_ON_PAPER, ON_PAPER["height"])) == (fold, [])
        assert (fold, page.evaluate(WIDER_THAN_PAPER, ON_PAPER["width"])) == (fold, [])


def test_the_report_has_all_its_pages(report: Path) -> None:
    assert {path.stem for path in report.glob("*.html")} == set(NAMES)
    assert report == REPORT
