"""The papers that the companion checks: one folder each, described by its ``paper.yaml``.

A paper's id is its folder's name with hyphens: ``linear-transformers``.
"""

from functools import lru_cache
from pathlib import Path

from transnormer_lib.checks import nearest
from transnormer_lib.files import read_yaml
from transnormer_lib.papers.records import PACKAGE, Record, build


class Paper(Record):
    """One paper. ``subjects`` is the order of the files in its ``discrepancies/``."""

    id: str
    order: int  # its place in the report
    title: str
    authors: str
    year: int
    address: str
    subjects: list[str] = []  # noqa: RUF012  pydantic copies the default
    speed: str | None = None  # the thesis that says how fast
    listed_by: str | None = None  # the study whose notebook lists the discrepancies


@lru_cache
def papers() -> dict[str, Paper]:
    """Every paper by id, in the order of the report."""
    found = [build(Paper, read_yaml(path), f"{path.parent.name}/{path.name}") for path in PACKAGE.glob("*/paper.yaml")]
    return {paper.id: paper for paper in sorted(found, key=lambda paper: paper.order)}


def folder(paper: str) -> Path:
    """The folder of a paper. Raises ValueError for an unknown paper."""
    if paper not in papers():
        raise ValueError(f"paper={paper!r}: no such paper{nearest(paper, papers())}")
    return PACKAGE / paper.replace("-", "_")
