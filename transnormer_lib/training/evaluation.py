"""Validation of a language model: when, on which windows, in which units."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from transnormer_lib.data.batches import (
    IGNORE,
    Batch,
    evaluation_windows,
    masked_evaluation_windows,
)
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.training.config import RunConfig

_LARGEST_BATCH = 32  # sequences


def validation_steps(config: RunConfig) -> frozenset[int]:
    """The numbers of finished optimiser steps at which validation is measured."""
    evenly = {round(config.steps * k / config.evaluations) for k in range(1, config.evaluations + 1)}
    return frozenset(evenly - {0} | set(config.waypoints) | ({0} if config.steps == 0 else set()))


def held_out_batches(
    config: RunConfig, corpus: TextCorpus, split: str = "validation", windows: int | None = None
) -> Iterator[Batch]:
    """``windows`` sequences of ``split`` (default: ``config.validation_windows``), spread evenly over it.

    They are the same for every run on the same data, whatever its seed: runs are compared on them. They come in
    batches no larger than a micro-batch of training, whose memory is known to suffice. Raises ValueError for a split
    that the corpus lacks.
    """
    if split not in corpus.tokens:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, corpus.tokens))}")
    tokens, data = corpus.tokens[split], config.data
    batch_size = min(_LARGEST_BATCH, data.batch_size // config.accumulate)
    limit = config.validation_windows if windows is None else windows
    if data.task == "causal":
        return evaluation_windows(tokens, length=data.length, batch_size=batch_size, limit=limit)
    return masked_evaluation_windows(
        tokens, corpus.vocabulary, length=data.length, batch_size=batch_size, limit=limit, masking=data.masking
    )


@torch.no_grad()
def evaluate(
    model: nn.Module,
    config: RunConfig,
    corpus: TextCorpus,
    device: torch.device,
    split: str = "validation",
    windows: int | None = None,
) -> dict[str, float]:
    """Loss on the sequences of :func:`held_out_batches`, the mean over the counted tokens, in these units:

    - ``nats_per_token`` and ``bits_per_token``: cross-entropy to base e and 2.
    - ``perplexity``: e to the nats per token, which is 2 to the bits per token. It is per token of this vocabulary;
      models with other vocabularies are not comparable by it.
    - ``bits_per_byte`` (causal runs only): bits per byte of text, which all vocabularies share.
    """
    was_training = model.training
    model.eval()
    losses, tokens = [], []
    for batch in held_out_batches(config, corpus, split, windows):
        losses.append(model(batch["input_ids"].to(device), targets_BN=batch["targets"].to(device)))
        tokens.append(int((batch["targets"] != IGNORE).sum()))
    model.train(was_training)
    # Read at the end, once: reading a loss makes a GPU wait.
    means = torch.stack(losses).tolist()
    nats = math.fsum(mean * count for mean, count in zip(means, tokens, strict=True)) / sum(tokens)
    result = {
        "nats_per_token": nats,
        "bits_per_token": nats / math.log(2),
        "perplexity": math.exp(nats) if nats < 700 else nats * math.inf,
    }
    if config.data.task == "causal":
        result["bits_per_byte"] = corpus.bits_per_byte(nats, split)
    return result
