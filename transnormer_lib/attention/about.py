"""What is known of a mechanism beside its code: cost and source, as data that tables are made of."""

from dataclasses import dataclass
from typing import Literal

Growth = Literal["linear", "linearithmic", "quadratic"]


@dataclass(frozen=True)
class About:
    """One row of the table of mechanisms.

    Costs are those of the fast form, per head and sequence, as orders: N length, D head_dim, and the names of the
    config's fields for the rest. Whether a mechanism is causal and recurrent is asked of its classes.
    """

    title: str  # the name a reader knows it by
    time: str  # for example "N·w·D"
    memory: str  # beside its inputs and output
    memory_growth: Growth  # the order of ``memory`` in N alone: the tests measure it
    source: str  # authors, year, and where it is defined
    oracle: str  # the independent source that the tests hold it against
