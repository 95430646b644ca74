"""Sequences whose answers stand in their own earlier tokens: associative recall and copying.

No answer can be guessed from the token before it, so a model has to look it up. Shapes: B sequences, N tokens.

- ``recall-P``: P pairs of a key and a value, all keys different; then the same P keys again, each once, in a random
  order at random places among blanks. The target of each is its value. It is the multi-query associative recall of
  Arora et al. (2023, arXiv:2312.04927), with places drawn evenly.
- ``copy-M``: M random symbols and a separator, then the same M symbols; each is the target of the token before it.
  Blanks fill the rest.
- ``duplicate-S``: n symbols out of S, the separator, the same n symbols, with n drawn evenly from N/4 to (N-1)/2 - 1;
  separators fill the rest. The targets are the separator after the symbols and the n symbols after it. It is the task
  of Figure 2 of "Transformers are RNNs", as released (idiap/linear-transformer-experiments@0a54093; S = 10, N = 128).

All other targets are ``IGNORE``. Nothing is stored: a batch depends on the task and on its random generator alone.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data.batches import IGNORE, Batch

RULES = ("recall", "copy", "duplicate")
SPLITS = ("train", "validation", "test")
KEYS, VALUES = 32, 32  # different keys, different values; copied symbols may be either
VOCAB_SIZE = 2 + KEYS + VALUES
_BLANK, _SEPARATOR, _FIRST = 0, 1, 2  # ids; keys from the third on, values after them
_MOST_SYMBOLS = 255
_VERSION = 1  # of the rules below; another one makes all runs anew


@dataclass(frozen=True)
class ContextTask:
    """One task at one length. Raises ValueError for an unknown name, and for a length that is too short for it."""

    name: str  # RULE-COUNT
    length: int  # N

    def __post_init__(self) -> None:
        check_count("length", self.length)
        rule, _, count = self.name.partition("-")
        check_choice("task_name", rule, RULES)
        most = {"recall": KEYS, "copy": self.length, "duplicate": _MOST_SYMBOLS}[rule]
        if not count.isdecimal() or not 1 <= int(count) <= most:
            of = {"recall": f"1 to {KEYS} pairs", "copy": "at least 1 symbol", "duplicate": f"1 to {most} symbols"}[
                rule
            ]
            raise ValueError(f"task_name={self.name!r}: must be {rule}-COUNT with {of}")
        least = {"recall": 3 * int(count), "copy": 2 * int(count), "duplicate": 8}[rule]
        if self.length < least:
            raise ValueError(f"length={self.length}: {self.name} needs at least {least} tokens")

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits; none is ever absent."""
        return SPLITS

    @property
    def absent(self) -> Mapping[str, str]:
        return {}

    @property
    def rule(self) -> str:
        return self.name.partition("-")[0]

    @property
    def count(self) -> int:
        """The number in its name: the answers of a sequence, or the different symbols of ``duplicate``."""
        return int(self.name.partition("-")[2])

    @property
    def vocab_size(self) -> int:
        return self.count + 1 if self.rule == "duplicate" else VOCAB_SIZE

    @property
    def chance(self) -> float:
        """The accuracy of a guess among the symbols that can be right."""
        return 1 / {"recall": VALUES, "copy": KEYS + VALUES, "duplicate": self.count}[self.rule]

    @property
    def symbols(self) -> range:
        """The numbers n of symbols that a sequence of ``duplicate`` may repeat."""
        return range(self.length // 4, (self.length - 1) // 2)

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, over what decides the sequences."""
        content = f"{self.name} {self.length} {KEYS} {VALUES} {_VERSION}"
        return hashlib.sha256(content.encode()).hexdigest()

    def draw(self, sequences: int, rng: np.random.Generator) -> Batch:
        """``{"input_ids": [B, N], "targets": [B, N]}``, int64."""
        if self.rule == "duplicate":
            input_ids, targets = _duplicate(sequences, self.length, self.count, self.symbols, rng)
        else:
            input_ids, targets = {"recall": _recall, "copy": _copy}[self.rule](sequences, self.length, self.count, rng)
        return {"input_ids": torch.from_numpy(input_ids), "targets": torch.from_numpy(targets)}

    def held_out(self, split: str, sequences: int, batch_size: int) -> Iterator[Batch]:
        """Batches of ``sequences`` sequences, the same ones each time. Raises ValueError for an unknown split."""
        check_choice("split", split, SPLITS)
        rng = np.random.default_rng([0, 0, SPLITS.index(split)])  # training draws from two numbers, this from three
        whole = self.draw(sequences, rng)
        return (
            {name: rows[first : first + batch_size] for name, rows in whole.items()}
            for first in range(0, sequences, batch_size)
        )


_Made = tuple[NDArray[np.int64], NDArray[np.int64]]  # tokens [B, N], targets [B, N]


def _recall(sequences: int, length: int, pairs: int, rng: np.random.Generator) -> _Made:
    keys_BP = _FIRST + rng.random((sequences, KEYS)).argsort(axis=1)[:, :pairs]
    values_BP = _FIRST + KEYS + rng.integers(VALUES, size=(sequences, pairs))
    tokens_BN = np.full((sequences, length), _BLANK, np.int64)
    targets_BN = np.full((sequences, length), IGNORE, np.int64)
    tokens_BN[:, 0 : 2 * pairs : 2], tokens_BN[:, 1 : 2 * pairs : 2] = keys_BP, values_BP
    # Free places in a random order, so that the keys come again in one.
    places_BP = 2 * pairs + rng.random((sequences, length - 2 * pairs)).argsort(axis=1)[:, :pairs]
    np.put_along_axis(tokens_BN, places_BP, keys_BP, axis=1)
    np.put_along_axis(targets_BN, places_BP, values_BP, axis=1)
    return tokens_BN, targets_BN


def _copy(sequences: int, length: int, symbols: int, rng: np.random.Generator) -> _Made:
    drawn_BM = _FIRST + rng.integers(KEYS + VALUES, size=(sequences, symbols))
    tokens_BN = np.full((sequences, length), _BLANK, np.int64)
    targets_BN = np.full((sequences, length), IGNORE, np.int64)
    tokens_BN[:, :symbols], tokens_BN[:, symbols] = drawn_BM, _SEPARATOR
    tokens_BN[:, symbols + 1 : 2 * symbols] = drawn_BM[:, :-1]
    targets_BN[:, symbols : 2 * symbols] = drawn_BM
    return tokens_BN, targets_BN


def _duplicate(sequences: int, length: int, symbols: int, lengths: range, rng: np.random.Generator) -> _Made:
    n_B1 = rng.integers(lengths.start, lengths.stop, size=(sequences, 1))
    drawn_BN = 1 + rng.integers(symbols, size=(sequences, length))
    place_N = np.arange(length)
    first_BN, again_BN = place_N < n_B1, (place_N > n_B1) & (place_N <= 2 * n_B1)
    earlier_BN = np.take_along_axis(drawn_BN, np.maximum(place_N - n_B1 - 1, 0), axis=1)
    tokens_BN = np.where(first_BN, drawn_BN, np.where(again_BN, earlier_BN, 0))  # 0 is the separator
    asked_BN = (place_N >= n_B1 - 1) & (place_N < 2 * n_B1)
    targets_BN = np.where(asked_BN, np.roll(tokens_BN, -1, axis=1), IGNORE)
    return tokens_BN, targets_BN
