"""What Tables 8 to 12 print: their rows as changes to TransNormer, their orderings, and Section 5.4's sentences.

Changes are named at the size of the published encoder, which has 12 layers and blocks of 64 of 512 tokens: "early-3",
"block-32". The change "" is TransNormer itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.papers import tables

# The question behind each table, in the paper's order.
QUESTIONS: Mapping[str, str] = {
    "table_8": "How many layers should look at neighbours only?",
    "table_9": "Which of the two comes first?",
    "table_10": "FFN or GLU?",
    "table_11": "How large a neighbourhood?",
    "table_12": "Both attentions in one layer?",
}

_APPROACHES: Mapping[str, str] = {
    "alternating, Diag then Norm": "alternating",
    "alternating, Norm then Diag": "alternating-reversed",
    "parallel": "parallel",
    "TransNormer": "",
}

EARLY, BLOCK = 6, 64  # of the published encoder: Section 5.4 and Table 13
WHOLE = "block-512"  # a block that is the whole sequence


@dataclass(frozen=True)
class Line:
    """A line of a table: its change, and the printed perplexity of each variant (None for a comparison of ours)."""

    change: str
    published: Mapping[str, float | None]


@dataclass(frozen=True)
class Comparison:
    """A claim that one change of a variant has a lower loss than another."""

    claim: str
    better: str
    worse: str
    variant: str


def published_change(table: str, record: Mapping[str, Any]) -> str:
    """The change of a row of the published table."""
    if table == "table_8":
        return "" if record["diag_layers"] == EARLY else f"early-{record['diag_layers']}"
    if table == "table_9":
        return "reversed" if record["early"] == "NormAttention" else ""
    if table == "table_10":
        return "ffn" if record["feed_forward"] == "FFN" else ""
    if table == "table_11":
        return "" if record["block_size"] == BLOCK else f"block-{record['block_size']}"
    return _APPROACHES[record["approach"]]


def lines(table: str) -> list[Line]:
    """The lines of a published table in its order, then the lines that this project adds."""
    printed = [
        Line(published_change(table, record), {variant: record[variant[-2:]] for variant in VARIANTS})
        for record in tables.load("transnormer", table).records()
    ]
    nothing = dict.fromkeys(VARIANTS)
    own = {"table_10": ("ffn-swish", "glu-identity"), "table_11": (WHOLE,), "table_12": ("wide",)}
    return printed + [Line(change, nothing) for change in own.get(table, ())]


def comparisons(table: str) -> list[Comparison]:
    """The orderings in a table: TransNormer against each other row, in the printed direction."""
    found = []
    for variant in VARIANTS:
        base, others = _base_and_others(table, variant)
        for change, value in others.items():
            better, worse = (change, "") if value < base else ("", change)
            found.append(Comparison(f"{_claim(table, variant, change)}-order", better, worse, variant))
    return found


def beyond() -> list[Comparison]:
    """The orderings that this project adds, all for T2."""
    added = (
        ("gate", "", "ffn-swish"),
        ("ffn-activation", "ffn-swish", "ffn"),
        ("swish", "", "glu-identity"),
        ("whole-block", WHOLE, "block-128"),
        ("wide", "wide", "parallel"),
    )
    return [Comparison(f"ablation-t2-{name}", better, worse, VARIANTS[1]) for name, better, worse in added]


def numbers() -> dict[str, dict[str, tuple[str, str]]]:
    """Variant and change of every printed perplexity except those of TransNormer itself, which notebook 05 judges: by
    claim, one per table, and by cell.
    """
    return {
        table.replace("_", "-"): {
            f"{variant[-2:]}-{change}": (variant, change)
            for variant in VARIANTS
            for change in _base_and_others(table, variant)[1]
        }
        for table in QUESTIONS
    }


def _claim(table: str, variant: str, change: str) -> str:
    return f"{table.replace('_', '-')}-{variant[-2:]}-{change}"


def _base_and_others(table: str, variant: str) -> tuple[float, dict[str, float]]:
    """The published perplexity of TransNormer, and those of the table's other rows by change."""
    values = {line.change: line.published[variant] for line in lines(table)}
    printed = {change: value for change, value in values.items() if value is not None}
    return printed.pop(""), printed


# --- Section 5.4's sentences, from the printed numbers; each function answers by variant, "t1" and "t2" ---


def best_proportion() -> dict[str, int]:
    """How many of 12 layers are DiagAttention in the row of Table 8 with the lowest perplexity."""
    rows = tables.load("transnormer", "table_8").records()
    return {name: min(rows, key=lambda row: row[name])["diag_layers"] for name in ("t1", "t2")}


def worse_alone() -> dict[str, bool]:
    """Whether both models with only one attention have a higher perplexity than every mixture in Table 8."""
    found = {}
    for name in ("t1", "t2"):
        by_mixing: dict[bool, list[float]] = {True: [], False: []}
        for row in tables.load("transnormer", "table_8").records():
            by_mixing[0 not in (row["diag_layers"], row["norm_layers"])].append(row[name])
        found[name] = min(by_mixing[False]) > max(by_mixing[True])
    return found


def lower_than(table: str, *changes: str) -> dict[str, bool]:
    """Whether the table prints a lower perplexity for TransNormer than for each of ``changes``."""
    found = {}
    for variant in VARIANTS:
        printed = {line.change: line.published[variant] for line in lines(table)}
        if missing := [change for change in ("", *changes) if printed[change] is None]:
            raise ValueError(f"{table}: prints no perplexity of {variant} for {missing[0] or 'TransNormer itself'!r}")
        found[variant[-2:]] = all(float(printed[""] or 0) < float(printed[change] or 0) for change in changes)
    return found


def falls_with_the_block() -> dict[str, bool]:
    """Whether every larger block of Table 11 has a lower perplexity."""
    rows = tables.load("transnormer", "table_11").records()  # blocks of 32, 64, 128
    return {name: all(after[name] < before[name] for before, after in pairwise(rows)) for name in ("t1", "t2")}


def transnormer_rows() -> dict[str, list[float]]:
    """The distinct perplexities that Tables 8 to 12 print for TransNormer itself."""
    found: dict[str, list[float]] = {}
    for variant in VARIANTS:
        values = {line.published[variant] for table in QUESTIONS for line in lines(table) if not line.change}
        found[variant[-2:]] = sorted(value for value in values if value is not None)
    return found
