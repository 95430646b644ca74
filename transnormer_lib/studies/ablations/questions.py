"""What Tables 8 to 12 ask, in the rows of ``studies.ablations``: each table's lines, and who should be ahead of whom.

The published encoder has 12 layers and blocks of 64 tokens, a smaller one keeps the shares: 3 of 12 layers are 1 of 4,
and where 8 stands for 64, 4 stands for 32. ``transnormer_lib.paper.tables`` has the numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transnormer_lib.papers import tables
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.ablations.runs import VARIANTS, Parameters
from transnormer_lib.studies.common import row_losses

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

# Of the published encoder: Section 5.4 and Table 13.
_LAYERS, _EARLY, _BLOCK = 12, 6, 64
_WHOLE = "block-512"  # a block that is the whole sequence


@dataclass(frozen=True)
class Line:
    """A line of a table: the change at the published size, and what was published of each variant."""

    change: str  # "" for TransNormer as it is; "early-3" of 12 layers, "block-32" of 512 tokens
    published: Mapping[str, float | None]  # perplexity by variant; None: a comparison of ours


@dataclass(frozen=True)
class Comparison:
    """A claim that one row has a lower loss than another: changes at the published size, "" for TransNormer."""

    claim: str
    better: str
    worse: str
    variant: str


@dataclass(frozen=True)
class Number:
    """A claim about the perplexity of one row: a variant with a change at the published size."""

    claim: str
    variant: str
    change: str


def published_change(table: str, record: Mapping[str, Any]) -> str:
    """The change that a row of the published table makes to TransNormer, at the published size."""
    if table == "table_8":
        return "" if record["diag_layers"] == _EARLY else f"early-{record['diag_layers']}"
    if table == "table_9":
        return "reversed" if record["early"] == "NormAttention" else ""
    if table == "table_10":
        return "ffn" if record["feed_forward"] == "FFN" else ""
    if table == "table_11":
        return "" if record["block_size"] == _BLOCK else f"block-{record['block_size']}"
    return _APPROACHES[record["approach"]]


def lines(table: str) -> list[Line]:
    """The lines of a published table in its order, then the comparisons that this project adds to it."""
    printed = [
        Line(published_change(table, record), {variant: record[variant[-2:]] for variant in VARIANTS})
        for record in tables.load("transnormer", table).records()
    ]
    nothing = dict.fromkeys(VARIANTS)
    own = {"table_10": ("ffn-swish", "glu-identity"), "table_11": (_WHOLE,), "table_12": ("wide",)}
    return printed + [Line(change, nothing) for change in own.get(table, ())]


def comparisons(table: str) -> list[Comparison]:
    """The orderings that a table prints, TransNormer against each other row, in the paper's direction."""
    found = []
    for variant in VARIANTS:
        base, others = _base_and_others(table, variant)
        for change, value in others.items():
            better, worse = (change, "") if value < base else ("", change)
            found.append(Comparison(f"{_claim(table, variant, change)}-order", better, worse, variant))
    return found


def beyond() -> list[Comparison]:
    """The orderings that this project adds, all of T2."""
    added = (
        ("gate", "", "ffn-swish"),
        ("ffn-activation", "ffn-swish", "ffn"),
        ("swish", "", "glu-identity"),
        ("whole-block", _WHOLE, "block-128"),
        ("wide", "wide", "parallel"),
    )
    return [Comparison(f"ablation-t2-{name}", better, worse, VARIANTS[1]) for name, better, worse in added]


def numbers() -> list[Number]:
    """Every printed perplexity but those of TransNormer itself, which notebook 05 judges."""
    places = [(table, variant) for table in QUESTIONS for variant in VARIANTS]
    return [
        Number(_claim(table, variant, change), variant, change)
        for table, variant in places
        for change in _base_and_others(table, variant)[1]
    ]


def _claim(table: str, variant: str, change: str) -> str:
    return f"{table.replace('_', '-')}-{variant[-2:]}-{change}"


def _base_and_others(table: str, variant: str) -> tuple[float, dict[str, float]]:
    """The published perplexity of TransNormer, and those of the table's other rows by change."""
    values = {line.change: line.published[variant] for line in lines(table)}
    printed = {change: value for change, value in values.items() if value is not None}
    return printed.pop(""), printed


def here(change: str, parameters: Parameters) -> str | None:
    """A change at the published size as it is at the size of these parameters; None where it has no counterpart."""
    name, _, number = change.rpartition("-")
    if name not in ("early", "block"):
        return change
    if change == _WHOLE:
        return f"block-{parameters.length}"
    unit, whole = (parameters.layers, _LAYERS) if name == "early" else (parameters.block_size, _BLOCK)
    scaled, left = divmod(int(number) * unit, whole)
    return None if left or (name == "block" and not 1 <= scaled <= parameters.length) else f"{name}-{scaled}"


def row_name(variant: str, change: str, parameters: Parameters) -> str | None:
    """The study's row of a variant with a change at the published size; None where there can be none."""
    ours = here(change, parameters)
    return None if ours is None else f"{variant}-{ours}" if ours else variant


def why_not(comparison: Comparison, parameters: Parameters, present: Sequence[str], scale: str) -> str:
    """Why a comparison cannot be made from the rows that are ``present``; empty where it can."""
    missing = []
    for change in (comparison.better, comparison.worse):
        name = row_name(comparison.variant, change, parameters)
        if name is None:
            return f"{change} of the published size has no counterpart in {parameters.layers} layers of these sizes"
        if name not in present:
            same = [other for other in present if other != name and _same_model(name, other, parameters)]
            if same:
                return f"{name} is the same model as {same[0]} with {parameters.layers} layers"
            missing.append(name)
    return row_losses.untrained(missing, scale) if missing else ""


def _same_model(name: str, other: str, parameters: Parameters) -> bool:
    return ablations.model(name, parameters) == ablations.model(other, parameters)


def label(change: str, parameters: Parameters) -> str:
    """A line's name for a reader, with the numbers of this size."""
    ours = here(change, parameters)
    layers = parameters.layers if ours is not None else _LAYERS
    name, _, number = (change if ours is None else ours).rpartition("-")
    if name == "early":
        of = "" if ours is not None else f" (of {layers})"
        return f"{number} Diag, {layers - int(number)} Norm{of}"
    if name == "block":
        whole = " (the whole sequence)" if ours is not None and int(number) >= parameters.length else ""
        return f"blocks of {number}{whole}"
    return _LABELS[change]


_LABELS: Mapping[str, str] = {
    "": "TransNormer",
    "reversed": "Norm first, then Diag",
    "ffn": "FFN, GELU",
    "ffn-swish": "FFN, swish",
    "glu-identity": "GLU without activation",
    "alternating": "in turns, Diag first",
    "alternating-reversed": "in turns, Norm first",
    "parallel": "side by side in every layer",
    "wide": "a wider GLU, as many weights as side by side",
}


def shown(table: str, bits: Mapping[str, Sequence[float]], parameters: Parameters) -> list[Line]:
    """The lines of a table that have something to show: printed numbers, or losses of ours."""
    return [
        line
        for line in lines(table)
        if any(value is not None for value in line.published.values())
        or any(row_name(variant, line.change, parameters) in bits for variant in VARIANTS)
    ]


def losses(
    table: str, bits: Mapping[str, Sequence[float]], parameters: Parameters
) -> dict[str, dict[str, Sequence[float]]]:
    """The losses of every line that is shown, by its label and variant; none where nothing was run."""
    return {
        label(line.change, parameters): {
            variant: bits.get(row_name(variant, line.change, parameters) or "", ()) for variant in VARIANTS
        }
        for line in shown(table, bits, parameters)
    }


def published(
    table: str, bits: Mapping[str, Sequence[float]], parameters: Parameters
) -> dict[str, Mapping[str, float | None]]:
    """The printed perplexities of the same lines."""
    return {label(line.change, parameters): line.published for line in shown(table, bits, parameters)}


def loss_table(table: str, bits: Mapping[str, Sequence[float]], parameters: Parameters) -> list[dict[str, Any]]:
    """One line per line that is shown: our losses per variant, mean and range, and the paper's perplexities."""
    heading, found = tables.load("transnormer", table).locus, []
    printed = published(table, bits, parameters)
    for name, by_variant in losses(table, bits, parameters).items():
        ours: dict[str, Any] = {
            f"{variant[-2:].upper()}, ours": f"{row_losses.finished_mean(mine):.3f} ({row_losses.spread(mine)})"
            if mine
            else None
            for variant, mine in by_variant.items()
        }
        theirs = {f"{variant[-2:].upper()}, {heading}": value for variant, value in printed[name].items()}
        found.append({"encoder": name} | ours | theirs)
    return found


def conclusions(table: str, bits: Mapping[str, Sequence[float]], parameters: Parameters) -> list[str]:
    """What the losses say to the table's question: each other line against TransNormer, in sentences."""
    said = []
    for variant in VARIANTS:
        base, short = bits.get(variant), variant[-2:].upper()
        for line in lines(table):
            mine = bits.get(row_name(variant, line.change, parameters) or "")
            if line.change and base is not None and mine is not None:
                names = f"{short}, {label(line.change, parameters)},", f"{short} as it is"
                said.append(row_losses.compared(*names, dict(zip(names, (mine, base), strict=True))))
    return said
