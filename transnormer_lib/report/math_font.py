"""The font of formulas, which a page with formulas carries in itself: not every system has one with a MATH table.

``fonts/companion-math.woff2`` is a subset of STIX Two Math under the SIL Open Font License, ``fonts/OFL.txt``. It is
committed, because neither the original font nor a WOFF2 encoder is among the dependencies, and because the same bytes
give the same pages everywhere. It is made again, with another list of characters, by

    pip download --no-deps ziamath==0.13 && unzip ziamath-0.13-py3-none-any.whl ziamath/fonts/STIXTwoMath-Regular.ttf
    pip install fonttools brotli && python -m transnormer_lib.report.math_font ziamath/fonts/STIXTwoMath-Regular.ttf

A subset is a modified version in the licence's words, so it has a name of its own, keeps the notices of the original,
and stays under the same licence.
"""

import base64
import sys
from functools import cache
from pathlib import Path

from markupsafe import Markup

FONTS = Path(__file__).parent / "fonts"
FONT, LICENCE = FONTS / "companion-math.woff2", FONTS / "OFL.txt"
NAME = "Companion Math"
_ORIGINAL = "Version 2.11 b159"  # of the font that the subset was made from

_CAPITALS, _SMALL = range(0x391, 0x3AA), range(0x3B1, 0x3CA)  # Greek
_ITALIC = (range(0x1D434, 0x1D468), range(0x210E, 0x210F), range(0x1D6E2, 0x1D71C))  # Latin, its h, Greek
_BOLD = (range(0x1D400, 0x1D434), range(0x1D7CE, 0x1D7D8), range(0x1D6AB, 0x1D6AC), range(0x1D6BA, 0x1D6BB))
_SIGNS = "\xa0¬¯±·×ϑϕϖϰϱϵˆ˜‖…′″‾⁡⁢⁣\u0302\u0303\u0304\u20d7ℝℕℤℒ𝔼←→↔⇒⇔↦∀∃∂∅∇∈∉∋∏∑−∓∘∙√∝∞∣∥∧∨∩∪∫∼≃≈≠≡≤≥≪≫⊂⊆⊕⊗⊙⊤⊥⋅⋯⋮⋱⌈⌉⌊⌋⏞⏟⟨⟩"
_RANGES = (range(0x20, 0x7F), _CAPITALS, _SMALL, *_ITALIC, *_BOLD)
_UNASSIGNED = frozenset("\u03a2\U0001d455")  # gaps in these ranges
CHARACTERS = frozenset(_SIGNS) | {chr(code) for codes in _RANGES for code in codes} - _UNASSIGNED


def with_font(html: str) -> str:
    """The page, which carries the font if it has a formula."""
    return html.replace("</head>", f"{_style()}\n</head>", 1) if "<math" in html else html


@cache
def _style() -> Markup:
    source = base64.b64encode(FONT.read_bytes()).decode("ascii")
    notice = "Companion Math: a subset of STIX Two Math, (c) The STIX Fonts Project Authors, SIL Open Font License 1.1"
    face = f'@font-face{{font-family:"{NAME}";src:url(data:font/woff2;base64,{source}) format("woff2")}}'
    return Markup(f"<style>\n/* {notice} */\n{face}\n</style>")


def make(original: Path) -> None:
    """Write the subset of the font at ``original``. Raises ValueError for a font of another version."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    font = TTFont(original, recalcTimestamp=False)
    if (version := font["name"].getDebugName(5)) != _ORIGINAL:
        raise ValueError(f"{original}: has {version!r}, must have {_ORIGINAL!r}")
    # The MATH table brings the larger forms of brackets, roots and sums. Those for small sizes would double the file.
    options = subset.Options(hinting=False, layout_features=[], name_IDs=["*"], notdef_outline=True, glyph_names=False)
    options.drop_tables += ["DSIG", "GDEF", "GPOS", "GSUB"]
    subsetter = subset.Subsetter(options)
    subsetter.populate(text="".join(CHARACTERS))
    subsetter.subset(font)
    name = font["name"]
    renamed = {1: NAME, 3: f"{_ORIGINAL}; subset; CompanionMath", 4: NAME, 6: "CompanionMath"}
    renamed[10] = "A subset of STIX Two Math for the formulas of the TransNormer companion's pages."
    for number, text in renamed.items():
        name.setName(text, number, 3, 1, 0x409)
    font.flavor = "woff2"
    font.save(FONT)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
