"""The words that pages use and readers may not know, with their definitions: ``terms.yaml``.

``marks.py`` shows a definition where a term first occurs, ``terms_page.py`` lists all of them.
"""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from transnormer_lib.ledger.claims import Kind
from transnormer_lib.papers.records import Record, build, read_list

FILE = Path(__file__).parent / "terms.yaml"
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
_Spelling = Annotated[str, Field(pattern=r"^\S+( \S+)*$", max_length=28)]  # a mark is not broken between lines


class Term(Record):
    """One term."""

    term: _Spelling
    also: list[_Spelling] = []  # noqa: RUF012  pydantic copies the default
    means: Annotated[str, Field(pattern=r"^\S.*\.$", max_length=300)]  # one or two plain sentences
    source: _Text | None = None  # "Section 3.1"
    see: Annotated[str, Field(pattern=r"^\d{2}_\w+\.html#[a-z0-9-]+$")] | None = None
    once: bool = False  # marked once a page, not once a part
    alone: bool = True  # False: only the other spellings are marked
    badge: Literal["verdict", "answer"] | None = None  # marked only as such
    kinds: list[Kind] = []  # noqa: RUF012  of the claims that can get the verdict

    @model_validator(mode="after")
    def _complete(self) -> "Term":
        if not self.alone and not self.also:
            raise ValueError("also: a term that is not marked alone needs another spelling")
        if bool(self.kinds) != (self.badge == "verdict"):
            raise ValueError("kinds: a verdict, and nothing else, names the kinds of its claims")
        return self

    @property
    def anchor(self) -> str:
        """Its id on a page."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")

    @property
    def spellings(self) -> list[str]:
        """How it is spelled where prose is marked; a verdict or an answer is one on a badge only, unless it says so."""
        return [*([self.term] if self.alone and not self.badge else []), *self.also]


class Part(Record):
    """Terms of one subject."""

    part: _Text
    terms: Annotated[list[Term], Field(min_length=1)]


@cache
def parts(path: Path = FILE) -> tuple[Part, ...]:
    """The terms of a file, by subject.

    Raises ValueError naming file and field for a broken entry, and for a spelling or an anchor of two terms.
    """
    found = tuple(build(Part, fields, f"{path.name}: part {n}") for n, fields in enumerate(read_list(path), start=1))
    taken: dict[str, str] = {}
    for term in (term for part in found for term in part.terms):
        for spelling in (term.anchor, *{term.term, *term.spellings}):
            if spelling in taken:
                raise ValueError(f"{path.name}: {spelling!r}: belongs to {taken[spelling]!r} and to {term.term!r}")
            taken[spelling] = term.term
    return found


def terms() -> list[Term]:
    """All terms, in the order of the glossary."""
    return [term for part in parts() for term in part.terms]
