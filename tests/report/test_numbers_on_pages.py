"""The committed pages write numbers in one style: true minus signs, grouped thousands, powers of ten as ``·10ⁿ``.

Code, formulas and drawings are left out; so are words that hold letters beside digits: commits, digests, addresses.
"""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transnormer_lib.project import Project
from transnormer_lib.report import publish

COMMITTED = Project(Path(__file__).resolve().parents[2]).root / "reports" / publish.FOLDER
PAGES = sorted(path.name for path in COMMITTED.glob("*.html"))
CODE = {"code", "pre", "math", "svg", "script", "style"}
WITHOUT_END = {"br", "col", "hr", "img", "input", "link", "meta", "wbr"}
INLINE = {"a", "b", "button", "code", "em", "i", "math", "small", "span", "strong", "sub", "sup"}

FAULTS = {
    "a hyphen as a minus sign": re.compile(r"(?<![\w.)\]/-])-(?=\.?\d)"),
    "five digits without a separator": re.compile(r"(?<![\w.,@-])\d{5,}(?!\w)"),
    "a power of ten as code writes it": re.compile(r"(?<![\w.@-])\d[\d.]*e[+−-]?\d+(?!\w)"),
}
# What a page may hold all the same, and why.
ALLOWED = {
    "02_gradient_stability": {r"at least 1e-6\)": "a plan is shown as it was committed"},
    "10_what_the_paper_leaves_out": {r"w\[-1\]": "an index, as the paper's listing has it"},
    "13_speech_ctc": {r"^\d{5,}$": "strings of digits that were spoken or heard"},
}


class Lines(HTMLParser):
    """The visible text of a page, a line for each block of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.lines = [""]
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)
        if tag not in WITHOUT_END:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._break(tag)
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.lines[-1] += "␣" if CODE & set(self._open) else " ".join(data.split("\n"))

    def _break(self, tag: str) -> None:
        if tag not in INLINE and not CODE & set(self._open):
            self.lines.append("")


def faults(line: str, allowed: dict[str, str]) -> list[str]:
    for pattern in allowed:
        line = re.sub(pattern, "", line.strip())
    return [name for name, pattern in FAULTS.items() if pattern.search(line)]


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_writes_numbers_in_one_style(name: str) -> None:
    allowed = ALLOWED.get(name.removesuffix(".html"), {})
    found = {line.strip()[:120]: bad for line in Lines(COMMITTED / name).lines if (bad := faults(line, allowed))}
    assert found == {}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("scores 1 and -3", 1),
        ("[-1, 1]", 1),
        ("267744", 1),
        ("1.03e+03 images", 1),
        ("below 1e-12", 1),
        ("−3, 267,744 and 1.03·10³", 0),
        ("commit 9458422ee6c0, 2026-11-23, idiap/fast-transformers@19e1c42", 0),
        ("0.12345678 of a 3-gram, pages 3-5", 0),
    ],
)
def test_the_faults_are_found(line: str, count: int) -> None:
    assert len(faults(line, {})) == count
