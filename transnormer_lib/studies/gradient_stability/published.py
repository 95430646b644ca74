"""What Tables 1, 2 and 8 of the paper print for the rows of notebook 02."""

from collections.abc import Sequence

from transnormer_lib.studies.common.published import number
from transnormer_lib.studies.gradient_stability.runs import parts

# The architectures by the names of the tables. They do not say which φ their NormAttention has.
_TABLE_1 = {"linear": "1+elu", "linear-unscaled": "1+elu without scaling"}
_TABLE_1 |= {"norm-t1": "NormAttention", "norm-t2": "NormAttention"}
_TABLE_2 = {"norm-t1": "NormAttention", "norm-t2": "NormAttention", "vanilla": "Vanilla", "linear": "1+elu"}
_TABLE_2 |= {"performer": "Performer"}


def perplexities(row: str) -> dict[str, float | None] | None:
    """The masked-LM perplexities of a row in Tables 1 and 8; None for a row that Table 1 does not have.

    Table 8 has NormAttention in every layer as well (its row 0/12), from other runs than Table 1's.
    """
    architecture, norm, _ = parts(row)
    if architecture not in _TABLE_1 or norm != "rms":
        return None
    eight = {f"norm-{kind}": number("table_8", kind, diag_layers=0) for kind in ("t1", "t2")}
    return {"Table 1": number("table_1", "ppl_val", method=_TABLE_1[architecture]), "Table 8": eight.get(architecture)}


def deviations(rows: Sequence[str]) -> dict[str, float]:
    """Table 2's number for each row that it has; NormAttention's is used for both φ."""
    named = {row: _TABLE_2.get(parts(row).architecture) for row in rows if parts(row).norm == "rms"}
    return {row: number("table_2", "rsd", method=method) for row, method in named.items() if method}
