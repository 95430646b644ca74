"""A notebook as the pages describe it: title, abstract and the defaults of its parameters."""

import re
from dataclasses import dataclass
from typing import Any

from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.pages import PageError
from transnormer_lib.report.parameters import declared, source_of


@dataclass(frozen=True)
class Notebook:
    """A notebook of the project, not executed."""

    name: str
    title: str
    abstract: str  # its first paragraph, as text
    source: dict[str, Any]  # its JSON, without outputs
    defaults: dict[str, Any]  # of its parameters; {} where its parameters cell cannot be read


def load_notebook(project: Project, name: str) -> Notebook:
    """A notebook with title and abstract from its first Markdown cell. Raises PageError for another file."""
    try:
        found = source_of(project, name)
    except UserMistake as fault:
        raise PageError(str(fault)) from None
    first = next(("".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "markdown"), "")
    try:
        defaults = {parameter.name: parameter.default for parameter in declared(project, name)}
    except UserMistake:  # the guard refuses to run it and reports why
        defaults = {}
    title, rest = split_title(first)
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", rest) if p.strip()]
    # The abstract follows a line in italics that names the paper's section.
    text = next((p for p in paragraphs if not p.startswith(("*", "_", "#", "$$"))), "".join(paragraphs[:1]))
    return Notebook(name, title or name, _without_markup(text), found, defaults)


def split_title(markdown: str) -> tuple[str, str]:
    """The level-1 heading at the start of a cell, and the rest; an empty title if there is none."""
    match = re.match(r"\s*#[ \t]+(.+?)[ \t#]*(?:\n|$)", markdown)
    return (match[1], markdown[match.end() :]) if match else ("", markdown)


def _without_markup(markdown: str) -> str:
    """Without links, emphasis and code marks, except inside $math$."""
    pieces = re.split(r"(\$[^$]+\$)", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown))
    return "".join(p if i % 2 else re.sub(r"[*`]+", "", p) for i, p in enumerate(pieces))
