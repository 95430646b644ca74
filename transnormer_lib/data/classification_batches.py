"""Batches of labelled sequences: endless for training, each example once for evaluation; padded, with their mask.

A batch is, with B examples of N tokens (``[B, 2, N]`` if an example is a pair, ``[B, C, N]`` if it is a group; C is
the largest group of the batch, and what a smaller one lacks is all padding):

- ``input_ids`` [B, N] int64, ``key_padding_mask`` [B, N] bool, True on padding, ``targets`` [B] int64.
- Of spans ``targets`` is [B, C, N]: the marks of the right span (``examples.Passages``). ``places`` [B, C, N] int64
  has the character of the passage for each token, -1 outside it; ``examples`` [B] int64 the numbers of the examples.

The mask follows from the lengths, never from token values: the original Long Range Arena harness treated every id 0 as
padding, black pixels included. N is the longest sequence of the batch, rounded up to a multiple.

As in ``data.batches`` a training sampler has no state: ``batch(step)`` depends only on its seed and the step. Each
epoch visits the examples in a new random order; a batch that an epoch cannot fill is completed from the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.checks import check_count
from transnormer_lib.data.batches import Batch, groups
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.task_kinds import chosen_rows

MULTIPLE = 64  # the published block size of DiagAttention


@dataclass(frozen=True)
class Padding:
    """How batches are padded. Raises ``ValueError`` naming the field, value and rule."""

    pad_id: int  # ignored by a model that honours the mask
    multiple: int = MULTIPLE  # the length of a batch is rounded up to a multiple of this

    def __post_init__(self) -> None:
        check_count("pad_id", self.pad_id, 0)
        check_count("multiple", self.multiple)


def evaluation_batches(
    examples: Examples,
    padding: Padding,
    *,
    batch_size: int,
    limit: int | None = None,
    rows: NDArray[np.int64] | None = None,
) -> Iterator[Batch]:
    """Every example once; the last batch may have fewer.

    Sequences are sorted by length, longest first: little is padded, and the first batch shows whether memory suffices.
    ``limit`` takes at most that many examples, always the same ones, drawn at random because every second example of a
    task made of twins has the same class. ``rows`` [n] selects examples instead. Raises ValueError if a number is out
    of range.
    """
    if limit is not None:
        check_count("limit", limit)
    chosen = chosen_rows(len(examples), limit, "evaluation") if rows is None else rows
    longest = np.maximum.reduceat(examples.lengths, examples.sizes.cumsum() - examples.sizes)  # [n]: of its sequences
    chosen = chosen[np.argsort(-longest[chosen], kind="stable")]
    return (collate(examples, group, padding) for group in groups(chosen, batch_size))


def collate(examples: Examples, index: NDArray[np.int64], padding: Padding) -> Batch:
    """The examples ``index`` [B] as one padded batch."""
    rows, sizes = examples.sequences_of(index), examples.sizes[index]
    most = int(sizes.max())  # C
    # Each sequence's row in the batch: its example's first row, and its number within the example.
    slots = (np.arange(index.size) * most).repeat(sizes) + np.arange(rows.size) - (sizes.cumsum() - sizes).repeat(sizes)
    starts, ends = examples.offsets[rows], examples.offsets[rows + 1]
    lengths = np.zeros(index.size * most, np.int64)
    lengths[slots] = ends - starts
    width = -(-int(lengths.max()) // padding.multiple) * padding.multiple  # N
    grouped = examples.pairs or examples.groups is not None
    shape = (index.size, most, width) if grouped else (index.size, width)

    def padded(values: NDArray[Any], fill: int) -> torch.Tensor:
        found = np.full((lengths.size, width), fill, np.int64)
        for slot, start, end in zip(slots.tolist(), starts.tolist(), ends.tolist(), strict=True):
            found[slot, : end - start] = values[start:end]
        return torch.from_numpy(found.reshape(shape))

    mask = np.arange(width) >= lengths[:, None]
    batch = {
        "input_ids": padded(examples.tokens, padding.pad_id),
        "key_padding_mask": torch.from_numpy(mask.reshape(shape)),
        "targets": torch.from_numpy(examples.labels[index].astype(np.int64)),
    }
    if examples.passages is not None:
        batch |= {
            "targets": padded(examples.passages.marks, 0),
            "places": padded(examples.passages.places, -1),
            "examples": torch.from_numpy(index.copy()),
        }
    return batch


@dataclass(frozen=True)
class ExampleBatches:
    """An endless sampler over ``examples``. Raises ValueError if a number is out of range."""

    examples: Examples
    padding: Padding
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        check_count("seed", self.seed, 0)
        check_count("batch_size", self.batch_size)

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        return collate(self.examples, shuffled(len(self.examples), self.batch_size, self.seed, step), self.padding)


class Pooled(Protocol):
    """A task whose examples are all there and can be asked for by number."""

    def pool(self, split: str, /) -> int:
        """The number of examples of a split."""

    def batch(self, split: str, index: NDArray[np.int64], /) -> Batch:
        """The examples ``index`` [B]."""


@dataclass(frozen=True)
class EpochBatches:
    """A sampler that reads every training example once per epoch. Raises ValueError if a number is out of range."""

    task: Pooled
    batch_size: int  # B
    seed: int

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        return self.task.batch("train", shuffled(self.task.pool("train"), self.batch_size, self.seed, step))


def shuffled(n: int, batch_size: int, seed: int, step: int) -> NDArray[np.int64]:
    """Which [B] of ``n`` examples batch ``step`` holds; every epoch reads all of them in an order of its own."""
    places = step * batch_size + np.arange(batch_size)
    epochs = places // n
    index = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs).tolist():
        within = epochs == epoch
        index[within] = _order(seed, epoch, n)[places[within] % n]
    return index


@lru_cache(maxsize=8)
def _order(seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n)
