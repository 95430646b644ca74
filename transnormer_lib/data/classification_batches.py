"""Batches of labelled sequences: endless for training, each example once for evaluation; padded, with their mask.

A batch is, with B examples of N tokens (``[B, 2, N]`` if an example is a pair):

- ``input_ids`` [B, N] int64, ``key_padding_mask`` [B, N] bool, True on padding, ``targets`` [B] int64.

The mask follows from the lengths, never from token values: the original Long Range Arena harness treated every id 0 as
padding, black pixels included. N is ``length``, or the longest sequence of the batch rounded up to ``multiple`` (64,
the block size of DiagAttention).

As in ``data.batches`` a training sampler has no state: ``batch(step)`` depends only on its seed and the step. Each
epoch visits the examples in a new random order; a batch that an epoch cannot fill is completed from the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.checks import check_count
from transnormer_lib.data.batches import Batch, Sampler, groups
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.task_kinds import chosen_rows

MULTIPLE = 64  # the published block size of DiagAttention


@dataclass(frozen=True)
class Padding:
    """How batches are padded. Raises ``ValueError`` naming the field, value and rule."""

    pad_id: int  # ignored by a model that honours the mask
    length: int | None = None  # pad every batch to this many tokens; None: to its longest, rounded up
    multiple: int = MULTIPLE

    def __post_init__(self) -> None:
        check_count("pad_id", self.pad_id, 0)
        if self.length is not None:
            check_count("length", self.length)
        check_count("multiple", self.multiple)


def training_batches(
    examples: Examples,
    *,
    pad_id: int,
    batch_size: int,
    seed: int,
    length: int | None = None,
    multiple: int = MULTIPLE,
) -> Sampler:
    """An endless sampler over ``examples``.

    Raises ValueError if a number is out of range, or a sequence is longer than ``length``.
    """
    check_count("seed", seed, 0)
    check_count("batch_size", batch_size)
    return _TrainingBatches(examples, _padding(examples, pad_id, length, multiple), batch_size, seed)


def evaluation_batches(
    examples: Examples,
    *,
    pad_id: int,
    batch_size: int,
    length: int | None = None,
    multiple: int = MULTIPLE,
    limit: int | None = None,
    rows: NDArray[np.int64] | None = None,
    in_order: bool = False,
) -> Iterator[Batch]:
    """Every example once; the last batch may have fewer.

    Sequences are sorted by length, longest first: little is padded, and the first batch shows whether memory suffices.
    ``in_order`` keeps the order of ``examples``. ``limit`` takes at most that many examples, always the same ones,
    drawn at random because every second example of a task made of twins has the same class. ``rows`` [n] selects
    examples instead. Raises ValueError if a number is out of range, or a sequence is longer than ``length``.
    """
    padding = _padding(examples, pad_id, length, multiple)
    if limit is not None:
        check_count("limit", limit)
    chosen = chosen_rows(len(examples), limit, "evaluation") if rows is None else rows
    if not in_order:
        longest = examples.lengths.reshape(len(examples), -1).max(axis=1)  # [n]: of a pair, the longer sequence
        chosen = chosen[np.argsort(-longest[chosen], kind="stable")]
    return (collate(examples, group, padding) for group in groups(chosen, batch_size))


def collate(examples: Examples, index: NDArray[np.int64], padding: Padding) -> Batch:
    """The examples ``index`` [B] as one padded batch."""
    rows = examples.sequences_of(index)
    starts, ends = examples.offsets[rows], examples.offsets[rows + 1]
    lengths = ends - starts
    width = padding.length or -(-int(lengths.max()) // padding.multiple) * padding.multiple  # N
    input_ids = np.full((rows.size, width), padding.pad_id, np.int64)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        input_ids[row, : end - start] = examples.tokens[start:end]
    mask = np.arange(width) >= lengths[:, None]
    shape = (index.size, 2, width) if examples.pairs else (index.size, width)
    return {
        "input_ids": torch.from_numpy(input_ids.reshape(shape)),
        "key_padding_mask": torch.from_numpy(mask.reshape(shape)),
        "targets": torch.from_numpy(examples.labels[index].astype(np.int64)),
    }


@dataclass(frozen=True)
class _TrainingBatches:
    examples: Examples
    padding: Padding
    batch_size: int
    seed: int

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        n = len(self.examples)
        places = step * self.batch_size + np.arange(self.batch_size)
        epochs = places // n
        index = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs).tolist():
            within = epochs == epoch
            index[within] = _order(self.seed, epoch, n)[places[within] % n]
        return collate(self.examples, index, self.padding)


@lru_cache(maxsize=8)
def _order(seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n)


def _padding(examples: Examples, pad_id: int, length: int | None, multiple: int) -> Padding:
    padding, longest = Padding(pad_id, length, multiple), int(examples.lengths.max())
    if length is not None and length < longest:
        raise ValueError(f"length={length}: the longest sequence has {longest} tokens")
    return padding
