"""The register of what the paper contradicts, in itself or in its released code, and how each case is settled."""

from pathlib import Path

from transnormer_lib.paper.claims import Paper
from transnormer_lib.paper.records import PACKAGE, Record, build, read_list

FILE = PACKAGE / "discrepancies.yaml"


class Discrepancy(Record):
    """One contradiction: what is said where, what speaks against it, and what this project does."""

    id: str
    paper: Paper
    locus: str
    says: str
    evidence: str  # with its source: another place of the paper, repository@commit, or arithmetic
    settled: str
    inferred: bool = False  # the settlement is a conclusion of ours, not a fact found


def load(path: Path = FILE) -> tuple[Discrepancy, ...]:
    """All entries in the file's order. Raises ValueError naming entry and field, or an id used twice."""
    found: dict[str, Discrepancy] = {}
    for position, fields in enumerate(read_list(path), start=1):
        entry = build(Discrepancy, fields, f"{path.name}: entry {position}")
        if entry.id in found:
            raise ValueError(f"id={entry.id!r}: used twice in {path.name}")
        found[entry.id] = entry
    return tuple(found.values())
