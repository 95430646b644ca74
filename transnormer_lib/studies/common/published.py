"""Numbers of a paper's tables; without ``paper``, of TransNormer's."""

from transnormer_lib.papers import tables
from transnormer_lib.papers.tables import Cell


def printed(table: str, column: str, *, paper: str = "transnormer", **labels: Cell) -> float | None:
    """The number in ``column`` of the one row with these labels: ``printed("table_1", "ppl_val", method="1+elu")``.

    None for a dash.
    """
    value = tables.load(paper, table).value(column, **labels)
    return None if value is None else float(value)


def number(table: str, column: str, *, paper: str = "transnormer", **labels: Cell) -> float:
    """:func:`printed` where the table has a number. Raises ValueError for a dash."""
    value = printed(table, column, paper=paper, **labels)
    if value is None:
        raise ValueError(f"{table}, {column}, {labels}: no number is printed")
    return value
