"""The register of what a paper contradicts, in itself or in its released code, and how each case is settled.

One file per subject in ``papers/<paper>/discrepancies/``. The entries are text; the study of the register holds the
check of each, found by the entry's id.
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
    """One contradiction: what is said where, what speaks against it, and what this project does.

    ``code`` names where it is settled: ``models/config.py:ModelConfig.rotary``, a definition in a file of the library,
    with ``" | TEXT"`` the first line of it that holds TEXT. Raises ValueError unless exactly one of ``flag`` and
    ``no_flag`` is given.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    subject: _Text  # the file that it stands in
    paper: str
    locus: _Text
    says: _Text
    released: str = ""  # what the released code does, with repository@commit; cited: no check can read it again
    evidence: _Text  # with its source: another place of the paper, repository@commit, or arithmetic
    settled: _Text
    flag: str = ""  # how a user takes the other choice
    no_flag: str = ""  # or why there is nothing to choose
    code: Annotated[list[_Place], Field(min_length=1)]
    claims: list[str] = []  # noqa: RUF012  claims that judge the same thing, by id; pydantic copies the default
    trained: str = ""  # the comparison of trained runs that shows what the choice changes (``studies.register_runs``)
    inferred: bool = False  # the settlement is a conclusion of ours, not a fact found

    @model_validator(mode="after")
    def _choice(self) -> "Discrepancy":
        if bool(self.flag) == bool(self.no_flag):
            raise ValueError(f"flag={self.flag!r}: an entry has either a flag or, in no_flag, why it has none")
        return self


@lru_cache
def load(paper: str) -> tuple[Discrepancy, ...]:
    """All entries of a paper, by subject and in the order of their file."""
    return read(catalogue.folder(paper) / "discrepancies", paper, catalogue.papers()[paper].subjects)


def read(folder: Path, paper: str, subjects: Sequence[str]) -> tuple[Discrepancy, ...]:
    """The entries of a folder.

    Raises ValueError naming entry and field, an id used twice, or a file that is no subject's.
    """
    found: dict[str, Discrepancy] = {}
    files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if strange := sorted(set(files) - set(subjects)):
        raise ValueError(f"{strange[0]}.yaml: no such subject{nearest(strange[0], subjects)}")
    for subject in (subject for subject in subjects if subject in files):
        for position, fields in enumerate(read_list(files[subject]), start=1):
            named = {**fields, "subject": subject, "paper": paper} if isinstance(fields, dict) else fields
            entry = build(Discrepancy, named, f"{subject}.yaml: entry {position}")
            if entry.id in found:
                raise ValueError(
                    f"id={entry.id!r}: used twice, in {found[entry.id].subject}.yaml and in {subject}.yaml"
                )
            found[entry.id] = entry
    return tuple(found.values())


def by_id(paper: str) -> dict[str, Discrepancy]:
    """The entries under their ids."""
    return {entry.id: entry for entry in load(paper)}
