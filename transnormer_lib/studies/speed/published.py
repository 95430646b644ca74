"""What Table 7 says by itself, as printed: ratios of its speeds, and the sentences of Section 5.3 recomputed."""

from typing import Any

from transnormer_lib.analysis import length_growth
from transnormer_lib.analysis.arena_speed import PARTS, Part
from transnormer_lib.papers import tables
from transnormer_lib.studies.lra import runs as arena

# Rows of Table 7 by our names.
PUBLISHED = {
    "vanilla": "Transformer",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transformer-ls": "LS",
    "performer": "Performer",
    "cosformer": "cosFormer",
    "linformer": "Linformer",
    "reformer": "Reformer",
    "nystromformer": "Nystromformer",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}
OURS = arena.OURS
RIVALS = tuple(row for row in PUBLISHED if row not in (*OURS, "vanilla"))  # what the paper calls efficient
LENGTHS = tuple(1024 * k for k in range(1, 6))  # the columns 1K to 5K
SPLITS = {"validation": "ppl_val", "test": "ppl_test"}  # of Table 4, and its columns
_COLUMN: dict[Part, str] = {"inference": "infer", "training": "train"}


def speed(row: str, length: int, part: Part) -> float | None:
    """Steps per second that Table 7 prints; None for a dash, where memory ran out."""
    value = tables.load("transnormer", "table_7").value(f"{_COLUMN[part]}_{length // 1024}k", model=PUBLISHED[row])
    return None if value is None else float(value)


def ratio(row: str, other: str, length: int, part: Part) -> float | None:
    """How many times as many steps per second ``row`` does as ``other``; None beside a dash."""
    mine, theirs = speed(row, length, part), speed(other, length, part)
    return None if mine is None or theirs is None else mine / theirs


def ratios(row: str, other: str, part: Part) -> dict[int, float]:
    """:func:`ratio` at the lengths where both have a number."""
    found = {n: ratio(row, other, n, part) for n in LENGTHS}
    return {n: value for n, value in found.items() if value is not None}


def ratio_table(row: str) -> list[dict[str, Any]]:
    """One line per other method of Table 7: the speed of ``row`` over its own."""
    return [
        {
            "model": PUBLISHED[other],
            **{
                f"{part} {n // 1024}K": None if (found := ratio(row, other, n, part)) is None else f"{found:.2f}"
                for part in PARTS
                for n in LENGTHS
            },
        }
        for other in PUBLISHED
        if other != row
    ]


def seconds(row: str, part: Part) -> dict[int, float]:
    """Seconds of a step by length, where Table 7 has a speed."""
    return {n: 1.0 / value for n in LENGTHS if (value := speed(row, n, part)) is not None}


def exponent(row: str, part: Part) -> length_growth.Exponent | None:
    """How the printed time of a step grows with the length, over all columns that have one."""
    return length_growth.exponent(seconds(row, part))


def slower_growing(row: str) -> list[tuple[str, Part]]:
    """The rivals and parts in which Table 7's time of a step has a smaller exponent in the length than ``row``."""
    found = []
    for part in PARTS:
        own = exponent(row, part)
        others = {rival: exponent(rival, part) for rival in RIVALS}
        found += [
            (r, part) for r, fit in others.items() if own is not None and fit is not None and fit.value < own.value
        ]
    return found


def not_faster(row: str) -> list[tuple[str, int, Part]]:
    """The rivals, lengths and parts in which Table 7 does not print a higher speed for ``row``; dashes left out."""
    return [(r, n, part) for r in RIVALS for part in PARTS for n, found in ratios(row, r, part).items() if found <= 1]


def cells_above(times: float, part: Part, other: str = "flash-quad") -> tuple[int, int]:
    """How many of the cells, T1's and T2's at five lengths, have more than ``times`` the speed of ``other``; of all."""
    found = [value for row in OURS for value in ratios(row, other, part).values()]
    return sum(value > times for value in found), len(found)


def slowest(row: str = "vanilla") -> tuple[int, int]:
    """In how many cells of Table 7 the row is slower than every other one; of those where it has a number."""
    cells = [(n, part) for part in PARTS for n in LENGTHS if speed(row, n, part) is not None]
    others = [other for other in PUBLISHED if other != row]
    return sum(
        all(found[n] > 1 for other in others if n in (found := ratios(other, row, part))) for n, part in cells
    ), len(cells)


def best_linear(table: str, column: str, row: str = "FLASH-quad") -> bool:
    """Whether the printed value of ``row`` is the best one, softmax attention and TransNormer left out."""
    published = tables.load("transnormer", table)
    better = next(c.better for c in published.columns if c.name == column)
    names = [str(record["method"]) for record in published.records()]
    own = published.value(column, method=row)
    others = [published.value(column, method=m) for m in names if m not in (row, "Vanilla") and "TransNormer" not in m]
    assert isinstance(own, float)
    return all((own < v) if better == "lower" else (own > v) for v in others if isinstance(v, float))


def average_scores() -> dict[str, float]:
    """Table 6's average of every row of Table 7, in percent."""
    return {row: arena.table_6(row, "avg") for row in PUBLISHED}
