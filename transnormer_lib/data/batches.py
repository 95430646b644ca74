"""Batches of token windows: endless for training, fixed for evaluation; causal and masked.

Every batch is ``{"input_ids": [B, N], "targets": [B, N]}``, int64 tensors on the CPU: B sequences of N
tokens. A target of ``IGNORE`` is not counted in the loss.

- causal: the target is the next token.
- masked (BERT, Devlin et al. 2019, §3.1): a share of the tokens is selected; of those most are replaced by
  the mask, some by a random token, some kept. The target is the token that was there, and only selected
  tokens have one. Each sequence gets the share's number of selected tokens, rounded at random, as in fairseq
  (the paper's Appendix E trains with fairseq); so a batch always has something to predict.

A training sampler has no state: ``batch(step)`` depends on its seed and the step alone, so that a resumed run
sees what an undisturbed one sees, and every model of one seed sees the same text in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.vocabulary import Tokens, Vocabulary

Batch = dict[str, Tensor]
IGNORE = -100  # torch's default ignore_index


class Sampler(Protocol):
    """An endless sequence of training batches, by number."""

    def batch(self, step: int) -> Batch:
        """The batch of optimiser step ``step``, counted from 0."""


@dataclass(frozen=True)
class BatchConfig:
    """Shape and order of training batches."""

    length: int  # N, tokens per sequence
    batch_size: int  # B, sequences per batch
    seed: int  # fixes which windows come when, and what is masked

    def __post_init__(self) -> None:
        _at_least("length", self.length, 1)
        _at_least("batch_size", self.batch_size, 1)
        _at_least("seed", self.seed, 0)


BERT_MASKING = MaskingConfig()


def causal_batches(tokens: Tokens, *, length: int, batch_size: int, seed: int) -> Sampler:
    """Random windows of ``tokens`` [T] for a causal model; every window is equally likely at every step.

    Raises:
        ValueError: a number is out of range, or there are fewer than ``length`` + 1 tokens.
    """
    return _CausalBatches(_checked(tokens, length + 1), BatchConfig(length, batch_size, seed))


def masked_batches(
    tokens: Tokens,
    vocabulary: Vocabulary,
    *,
    length: int,
    batch_size: int,
    seed: int,
    masking: MaskingConfig = BERT_MASKING,
) -> Sampler:
    """Random windows of ``tokens`` [T], masked anew at every step.

    Raises:
        ValueError: a number is out of range, or there are fewer than ``length`` tokens.
    """
    return _MaskedBatches(_checked(tokens, length), vocabulary, BatchConfig(length, batch_size, seed), masking)


def evaluation_windows(tokens: Tokens, *, length: int, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
    """Causal batches of the contiguous, non-overlapping windows of ``tokens`` [T], in order.

    Every target but those of a remainder shorter than a window occurs once. ``limit`` takes that many
    windows, spread evenly over the text, where there are more. The last batch may have fewer sequences.

    Raises:
        ValueError: a number is out of range, or there are fewer than ``length`` + 1 tokens.
    """
    starts = _window_starts(_checked(tokens, length + 1).size - 1, length, limit)
    groups = _groups(starts, batch_size)
    return (_causal(tokens, group, length) for group in groups)


def masked_evaluation_windows(
    tokens: Tokens,
    vocabulary: Vocabulary,
    *,
    length: int,
    batch_size: int,
    limit: int | None = None,
    masking: MaskingConfig = BERT_MASKING,
    seed: int = 0,
) -> Iterator[Batch]:
    """As :func:`evaluation_windows`, masked; which positions follows from ``seed``, ``length``, ``limit``.

    Raises:
        ValueError: a number is out of range, or there are fewer than ``length`` tokens.
    """
    _at_least("seed", seed, 0)
    starts = _window_starts(_checked(tokens, length).size, length, limit)
    # Masked in one piece, so that the batch size decides nothing but memory.
    whole = _masked(_windows(tokens, starts, length), vocabulary, masking, np.random.default_rng(seed))
    groups = _groups(np.arange(len(starts)), batch_size)
    return ({name: values[group] for name, values in whole.items()} for group in groups)


@dataclass(frozen=True)
class _CausalBatches:
    tokens: Tokens
    config: BatchConfig

    def batch(self, step: int) -> Batch:
        rng = _generator(self.config.seed, step)
        starts = rng.integers(self.tokens.size - self.config.length, size=self.config.batch_size)
        return _causal(self.tokens, starts, self.config.length)


@dataclass(frozen=True)
class _MaskedBatches:
    tokens: Tokens
    vocabulary: Vocabulary
    config: BatchConfig
    masking: MaskingConfig

    def batch(self, step: int) -> Batch:
        rng = _generator(self.config.seed, step)
        starts = rng.integers(self.tokens.size - self.config.length + 1, size=self.config.batch_size)
        return _masked(_windows(self.tokens, starts, self.config.length), self.vocabulary, self.masking, rng)


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
    _at_least("length", length, 1)
    windows = tokens // length
    chosen = np.arange(windows)
    if limit is not None:
        _at_least("limit", limit, 1)
        if limit < windows:
            chosen = np.arange(limit) * windows // limit
    return chosen * length


def _groups(items: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    _at_least("batch_size", batch_size, 1)
    return [items[first : first + batch_size] for first in range(0, len(items), batch_size)]


def _generator(seed: int, step: int) -> np.random.Generator:
    _at_least("step", step, 0)
    return np.random.default_rng([seed, step])


def _checked(tokens: Tokens, at_least: int) -> Tokens:
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens: must be integers of shape [T], not {tokens.dtype} of shape {list(tokens.shape)}")
    if tokens.size < at_least:
        raise ValueError(f"tokens: has {tokens.size}, must have at least {at_least} for windows of this length")
    return tokens


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}={value!r}: must be at least {least}")
