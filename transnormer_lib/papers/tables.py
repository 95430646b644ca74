"""The published tables: ``papers/<paper>/tables/*.yaml``."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from transnormer_lib.checks import check_distinct, nearest
from transnormer_lib.files import read_yaml
from transnormer_lib.papers import catalogue
from transnormer_lib.papers.records import Record, build

Cell = float | int | str | None


class Column(Record):
    """A column: labels of the rows, or (``published``) numbers of the paper."""

    name: str
    heading: str
    published: bool = False
    better: Literal["lower", "higher", "none"] = "none"


class PublishedTable(Record):
    """One table. ``missing`` says what an empty cell means, ``note`` what readers of the numbers must know."""

    id: str
    paper: str
    locus: str
    title: str
    source: str  # the section with the table
    note: str | None = None
    missing: str | None = None
    columns: list[Column]
    rows: list[list[Cell]]

    @model_validator(mode="after")
    def _consistent(self) -> "PublishedTable":
        names = [column.name for column in self.columns]
        check_distinct("columns", names)
        for row in self.rows:
            if len(row) != len(names):
                raise ValueError(f"rows: {row!r} has {len(row)} cells for {len(names)} columns")
            for column, cell in zip(self.columns, row, strict=True):
                if column.published and (isinstance(cell, str) or (cell is None and self.missing is None)):
                    raise ValueError(
                        f"rows: {column.name}={cell!r}: must be a number, or null if the table says what missing means"
                    )
        return self

    def value(self, column: str, **labels: Cell) -> Cell:
        """The value in ``column`` of the row whose label columns are ``labels``: ``value("ppl_val", method="1+elu")``.

        Raises ValueError for an unknown column, or unless exactly one row has these labels.
        """
        position = self._position(column)
        wanted = {self._position(name): label for name, label in labels.items()}
        fitting = [row for row in self.rows if all(row[at] == label for at, label in wanted.items())]
        if len(fitting) != 1:
            raise ValueError(f"{self.locus}: {len(fitting)} rows have {labels!r}: must be exactly one")
        return fitting[0][position]

    def records(self) -> list[dict[str, Any]]:
        """The rows as mappings from column names to cells."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def _position(self, name: str) -> int:
        names = [column.name for column in self.columns]
        if name not in names:
            raise ValueError(f"column={name!r}: {self.locus} has {', '.join(names)}")
        return names.index(name)


def names(paper: str) -> tuple[str, ...]:
    """The ids of a paper's tables, in order."""
    found = (path.stem for path in (catalogue.folder(paper) / "tables").glob("*.yaml"))
    return tuple(sorted(found, key=lambda name: (len(name), name)))


@lru_cache
def load(paper: str, name: str) -> PublishedTable:
    """A published table: ``load("transnormer", "table_1")``. Raises ValueError for an unknown table."""
    if name not in names(paper):
        raise ValueError(f"name={name!r}: no such table{nearest(name, names(paper))}")
    return read(catalogue.folder(paper) / "tables" / f"{name}.yaml", paper)


def read(path: Path, paper: str) -> PublishedTable:
    """The table in one file. Raises ValueError naming file and field if it is invalid."""
    fields = read_yaml(path)
    if isinstance(fields, dict) and isinstance(fields.get("columns"), list):
        columns = [build(Column, column, f"{path.name}: columns") for column in fields["columns"]]
        fields = {**fields, "columns": columns, "paper": paper}
    table = build(PublishedTable, fields, path.name)
    if table.id != path.stem:
        raise ValueError(f"{path.name}: id={table.id!r}: must be the file's name, {path.stem!r}")
    return table
