"""Is it locality? What attends in the early layers, in front of NormAttention: neighbours, or others at the same cost.

``diag`` is a block of neighbours; ``scattered`` a block of as many tokens that a fixed random permutation of the
positions draws from the whole sequence, so that only the neighbourhood is gone; ``window`` the last tokens before the
query, as many as a block has, so on average twice as many as a query sees in its block; ``softmax`` every token before
it; ``linear`` too, without softmax's choice.
"""

from collections.abc import Mapping
from typing import Any

from transnormer_lib.analysis.seeds import mean, spread
from transnormer_lib.studies.autoregressive_lm.factors import Bits, Compared, compared, ranked

# By claim, what attends early, the favoured one first. With LRPE a claim's name ends with "-lrpe".
CLAIMS: Mapping[str, tuple[str, str]] = {
    "neighbours-over-scattered": ("diag", "scattered"),
    "neighbours-over-whole-text": ("diag", "softmax"),
    "window-over-blocks": ("window", "diag"),
    "scattered-over-linear": ("scattered", "linear"),
}

_SAYS = {
    "diag": "a block of neighbours: DiagAttention",
    "scattered": "as many tokens, drawn from the whole sequence by a fixed permutation",
    "window": "the last tokens before the query, as many as a block has",
    "softmax": "every token before the query: softmax attention",
    "linear": "every token before the query: 1+elu attention",
    "norm": "every token before the query: NormAttention",
}


def pair(early: str) -> str:
    """An early mechanism in front of NormAttention."""
    return f"{early}/norm"


def table(bits: Bits, rotation: str) -> list[dict[str, Any]]:
    """One line per early mechanism that was trained: what it sees, mean loss, range over seeds; lowest loss first."""
    return [
        {"early layers": early, "a query sees": _SAYS[early], "loss": mean(found), "range": spread(found, 4)}
        for early, found in ranked(bits, {early: pair(early) for early in _SAYS}, rotation)
    ]


def comparisons(bits: Bits, rotation: str) -> Compared:
    """The losses of both sides, the favoured one first, by claim; only those of which both rows are in ``bits``."""
    return compared(bits, {claim: (pair(a), pair(b)) for claim, (a, b) in CLAIMS.items()}, rotation)
