"""Numbers of the paper's tables."""

from transnormer_lib.papers import tables
from transnormer_lib.papers.tables import Cell


def number(table: str, column: str, **labels: Cell) -> float:
    """The number in ``column`` of the one row with these labels: ``number("table_1", "ppl_val", method="1+elu")``."""
    value = tables.load("transnormer", table).value(column, **labels)
    assert isinstance(value, float)
    return value
