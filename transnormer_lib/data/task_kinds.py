"""What a classification task is before it is encoded: its facts, and how the rows of its splits are read.

A task's rows are text (one or two per row) or, where it has symbols of its own such as pixels, ready ``Examples``.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.examples import Examples

# What the tokens of a task may be: those of any vocabulary; bytes by the task's definition; symbols of its own.
Alphabet = Literal["text", "bytes", "symbols"]


@dataclass(frozen=True)
class TextRows:
    """Rows of text with their labels; ``second`` holds the second texts of pairs."""

    first: Sequence[str]
    second: Sequence[str] | None
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class SplitReader:
    """One split, not read yet."""

    parts: Callable[[], Iterable[TextRows | Examples]]  # the rows, piece by piece; called once at most
    identity: str  # changes whenever the rows do
    origin: str  # where they come from: "embedded", "generated", "data root" or "Hub"
    sample: str = ""  # of a table that has not the published rows: "train 8,999 of 392,702 rows"


@dataclass(frozen=True)
class TaskDefinition:
    """A task's facts. ``read(split, limit)`` gives the split, or ``limit`` rows of it where it has more."""

    name: str
    title: str
    read: Callable[[str, int | None], SplitReader]
    classes: int
    length: int  # sequences are cut to this many tokens unless a caller says otherwise
    source: str = ""  # the data set that it is made of, by its name in ``sources`` or ``hub``; generated: none
    stand_in: bool = False
    pairs: bool = False
    splits: tuple[str, ...] = ("train", "validation", "test")  # those that are read
    aliases: Mapping[str, str] = field(default_factory=dict)  # further names of splits
    metrics: tuple[str, ...] = ("accuracy",)
    alphabet: Alphabet = "text"
    symbols: int = 0  # with symbols of its own: their number, pad included
    pad_id: int = 0  # and which of them is the pad


def chosen_rows(total: int, limit: int | None, key: str) -> NDArray[np.int64]:
    """The numbers of ``limit`` of ``total`` rows, ascending: at random, fixed by ``key``; all where limit is None.

    A sample and not the first rows: IMDb, for one, is sorted by label. A larger limit keeps the rows of a smaller one.
    """
    if limit is None or limit >= total:
        return np.arange(total)
    return np.sort(generator("rows", key).permutation(total)[:limit])


def generator(*parts: str) -> np.random.Generator:
    """Random numbers that follow from these names alone."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
