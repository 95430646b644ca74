"""Batches of labelled sequences: endless for training, each example once for evaluation; padded, with their mask.

A batch is, with B examples of N tokens (``[B, 2, N]`` where an example is a pair):

- ``input_ids`` [B, N] int64, ``key_padding_mask`` [B, N] bool, True on padding, ``targets`` [B] int64.

What is padding follows from the lengths, never from a token's value: the original Long Range Arena harness took every
id 0 for padding, black pixels included. N is the longest sequence of the batch rounded up to ``multiple`` (64: the
blocks of DiagAttention), or ``length``.

As in ``data.batches`` a training sampler has no state: ``batch(step)`` depends on its seed and the step alone. It goes
through the examples in a new random order each epoch; a batch that an epoch cannot fill is filled from the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.data.batches import Batch, Sampler
from transnormer_lib.data.examples import Examples
from transnormer_lib.data.task_kinds import chosen_rows

MULTIPLE = 64  # the published block size of DiagAttention


@dataclass(frozen=True)
class Padding:
    """What stands after a sequence, and how far. Raises ``ValueError`` naming the field, value and rule."""

    pad_id: int  # never looked at where the model honours the mask
    length: int | None = None  # pad every batch to this many tokens; None: to its longest, rounded up
    multiple: int = MULTIPLE

    def __post_init__(self) -> None:
        for name, least in (("pad_id", 0), ("length", 1), ("multiple", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value!r}: must be at least {least}")

    def padded(self, longest: int) -> int:
        """N of a batch whose longest sequence has ``longest`` tokens."""
        return self.length or -(-longest // self.multiple) * self.multiple


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

    Raises:
        ValueError: a number is out of range, or a sequence is longer than ``length``.
    """
    if seed < 0:
        raise ValueError(f"seed={seed!r}: must be at least 0")
    return _TrainingBatches(
        examples, _checked(examples, Padding(pad_id, length, multiple), batch_size), batch_size, seed
    )


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

    Sequences of like length come together, longest first, so that little is padded and the first batch shows whether
    memory suffices; ``in_order`` gives them as they stand in ``examples``. ``limit`` takes that many examples,
    drawn at random and always the same ones, where there are more: every second example of a task that comes in twins
    would be of one class. ``rows`` [n] names the examples instead.

    Raises:
        ValueError: a number is out of range, or a sequence is longer than ``length``.
    """
    padding = _checked(examples, Padding(pad_id, length, multiple), batch_size)
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit!r}: must be at least 1")
    chosen = chosen_rows(len(examples), limit, "evaluation") if rows is None else rows
    if not in_order:
        chosen = chosen[np.argsort(-_longest(examples)[chosen], kind="stable")]
    groups = [chosen[first : first + batch_size] for first in range(0, chosen.size, batch_size)]
    return (collate(examples, group, padding) for group in groups)


def collate(examples: Examples, index: NDArray[np.int64], padding: Padding) -> Batch:
    """The examples ``index`` [B] as one padded batch."""
    rows = examples.sequences_of(index)
    starts, ends = examples.offsets[rows], examples.offsets[rows + 1]
    lengths = ends - starts
    width = padding.padded(int(lengths.max()))
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
        if step < 0:
            raise ValueError(f"step={step!r}: must be at least 0")
        n = len(self.examples)
        places = step * self.batch_size + np.arange(self.batch_size)
        epochs = places // n
        index = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs).tolist():
            within = epochs == epoch
            index[within] = _order(self.seed, epoch, n)[places[within] % n]
        return collate(self.examples, index, self.padding)


@lru_cache(maxsize=8)  # saves time alone: the order follows from its arguments
def _order(seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n)


def _longest(examples: Examples) -> NDArray[np.int64]:
    """[n]: the longer sequence of each example."""
    return examples.lengths.reshape(len(examples), -1).max(axis=1)


def _checked(examples: Examples, padding: Padding, batch_size: int) -> Padding:
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r}: must be at least 1")
    longest = int(examples.lengths.max())
    if padding.length is not None and padding.length < longest:
        raise ValueError(f"length={padding.length}: the longest sequence has {longest} tokens")
    return padding
