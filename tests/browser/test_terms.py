"""Definitions in a real browser: by key, by tap and without scripts, inside the window; the font of formulas."""

from pathlib import Path
from typing import Any

import pytest
from browser_factory import Open

pytestmark = pytest.mark.browser

PAGES = ["04_autoregressive_lm", "index", "found", "ledger"]
# Marks in sight whose definition does not lie within the window.
OUTSIDE = """() => [...document.querySelectorAll(".term button")].filter((one) => one.checkVisibility())
  .filter((button) => {
  button.scrollIntoView({ block: "nearest" });
  const definition = document.getElementById(button.getAttribute("popovertarget"));
  definition.showPopover({ source: button });
  const box = definition.getBoundingClientRect();
  definition.hidePopover();
  return box.left < 0 || box.top < 0 || box.right > innerWidth || box.bottom > innerHeight || box.height < 20;
}).map((button) => button.ariaLabel)"""
# Marks whose button does not lie over their word.
BESIDE = """() => [...document.querySelectorAll(".term")].filter((one) => one.checkVisibility()).filter((one) => {
  const word = one.getBoundingClientRect(), over = one.querySelector("button").getBoundingClientRect();
  return one.getClientRects().length > 1 || over.left > word.left || over.right < word.right || over.height < 12;
}).map((one) => one.textContent)"""
UNFOLD = "for (const fold of document.querySelectorAll('details')) fold.open = true"


def first(page: Any) -> Any:
    return page.locator("main p .term button:visible").first


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_tap_and_a_key_show_a_definition_on_a_phone(name: str, scripts: bool, report: Path, visit: Open) -> None:
    page = visit(report / f"{name}.html", 390, scripts=scripts).page
    if name == "ledger":
        page.locator("details.group summary").first.tap()
    mark = first(page)
    definition = page.locator(f"#{mark.get_attribute('popovertarget')}")
    assert not definition.is_visible()
    mark.tap()
    definition.wait_for()
    box = definition.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 900
    page.keyboard.press("Escape")
    definition.wait_for(state="hidden")
    mark.focus()
    page.keyboard.press("Enter")
    definition.wait_for()


@pytest.mark.parametrize("width", [390, 820, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_every_definition_is_inside_the_window_and_every_button_over_its_word(
    name: str, width: int, report: Path, visit: Open
) -> None:
    page = visit(report / f"{name}.html", width).page
    page.evaluate(UNFOLD)
    assert page.evaluate(BESIDE) == []
    assert page.evaluate(OUTSIDE) == []


def test_resting_on_a_word_shows_its_definition(report: Path, visit: Open) -> None:
    page = visit(report / "found.html").page
    if not page.evaluate("'interestForElement' in HTMLButtonElement.prototype"):
        pytest.skip("this browser has no interest invokers")
    mark = first(page)
    mark.hover()
    page.locator(f"#{mark.get_attribute('popovertarget')}").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")], ids=["phone", "desktop-dark"])
def test_axe_finds_no_violation_while_a_definition_is_shown(width: int, scheme: str, report: Path, visit: Open) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit(report / "04_autoregressive_lm.html", width, scheme).page
    first(page).click()
    page.locator(".definition:popover-open").wait_for()
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []


def test_on_paper_there_are_neither_marks_nor_definitions(report: Path, visit: Open) -> None:
    page = visit(report / "found.html").page
    first(page).click()
    page.emulate_media(media="print")
    assert page.locator(".definition:visible").count() == 0
    assert page.locator(".term button:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.term')).textDecorationLine") == "none"


def test_the_glossary_is_reached_from_a_definition(report: Path, visit: Open) -> None:
    page = visit(report / "found.html").page
    mark = first(page)
    anchor = mark.get_attribute("popovertarget")
    mark.click()
    page.locator(".definition:popover-open a").click()
    page.wait_for_url(f"**/terms.html#{anchor}")
    assert page.locator(f"[id='{anchor}'] dt").is_visible()


@pytest.mark.parametrize("name", ["01_gradient_theory", "04_autoregressive_lm"])
def test_formulas_are_drawn_in_the_font_that_the_page_carries(name: str, report: Path, visit: Open) -> None:
    found = visit(report / f"{name}.html")
    page = found.page
    page.evaluate("document.fonts.ready")
    assert page.evaluate("[...document.fonts].map((font) => [font.family, font.status])") == [
        ["Companion Math", "loaded"]
    ]
    devtools = page.context.new_cdp_session(page)
    devtools.send("DOM.enable")
    devtools.send("CSS.enable")
    root = devtools.send("DOM.getDocument")["root"]["nodeId"]
    shown = "main .prose > p math :is(mi, mn)"
    node = devtools.send("DOM.querySelector", {"nodeId": root, "selector": shown})["nodeId"]
    fonts = devtools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    assert {(font["familyName"], font["isCustomFont"]) for font in fonts} == {("Companion Math", True)}
    found.check()
