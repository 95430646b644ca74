"""The pages' own style: text has enough contrast in light and dark, and nothing is faded."""

import re

import pytest

from transnormer_lib.show.templating import css

STYLE = str(css("report/templates/style.css"))
OUTPUTS = str(css("show/templates/outputs.css"))
LEAST = 4.5  # WCAG 2, level AA, for text of any size
TEXTS = ["--ink", "--soft", "--link", "--bad", "--k", "--s", "--c", "--n", "--f"]


def colours(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)[:2]
    return dict(re.findall(r"(--[\w-]+):(#[0-9a-f]{3,6})\b", light if scheme == "light" else dark))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_largest_contrast() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("ground", ["--paper", "--raised"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme: str, text: str, ground: str) -> None:
    found = colours(scheme)
    assert contrast(found[text], found[ground]) >= LEAST


@pytest.mark.parametrize("tone", ["good", "bad", "open"])
def test_verdicts_have_enough_contrast(tone: str) -> None:
    light, dark = re.findall(rf"--tn-{tone}:(#[0-9a-f]{{6}})", OUTPUTS)[:2]
    assert contrast(light, colours("light")["--paper"]) >= LEAST
    assert contrast(dark, colours("dark")["--paper"]) >= LEAST


def test_no_text_of_a_page_is_faded() -> None:
    assert "opacity" not in STYLE


def test_what_scrolls_shows_it_at_its_edge_and_print_shows_all_of_it() -> None:
    assert re.search(r"\.scroll,\.tn-table,pre\{[^}]*var\(--shade\)", STYLE)
    printed = STYLE[STYLE.index("@media print") :]
    assert re.search(r"details\.code[^{]*\{display:none", printed)
    assert ".scroll,.tn-table,pre{overflow:visible" in printed
