"""The cells of an executed notebook as HTML; the only module that imports nbconvert.

nbconvert's own page would load scripts and fonts from the network, so only its ``basic`` template is used, inside our
frame: formulas become MathML, headings get anchors, code is folded, and the claims of each cell are drawn again from
the ledger's verdicts.
"""

import copy
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.report.notebooks import split_title
from transnormer_lib.report.outputs import finished, formula_region, shortened, table_region
from transnormer_lib.show.formulas import keep_punctuation, mathml
from transnormer_lib.show.templating import render

_TEMPLATE = Path(__file__).parent / "templates" / "notebook.html.j2"
_NOTEBOOK = re.compile(r"^(\d{2}_\w+)\.ipynb(?=#|$)")
_PLAIN = re.compile(r'<span class="[nopw]">([^<]*)</span>')  # names, operators and marks have no colour of their own
_PRIORITY = ["text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain"]


@dataclass(frozen=True)
class Heading:
    """A heading below the title."""

    level: int
    anchor: str
    html: Markup


@dataclass(frozen=True)
class NotebookHtml:
    """The parts of a notebook's page; empty for a notebook that cannot be shown."""

    lead: str = ""  # Markup, as the body: what follows the title in the first cell
    body: str = ""
    headings: Sequence[Heading] = ()
    claims: Collection[str] = frozenset()  # claims that the body shows


@dataclass
class _Contents:
    """The headings in the order of the text, each with its own anchor."""

    headings: list[Heading] = field(default_factory=list)

    def add(self, level: int, html: str) -> Heading:
        text = unescape(re.sub(r"<[^>]+>", "", html)).lower()
        slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "section"
        taken = {heading.anchor for heading in self.headings} | {"main", "provenance", "claims-here"}
        anchor, number = slug, 2
        while anchor in taken:
            anchor, number = f"{slug}-{number}", number + 1
        self.headings.append(Heading(level, anchor, Markup(html)))
        return self.headings[-1]


class _Renderer(IPythonRenderer):
    """Markdown to HTML with formulas as MathML; enters the headings in the contents."""

    def __init__(self, contents: _Contents) -> None:
        super().__init__(escape=False)
        self._contents = contents

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        heading = self._contents.add(max(level, 2), text)  # the page's title is its only heading of level 1
        return render("report/templates/heading.html.j2", heading=heading) + "\n"

    def table(self, text: str) -> str:
        return table_region(f"<table>\n{text}</table>\n")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link to another notebook leads to its page."""
        return super().link(text, _NOTEBOOK.sub(r"\1.html", url), title)

    def block_math(self, body: str) -> str:
        return formula_region(mathml(body, display=True))

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def latex_environment(self, name: str, body: str) -> str:
        return formula_region(mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", display=True))


class _Exporter(HTMLExporter):
    """nbconvert's HTML exporter without its last step.

    That parses the whole page once more to add what our pages have already, and takes longer than all the rest.
    """

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> Any:
        highlight = Highlight2HTML(pygments_lexer="ipython3", parent=self)
        self.register_filter("highlight_code", lambda *args, **options: _PLAIN.sub(r"\1", highlight(*args, **options)))
        self.register_filter("shortened", shortened)
        return TemplateExporter.from_notebook_node(self, nb, resources, **kw)


@lru_cache(maxsize=1)
def _exporter() -> _Exporter:
    """One for all pages, so that its templates are compiled once."""
    return _Exporter(
        config=Config({"NbConvertBase": {"display_data_priority": _PRIORITY}}),
        template_name="basic",
        raw_template=_TEMPLATE.read_text(encoding="utf-8"),
    )


def notebook_html(
    notebook: Mapping[str, Any], number: int, known: Collection[str], draw: Callable[[Sequence[str], str], str]
) -> NotebookHtml:
    """Render the notebook of this number, given as its JSON.

    ``known`` are the claims that it may have measured; ``draw`` makes the HTML of those of one output, from
    the anchor of the code that measured them. Raises MathError
    for a formula that cannot be shown.
    """
    contents = _Contents()

    def to_html(source: str) -> str:
        return keep_punctuation(str(MarkdownWithMath(renderer=_Renderer(contents)).render(source)))

    content = copy.deepcopy(dict(notebook))
    lead = _take_lead(content)
    lead_html = to_html(lead) if lead.strip() else ""
    drawn = _draw_claims(content, known, draw)
    exporter = _exporter()
    exporter.register_filter("markdown2html", to_html)
    body, _ = exporter.from_notebook_node(nbformat.reads(json.dumps(content), as_version=4))
    headings = [heading for heading in contents.headings if heading.level <= 3]
    return NotebookHtml(Markup(lead_html), Markup(finished(body, number).strip()), headings, drawn)


def _take_lead(notebook: dict[str, Any]) -> str:
    """Remove the title and the lead, the text between it and the next heading, and return the lead."""
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


def _draw_claims(
    notebook: dict[str, Any], known: Collection[str], draw: Callable[[Sequence[str], str], str]
) -> set[str]:
    """Replace the outputs that carry measurements, in place; returns the claims that they show."""
    drawn: set[str] = set()
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            found = output.get("data", {}).get(MIME)
            if found is None:
                continue
            listed = found if isinstance(found, list) else []  # else the ledger cannot judge it, and the page says so
            names = dict.fromkeys(str(measurement.get("claim")) for measurement in listed)
            # A claim that was measured twice is shown once: an anchor exists once.
            shown = [name for name in names if name in known and name not in drawn]
            output["data"] = {"text/html": draw(shown, f"code-{cell.get('id', '')}") if shown else ""}
            drawn.update(shown)
    return drawn
