"""The cells of an executed notebook as HTML: the one module of the report that imports nbconvert.

nbconvert's own page would load scripts and fonts from the network. Here only its ``basic`` template is
used, inside a frame of ours: formulas become MathML, headings get anchors and are listed, code folds away,
and each measurement's card is drawn anew from the ledger's verdict.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.report.notebook_page import split_title
from transnormer_lib.show.cards import output_styles
from transnormer_lib.show.formulas import keep_punctuation, mathml

_TEMPLATE = Path(__file__).parent / "templates" / "notebook.html.j2"
_PRIORITY = [
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "text/latex",
    "image/png",
    "image/jpeg",
    "text/plain",
]


@dataclass(frozen=True)
class Heading:
    """A heading below the title."""

    level: int
    anchor: str
    html: str


@dataclass(frozen=True)
class NotebookHtml:
    """The parts of a notebook's page."""

    lead: str  # what follows the title in the first cell
    body: str
    headings: list[Heading]
    claims: set[str]  # claims whose card stands in the body


@dataclass
class _Contents:
    """Headings in the order of the text, each with an anchor of its own."""

    headings: list[Heading] = field(default_factory=list)

    def add(self, level: int, html: str) -> Heading:
        text = unescape(re.sub(r"<[^>]+>", "", html)).lower()
        slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "section"
        taken = {heading.anchor for heading in self.headings} | {"main", "provenance", "claims-here"}
        anchor, number = slug, 2
        while anchor in taken:
            anchor, number = f"{slug}-{number}", number + 1
        self.headings.append(Heading(level, anchor, html))
        return self.headings[-1]


class _Renderer(IPythonRenderer):
    """Markdown to HTML with formulas as MathML and headings entered in the contents."""

    def __init__(self, contents: _Contents) -> None:
        super().__init__(escape=False)
        self._contents = contents

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        level = max(level, 2)  # the page's title is its only heading of level 1
        heading = self._contents.add(level, text)
        return f'<h{level} id="{heading.anchor}">{text}</h{level}>\n'

    def block_math(self, body: str) -> str:
        return mathml(body, display=True)

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", display=True)


Fold = Callable[[Sequence[str]], Mapping[str, str]]


def notebook_html(notebook: Mapping[str, Any], cards: Mapping[str, str], fold: Fold | None = None) -> NotebookHtml:
    """Render a notebook, given as its JSON; ``cards`` holds the card of each claim it may have measured.

    ``fold`` gets the claims of one cell and may put something else in place of some of their cards.

    Raises MathError for a formula that cannot be shown.
    """
    contents = _Contents()

    def to_html(source: str) -> str:
        return keep_punctuation(str(MarkdownWithMath(renderer=_Renderer(contents)).render(source)))

    content = copy.deepcopy(dict(notebook))
    lead = _take_lead(content)
    lead_html = to_html(lead) if lead.strip() else ""
    drawn = _draw_cards(content, cards, fold)
    exporter = HTMLExporter(
        config=Config({"NbConvertBase": {"display_data_priority": _PRIORITY}}),
        template_name="basic",
        raw_template=_TEMPLATE.read_text(encoding="utf-8"),
    )
    exporter.register_filter("markdown2html", to_html)
    body, _ = exporter.from_notebook_node(nbformat.reads(json.dumps(content), as_version=4))
    body = body.replace(output_styles(), "")
    return NotebookHtml(lead_html, body.strip(), [h for h in contents.headings if h.level <= 3], drawn)


def _take_lead(notebook: dict[str, Any]) -> str:
    """Take the title out of the notebook, and the lead: what follows it up to the next heading."""
    cells = notebook["cells"]
    if not cells or cells[0]["cell_type"] != "markdown":
        return ""
    title, rest = split_title("".join(cells[0]["source"]))
    if not title:
        return ""
    heading = re.search(r"(?m)^#{2,} ", rest)
    end = heading.start() if heading else len(rest)
    kept = [{**cells[0], "source": rest[end:]}] if heading else []
    notebook["cells"] = kept + cells[1:]
    return rest[:end]


def _draw_cards(notebook: dict[str, Any], cards: Mapping[str, str], fold: Fold | None) -> set[str]:
    drawn: set[str] = set()
    for cell in notebook["cells"]:
        found = [(output, output.get("data", {}).get(MIME, {}).get("claim")) for output in cell.get("outputs", ())]
        found = [(output, claim) for output, claim in found if claim in cards]
        instead = fold([claim for _, claim in found if claim not in drawn]) if fold else {}
        for output, claim in found:
            # A claim measured twice keeps one card: an anchor exists once.
            output["data"] = {"text/html": "" if claim in drawn else instead.get(claim, cards[claim])}
            drawn.add(claim)
    return drawn
