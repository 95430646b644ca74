"""Batches of token windows: endless for training, fixed for evaluation; causal and masked.

Every batch is ``{"input_ids": [B, N], "targets": [B, N]}``, int64 tensors on the CPU: B sequences of N tokens. The loss
skips targets of ``IGNORE``.

- causal: the target is the next token.
- masked (BERT, Devlin et al. 2019, §3.1): a share of the tokens is selected. Most of them are replaced by the mask,
  some by a random token, some are kept. The target is the original token, at selected positions only. The share times
  the length, rounded at random, is the number selected in each sequence, as in fairseq (which the paper's Appendix E
  uses), and at least one, so that every sequence has a target.

A training sampler has no state: ``batch(step)`` depends only on its seed and the step. A resumed run sees the same
batches as an uninterrupted one, and all models with one seed see the same text in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transnormer_lib.checks import check_count
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.vocabulary import Tokens, Vocabulary, check_tokens

Batch = dict[str, Tensor]
IGNORE = -100  # torch's default ignore_index
Masked = tuple[Vocabulary, MaskingConfig]  # of the text, and of the tokens to predict


class Sampler(Protocol):
    """An endless sequence of training batches, by number."""

    def batch(self, step: int) -> Batch:
        """The batch of optimiser step ``step``, counted from 0."""


def evaluation_windows(
    tokens: Tokens, *, length: int, batch_size: int, limit: int | None = None, masked: Masked | None = None
) -> Iterator[Batch]:
    """Batches of the contiguous, non-overlapping windows of ``tokens`` [T], in order; the masks are always the same.

    Every target occurs once, except those in a remainder shorter than a window. ``limit`` takes at most that many
    windows, spread evenly over the text. The last batch may have fewer sequences. Raises ValueError if a number is out
    of range, or there are fewer tokens than a window needs.
    """
    _check_length(tokens, length, masked)
    starts = _window_starts(tokens.size - (masked is None), length, limit)
    if masked is None:
        return (_causal(tokens, group, length) for group in groups(starts, batch_size))
    # Mask all windows at once, so that the masks do not depend on the batch size.
    whole = _masked(_windows(tokens, starts, length), *masked, np.random.default_rng(0))
    indices = groups(np.arange(len(starts)), batch_size)
    return ({name: values[group] for name, values in whole.items()} for group in indices)


def groups(items: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """The items in groups of ``batch_size``; the last may have fewer."""
    check_count("batch_size", batch_size)
    return [items[first : first + batch_size] for first in range(0, len(items), batch_size)]


@dataclass(frozen=True)
class WindowBatches:
    """A sampler of random windows of ``tokens`` [T], every window equally likely at every step, masked anew.

    Raises ValueError if a number is out of range, or there are fewer tokens than a window needs.
    """

    tokens: Tokens
    length: int  # N
    batch_size: int  # B
    seed: int  # decides the windows and the masks
    masked: Masked | None = None  # None: causal

    def __post_init__(self) -> None:
        _check_length(self.tokens, self.length, self.masked)
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        rng = np.random.default_rng([self.seed, step])
        windows = self.tokens.size - self.length + (self.masked is not None)
        starts = rng.integers(windows, size=self.batch_size)
        if self.masked is None:
            return _causal(self.tokens, starts, self.length)
        return _masked(_windows(self.tokens, starts, self.length), *self.masked, rng)


def _causal(tokens: Tokens, starts: NDArray[np.int64], length: int) -> Batch:
    windows = torch.from_numpy(_windows(tokens, starts, length + 1))
    return {"input_ids": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}


def _masked(
    windows_BN: NDArray[np.int64], vocabulary: Vocabulary, masking: MaskingConfig, rng: np.random.Generator
) -> Batch:
    batch_size, length = windows_BN.shape
    # A random order of the positions; the first `count` of it are selected.
    rank_BN = rng.random(windows_BN.shape).argsort(axis=1).argsort(axis=1)
    count_B1 = np.floor(masking.selected * length + rng.random((batch_size, 1)))
    selected_BN = rank_BN < np.maximum(count_B1, 1)
    fate_BN = rng.random(windows_BN.shape)
    random_BN = rng.integers(vocabulary.text_size, size=windows_BN.shape)
    seen_BN = np.where(fate_BN < masking.masked + masking.random, random_BN, windows_BN)
    seen_BN = np.where(fate_BN < masking.masked, vocabulary.mask_id, seen_BN)
    return {
        "input_ids": torch.from_numpy(np.where(selected_BN, seen_BN, windows_BN)),
        "targets": torch.from_numpy(np.where(selected_BN, windows_BN, IGNORE)),
    }


def _windows(tokens: Tokens, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    return tokens[starts[:, None] + np.arange(length)].astype(np.int64)


def _window_starts(tokens: int, length: int, limit: int | None) -> NDArray[np.int64]:
    windows = tokens // length
    chosen = np.arange(windows)
    if limit is not None:
        check_count("limit", limit)
        if limit < windows:
            chosen = np.arange(limit) * windows // limit
    return chosen * length


def _check_length(tokens: Tokens, length: int, masked: Masked | None) -> None:
    check_count("length", length)
    check_tokens(tokens)
    if tokens.size < (least := length + (masked is None)):  # a causal window needs the target of its last token too
        raise ValueError(f"tokens: has {tokens.size}, must have at least {least} for windows of this length")
