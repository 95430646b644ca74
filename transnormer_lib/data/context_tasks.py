"""Sequences whose answers stand in their own earlier tokens: associative recall and copying.

No answer can be guessed from the token before it, so a model has to look it up. Shapes: B sequences, N tokens.

- ``recall-P``: P pairs of a key and a value, all keys different; then the same P keys again, each once, in a random
  order at random places among blanks. The target of each is its value. It is the multi-query associative recall of
  Arora et al. (2023, arXiv:2312.04927), with places drawn evenly.
- ``copy-M``: M random symbols and a separator, then the same M symbols; each is the target of the token before it.
  Blanks fill the rest.

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

RULES = ("recall", "copy")
SPLITS = ("train", "validation", "test")
KEYS, VALUES = 32, 32  # different keys, different values; copied symbols may be either
VOCAB_SIZE = 2 + KEYS + VALUES
_BLANK, _SEPARATOR, _FIRST = 0, 1, 2  # ids; keys from the third on, values after them
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
        if not count.isdecimal() or not 1 <= int(count) <= (KEYS if rule == "recall" else self.length):
            most = f"1 to {KEYS} pairs" if rule == "recall" else "at least 1 symbol"
            raise ValueError(f"task_name={self.name!r}: must be {rule}-COUNT with {most}")
        if self.length < (least := (3 if rule == "recall" else 2) * int(count)):
            raise ValueError(f"length={self.length}: {self.name} needs at least {least} tokens")

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits; none is ever absent."""
        return SPLITS

    @property
    def absent(self) -> Mapping[str, str]:
        return {}

    @property
    def count(self) -> int:
        """The answers of a sequence."""
        return int(self.name.partition("-")[2])

    @property
    def chance(self) -> float:
        """The accuracy of a guess among the symbols that can be right."""
        return 1 / (VALUES if self.name.startswith("recall") else KEYS + VALUES)

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, over what decides the sequences."""
        content = f"{self.name} {self.length} {KEYS} {VALUES} {_VERSION}"
        return hashlib.sha256(content.encode()).hexdigest()

    def draw(self, sequences: int, rng: np.random.Generator) -> Batch:
        """``{"input_ids": [B, N], "targets": [B, N]}``, int64."""
        rule = _recall if self.name.startswith("recall") else _copy
        input_ids, targets = rule(sequences, self.length, self.count, rng)
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


@dataclass(frozen=True)
class ContextBatches:
    """A sampler of new sequences of ``task`` at every step. Raises ValueError if a number is out of range."""

    task: ContextTask
    batch_size: int  # B
    seed: int

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        return self.task.draw(self.batch_size, np.random.default_rng([self.seed, step]))


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
