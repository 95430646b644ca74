"""What a classification task is before it is encoded: its facts, and the readers of its splits.

The rows of a task are text (one or two per row, a text with candidates, a passage with a question), or ready
``Examples`` if it has its own symbols, such as pixels.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.choices import TaskKind
from transnormer_lib.data.examples import Examples

# The tokens of a task: those of any vocabulary, bytes by the task's definition, or symbols of its own.
Alphabet = Literal["text", "bytes", "symbols"]


@dataclass(frozen=True)
class TextRows:
    """Rows of text with their labels; ``second`` holds the second texts of pairs."""

    first: Sequence[str]
    second: Sequence[str] | None
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class ChoiceRows:
    """Texts with candidates, of which one is right; a sequence is a text, a newline, a candidate."""

    texts: Sequence[str]
    centres: Sequence[int]  # the character of each text around which it is cut if it is too long; 0: its end is cut
    candidates: Sequence[Sequence[str]]  # of each text
    labels: NDArray[np.int64]  # the place of the right one


@dataclass(frozen=True)
class SpanRows:
    """Questions about passages, answered by a span of the passage."""

    questions: Sequence[str]
    passages: Sequence[str]
    answers: Sequence[Sequence[tuple[int, str]]]  # references: first character and text; the first one is trained


Rows = TextRows | ChoiceRows | SpanRows


@dataclass(frozen=True)
class SplitReader:
    """One split, not read yet."""

    parts: Callable[[], Iterable[Rows | Examples]]  # the rows, piece by piece; called at most once
    identity: str  # changes whenever the rows do
    origin: str  # "embedded", "generated", "data root" or "Hub"
    sample: str = ""  # if a table is not the published one: "train 8,999 of 392,702 rows"


Read = Callable[[str, int | None], SplitReader]  # (split, limit): the split, or ``limit`` of its rows if it has more


@dataclass(frozen=True)
class TaskDefinition:
    name: str
    title: str
    read: Read
    classes: int  # of choices: the most candidates; of spans: 2, start and end
    length: int  # default maximum of tokens per sequence; longer ones are cut
    source: str = ""  # its data set, by the name in ``sources`` or ``hub``; "" if generated
    stand_in: bool = False
    pairs: bool = False
    splits: tuple[str, ...] = ("train", "validation", "test")  # those that are read
    aliases: Mapping[str, str] = field(default_factory=dict)  # further names of splits
    metrics: tuple[str, ...] = ("accuracy",)
    alphabet: Alphabet = "text"
    symbols: int = 0  # number of its own symbols, pad included
    pad_id: int = 0  # the pad among its own symbols
    train_examples: int = 0  # as published, where a row of the table holds several; 0: a row is an example
    kind: TaskKind = "label"


def chosen_rows(total: int, limit: int | None, key: str) -> NDArray[np.int64]:
    """The indices of ``limit`` of ``total`` rows, ascending: a random sample fixed by ``key``, or all if limit is None.

    The first rows would not do: IMDb, for one, is sorted by label. A larger limit keeps the rows of a smaller one.
    """
    if limit is None or limit >= total:
        return np.arange(total)
    return np.sort(generator("rows", key).permutation(total)[:limit])


def generator(*parts: str) -> np.random.Generator:
    """Random numbers seeded by these names."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
