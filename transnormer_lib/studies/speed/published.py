"""What Table 7 says by itself: ratios of its speeds, their growth, and the sentences of Section 5.3."""

from collections import Counter
from typing import Any

from transnormer_lib.analysis import length_growth
from transnormer_lib.analysis.arena_speed import PARTS, Part
from transnormer_lib.choices import VARIANTS
from transnormer_lib.papers import tables
from transnormer_lib.studies.common.findings import joined
from transnormer_lib.studies.common.published import printed
from transnormer_lib.studies.lra.published import table_6

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
RIVALS = tuple(row for row in PUBLISHED if row not in (*VARIANTS, "vanilla"))  # what the paper calls efficient
LENGTHS = tuple(1024 * k for k in range(1, 6))  # the columns 1K to 5K
SPLITS = {"validation": "ppl_val", "test": "ppl_test"}  # of Table 4, and its columns
_COLUMN: dict[Part, str] = {"inference": "infer", "training": "train"}


def speed(row: str, length: int, part: Part) -> float | None:
    """Steps per second that Table 7 prints; None for a dash, where memory ran out."""
    return printed("table_7", f"{_COLUMN[part]}_{length // 1024}k", model=PUBLISHED[row])


def ratio(row: str, other: str, length: int, part: Part) -> float | None:
    """The speed of ``row`` over that of ``other``; None beside a dash."""
    mine, theirs = speed(row, length, part), speed(other, length, part)
    return None if mine is None or theirs is None else mine / theirs


def ratios(row: str, other: str, part: Part) -> dict[int, float]:
    """:func:`ratio` at the lengths where both have a number."""
    found = {n: ratio(row, other, n, part) for n in LENGTHS}
    return {n: value for n, value in found.items() if value is not None}


def ratio_table(row: str) -> list[dict[str, Any]]:
    """One line per other method of Table 7: the speed of ``row`` over its own."""
    lines = []
    for other in (other for other in PUBLISHED if other != row):
        found = {f"{part} {n // 1024}K": ratio(row, other, n, part) for part in PARTS for n in LENGTHS}
        shown: dict[str, Any] = {cell: None if value is None else f"{value:.2f}" for cell, value in found.items()}
        lines.append({"model": PUBLISHED[other]} | shown)
    return lines


def seconds(row: str, part: Part) -> dict[int, float]:
    """Seconds of a step by length, where Table 7 has a speed."""
    return {n: 1.0 / value for n in LENGTHS if (value := speed(row, n, part)) is not None}


def exponent(row: str, part: Part) -> length_growth.Exponent | None:
    """How the printed time of a step grows with the length, over all columns that have a speed."""
    return length_growth.exponent(seconds(row, part))


def slower_growing(row: str) -> list[tuple[str, Part]]:
    """The rivals and parts for which the printed time of a step has a smaller exponent than that of ``row``."""
    found = {(name, part): exponent(name, part) for part in PARTS for name in (row, *RIVALS)}
    return [
        (rival, part)
        for (rival, part), fit in found.items()
        if fit is not None and (own := found[row, part]) is not None and fit.value < own.value
    ]


def not_faster(row: str) -> list[tuple[str, int, Part]]:
    """The rivals, lengths and parts for which Table 7 prints no higher speed for ``row``; dashes are left out."""
    return [(r, n, part) for r in RIVALS for part in PARTS for n, found in ratios(row, r, part).items() if found <= 1]


def cells_above(times: float, part: Part, other: str = "flash-quad") -> tuple[int, int]:
    """How many of T1's and T2's cells have more than ``times`` the speed of ``other``, and how many cells there are."""
    found = [value for row in VARIANTS for value in ratios(row, other, part).values()]
    return sum(value > times for value in found), len(found)


def slowest(row: str = "vanilla") -> tuple[int, int]:
    """In how many cells of Table 7 the row is slower than every other one, and how many cells it has."""
    cells = [(n, part) for part in PARTS for n in LENGTHS if speed(row, n, part) is not None]
    found = [[ratio(other, row, n, part) for other in PUBLISHED if other != row] for n, part in cells]
    return sum(all(value is None or value > 1 for value in of_cell) for of_cell in found), len(cells)


def fastest_in_words() -> str:
    """In how many cells of Table 7 which rows are the fastest, and where the printed time grows most steeply."""
    cells = [{row: value for row in PUBLISHED if (value := speed(row, n, part))} for part in PARTS for n in LENGTHS]
    wins = Counter(row for of in cells for row, value in of.items() if value == max(of.values()))
    fitted = {part: {row: fit.value for row in PUBLISHED if (fit := exponent(row, part))} for part in PARTS}
    steepest = {part: max(of, key=of.__getitem__) for part, of in fitted.items()}
    said = ", ".join(f"{PUBLISHED[row]} in {count}" for row, count in wins.most_common())
    grows = joined([f"{PUBLISHED[row]} ({fitted[part][row]:.2f}) in {part}" for part, row in steepest.items()])
    return f"Fastest, ties included, of {len(cells)} cells: {said}. Largest exponent: {grows}."


def best_linear(table: str, column: str, row: str = "FLASH-quad") -> bool:
    """Whether the printed value of ``row`` is the best, softmax attention and TransNormer left out."""
    published = tables.load("transnormer", table)
    better = next(c.better for c in published.columns if c.name == column)
    names = [str(record["method"]) for record in published.records()]
    own = published.value(column, method=row)
    others = [published.value(column, method=m) for m in names if m not in (row, "Vanilla") and "TransNormer" not in m]
    assert isinstance(own, float)
    return all((own < v) if better == "lower" else (own > v) for v in others if isinstance(v, float))


def average_scores() -> dict[str, float]:
    """Table 6's average of every row of Table 7, in percent."""
    return {row: table_6(row, "avg") for row in PUBLISHED}
