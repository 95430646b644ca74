"""The register of discrepancies: where a paper contradicts itself or its released code, and how we settle it.

One file per subject in ``papers/<paper>/discrepancies/``. Entries are text; the study ``what_the_paper_leaves_out`` has
a check for each, found by the entry's id.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from transnormer_lib.checks import nearest
from transnormer_lib.papers import catalogue
from transnormer_lib.papers.records import Record, build, read_list

_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
_Place = Annotated[str, Field(pattern=r"^[a-z_/0-9]+\.py:[A-Za-z_.0-9]+( \| .+)?$")]


class Discrepancy(Record):
    """One contradiction: what the paper says and where, the evidence against it, and what this project does.

    ``code`` names the definitions that settle it, as ``models/config.py:ModelConfig.rotary``; ``" | TEXT"`` after one
    selects its first line with TEXT. Raises ValueError unless exactly one of ``flag`` and ``no_flag`` is given.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    subject: _Text  # the name of its file
    paper: str
    locus: _Text
    says: _Text
    released: str = ""  # what the released code does, with repository@commit; cited, not checked
    evidence: _Text  # from another place in the paper, from repository@commit, or by arithmetic
    settled: _Text
    flag: str = ""  # how to get the other choice
    no_flag: str = ""  # or why there is nothing to choose
    code: Annotated[list[_Place], Field(min_length=1)]
    claims: list[str] = []  # noqa: RUF012  ids of claims that judge the same thing; pydantic copies the default
    trained: str = ""  # the comparison of trained runs with and without the choice (``comparisons`` of the study)
    inferred: bool = False  # the settlement is our conclusion, not a fact

    @model_validator(mode="after")
    def _choice(self) -> "Discrepancy":
        if bool(self.flag) == bool(self.no_flag):
            raise ValueError(f"flag={self.flag!r}: an entry has either a flag or, in no_flag, why it has none")
        return self


@lru_cache
def load(paper: str) -> tuple[Discrepancy, ...]:
    """All entries of a paper, by subject and in the order of the file."""
    return read(catalogue.folder(paper) / "discrepancies", paper, catalogue.papers()[paper].subjects)


def read(folder: Path, paper: str, subjects: Sequence[str]) -> tuple[Discrepancy, ...]:
    """The entries of a folder, by subject.

    Raises ValueError for an invalid entry (naming the field), a duplicate id, or a file that is not a subject's.
    """
    found: dict[str, Discrepancy] = {}
    files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if strange := sorted(set(files) - set(subjects)):
        raise ValueError(f"{strange[0]}.yaml: no such subject{nearest(strange[0], subjects)}")
    for subject in filter(files.get, subjects):
        for position, fields in enumerate(read_list(files[subject]), start=1):
            named = {**fields, "subject": subject, "paper": paper} if isinstance(fields, dict) else fields
            entry = build(Discrepancy, named, f"{subject}.yaml: entry {position}")
            if entry.id in found:
                first = found[entry.id].subject
                raise ValueError(f"id={entry.id!r}: used twice, in {first}.yaml and in {subject}.yaml")
            found[entry.id] = entry
    return tuple(found.values())


def by_id(paper: str) -> dict[str, Discrepancy]:
    """The entries of a paper by id."""
    return {entry.id: entry for entry in load(paper)}
