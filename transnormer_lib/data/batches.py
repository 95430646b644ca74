"""Batches of token windows: endless for training, fixed for evaluation; causal and masked.

Every batch is ``{"input_ids": [B, N], "targets": [B, N]}``, int64 tensors on the CPU: B sequences of N tokens. The loss
skips targets of ``IGNORE``.

- causal: the target is the next token.
- masked (BERT, Devlin et al. 2019, §3.1): a share of the tokens is selected. Most of them are replaced by the mask,
  some by a random token, some are kept. The target is the original token, at selected positions only. The share times
  the length, rounded at random, is the number selected in each sequence, as in fairseq (which the paper's Appendix E
  uses), and at least one, so that every sequence has a target. With ``MaskingConfig.whole_words`` the same is done with
  words: the share of the words of a sequence, rounded at random, is selected, each word with all its tokens, and a
  word's tokens share its fate; only random tokens are drawn one by one. A token is selected as often as before.

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
Starts = NDArray[np.bool_]  # [T]: whether a word begins at the token


class Sampler(Protocol):
    """An endless sequence of training batches, by number."""

    def batch(self, step: int) -> Batch:
        """The batch of optimiser step ``step``, counted from 0."""


class Drawn(Protocol):
    """A task whose training examples are drawn anew for every batch."""

    def draw(self, count: int, rng: np.random.Generator, /) -> Batch:
        """A batch of ``count`` new examples."""


@dataclass(frozen=True)
class DrawnBatches:
    """A sampler of new examples of ``task`` at every step. Raises ValueError if a number is out of range."""

    task: Drawn
    batch_size: int  # B
    seed: int

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        return self.task.draw(self.batch_size, np.random.default_rng([self.seed, step]))


def evaluation_windows(
    tokens: Tokens,
    *,
    length: int,
    batch_size: int,
    limit: int | None = None,
    masked: Masked | None = None,
    word_starts: Starts | None = None,
) -> Iterator[Batch]:
    """Batches of the contiguous, non-overlapping windows of ``tokens`` [T], in order; the masks are always the same.

    Every target occurs once, except those in a remainder shorter than a window. ``limit`` takes at most that many
    windows, spread evenly over the text. The last batch may have fewer sequences. Raises ValueError if a number is out
    of range, there are fewer tokens than a window needs, or whole words are to be masked and ``word_starts`` lacks.
    """
    _check_length(tokens, length, masked)
    words = _words(tokens, masked, word_starts)
    starts = _window_starts(tokens.size - (masked is None), length, limit)
    if masked is None:
        return (_causal(tokens, group, length) for group in groups(starts, batch_size))
    # Mask all windows at once, so that the masks do not depend on the batch size.
    whole = _masked(tokens, words, starts, length, *masked, np.random.default_rng(0))
    indices = groups(np.arange(len(starts)), batch_size)
    return ({name: values[group] for name, values in whole.items()} for group in indices)


def groups(items: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """The items in groups of ``batch_size``; the last may have fewer."""
    check_count("batch_size", batch_size)
    return [items[first : first + batch_size] for first in range(0, len(items), batch_size)]


@dataclass(frozen=True)
class WindowBatches:
    """A sampler of random windows of ``tokens`` [T], every window equally likely at every step, masked anew.

    With ``shortest`` each batch has a random length, every one from ``shortest`` to ``length`` equally likely. It then
    has more sequences, as many as keep the number of tokens nearest to ``length`` × ``batch_size``.

    Raises ValueError if a number is out of range, there are fewer tokens than a window needs, or whole words are to be
    masked and ``word_starts`` lacks.
    """

    tokens: Tokens
    length: int  # N
    batch_size: int  # B
    seed: int  # decides the windows and the masks
    masked: Masked | None = None  # None: causal
    shortest: int = 0  # 0: every batch has ``length``
    word_starts: Starts | None = None  # needed to mask whole words

    def __post_init__(self) -> None:
        _check_length(self.tokens, self.length, self.masked)
        _words(self.tokens, self.masked, self.word_starts)
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, 0)
        if not 0 <= self.shortest <= self.length:
            raise ValueError(f"shortest={self.shortest}: must be from 0 to length={self.length}")

    def batch(self, step: int) -> Batch:
        check_count("step", step, 0)
        rng = np.random.default_rng([self.seed, step])
        length, batch_size = self.length, self.batch_size
        if self.shortest:
            length = int(rng.integers(self.shortest, self.length, endpoint=True))
            batch_size = max(round(self.length * self.batch_size / length), self.batch_size)
        starts = rng.integers(self.tokens.size - length + (self.masked is not None), size=batch_size)
        if self.masked is None:
            return _causal(self.tokens, starts, length)
        words = _words(self.tokens, self.masked, self.word_starts)
        return _masked(self.tokens, words, starts, length, *self.masked, rng)


def _causal(tokens: Tokens, starts: NDArray[np.int64], length: int) -> Batch:
    windows = torch.from_numpy(_windows(tokens, starts, length + 1))
    return {"input_ids": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}


def _masked(
    tokens: Tokens,
    words: Starts | None,
    starts: NDArray[np.int64],
    length: int,
    vocabulary: Vocabulary,
    masking: MaskingConfig,
    rng: np.random.Generator,
) -> Batch:
    windows_BN = _windows(tokens, starts, length)
    if words is None:
        selected_BN, fate_BN = _units(windows_BN.shape, length, masking, rng)
    else:
        selected_BN, fate_BN = _whole_words(words[starts[:, None] + np.arange(length)], masking, rng)
    random_BN = rng.integers(vocabulary.text_size, size=windows_BN.shape)
    seen_BN = np.where(fate_BN < masking.masked + masking.random, random_BN, windows_BN)
    seen_BN = np.where(fate_BN < masking.masked, vocabulary.mask_id, seen_BN)
    return {
        "input_ids": torch.from_numpy(np.where(selected_BN, seen_BN, windows_BN)),
        "targets": torch.from_numpy(np.where(selected_BN, windows_BN, IGNORE)),
    }


def _units(
    shape: tuple[int, ...], units: int | NDArray[np.int64], masking: MaskingConfig, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which of the first ``units`` of each row are selected, [B, N], and a number in [0, 1) that decides their fate."""
    order_BN = rng.random(shape)
    if not isinstance(units, int):
        order_BN[np.arange(shape[1]) >= units] = np.inf  # places without a unit come last
    # A random order of the units; the first `count` of it are selected.
    rank_BN = order_BN.argsort(axis=1).argsort(axis=1)
    count_B1 = np.floor(masking.selected * units + rng.random((shape[0], 1)))
    return rank_BN < np.maximum(count_B1, 1), rng.random(shape)


def _whole_words(
    starts_BN: Starts, masking: MaskingConfig, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """As :func:`_units` for the words of each row, then for each token what its word has."""
    word_BN = starts_BN[:, 1:].cumsum(axis=1)  # the first token begins a word, or is the rest of one
    word_BN = np.concatenate([np.zeros((len(starts_BN), 1), np.int64), word_BN], axis=1)
    selected_BN, fate_BN = _units(starts_BN.shape, word_BN[:, -1:] + 1, masking, rng)
    return np.take_along_axis(selected_BN, word_BN, 1), np.take_along_axis(fate_BN, word_BN, 1)


def _words(tokens: Tokens, masked: Masked | None, starts: Starts | None) -> Starts | None:
    """Where words begin, if whole words are to be masked, else None."""
    if masked is None or not masked[1].whole_words:
        return None
    if starts is None or starts.shape != tokens.shape:
        raise ValueError("whole_words=True: needs word_starts, one for each token; texts in chars-N have them")
    return starts


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
