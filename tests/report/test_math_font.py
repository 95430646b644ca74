"""The font of formulas: it has their characters, is small, keeps its licence, and is where formulas are."""

import html
import re
from collections.abc import Iterator

import nbformat
import pytest

from transnormer_lib.ledger.claims import load
from transnormer_lib.project import find_project
from transnormer_lib.report.math_font import CHARACTERS, FONT, LICENCE, with_font
from transnormer_lib.report.render import notebook_html
from transnormer_lib.show.formulas import text_with_math

LARGEST = 48_000  # bytes; in a page a third more, beside 30 kB of styles and script


def formulas() -> Iterator[str]:
    """The formulas of all notebooks and claims."""
    for path in sorted((find_project().root / "notebooks").glob("*.ipynb")):
        shown = notebook_html(nbformat.read(path, as_version=4), int(path.name[:2]), (), lambda *_: "")
        yield from re.findall("<math.*?</math>", shown.lead + shown.body, re.DOTALL)
    for claim in load():
        yield from re.findall("<math.*?</math>", text_with_math(claim.statement), re.DOTALL)


def as_drawn(formula: str) -> str:
    """The characters that a browser looks for: an identifier of one letter is drawn in mathematical italics."""
    text = re.sub(r"<mi>(&\w+;|&#\w+;|.)</mi>", lambda one: italic(html.unescape(one[1])), formula)
    return html.unescape(re.sub("<[^>]+>", "", text))


def italic(letter: str) -> str:
    for first, last, start in (("A", "Z", 0x1D434), ("a", "z", 0x1D44E), ("Α", "Ω", 0x1D6E2), ("α", "ω", 0x1D6FC)):
        if first <= letter <= last:
            return "ℎ" if letter == "h" else chr(start + ord(letter) - ord(first))
    others = {"ϵ": 0x1D716, "ϑ": 0x1D717, "ϰ": 0x1D718, "ϕ": 0x1D719, "ϱ": 0x1D71A, "ϖ": 0x1D71B}
    return chr(others[letter]) if letter in others else letter


def test_the_font_has_every_character_of_every_formula() -> None:
    found = list(formulas())
    assert len(found) > 300
    missing = {character: formula for formula in found for character in as_drawn(formula)}
    assert {character: missing[character] for character in missing.keys() - CHARACTERS} == {}


def test_the_font_is_a_small_woff2_file_with_its_licence_beside_it() -> None:
    assert FONT.read_bytes()[:4] == b"wOF2"
    assert FONT.stat().st_size <= LARGEST
    licence = LICENCE.read_text(encoding="utf-8")
    assert "Copyright 2001-2021 The STIX Fonts Project Authors" in licence
    assert "SIL OPEN FONT LICENSE" in licence


def test_the_file_has_the_characters_that_it_should_and_a_name_of_its_own() -> None:
    pytest.importorskip("brotli", reason="WOFF2 cannot be read without brotli: pip install -e '.[fonts]'")
    from fontTools.ttLib import TTFont

    font = TTFont(FONT)
    assert set(map(ord, CHARACTERS)) <= set(font.getBestCmap())
    assert "MATH" in font
    assert [font["name"].getDebugName(number) for number in (1, 4, 6)] == [
        "Companion Math",
        "Companion Math",
        "CompanionMath",
    ]
    assert "Copyright" in font["name"].getDebugName(0)
    assert "SIL Open Font License" in font["name"].getDebugName(13)


def test_a_page_carries_the_font_once_if_it_has_a_formula() -> None:
    plain = "<html><head></head><body><p>T2</p></body></html>"
    assert with_font(plain) == plain
    carrying = with_font(plain.replace("T2", "<math><mi>x</mi></math>"))
    assert carrying.count("@font-face") == carrying.count("src:url(data:font/woff2;base64,") == 1
