"""Validation: of a language model, on which windows, in which units; of a classifier, on which examples, by which
scores.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transnormer_lib.data.batches import (
    IGNORE,
    Batch,
    evaluation_windows,
    masked_evaluation_windows,
)
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.training.config import RunConfig, RunRefused
from transnormer_lib.training.metrics import scores
from transnormer_lib.training.records import loss_of
from transnormer_lib.training.setup import loss_on, mask_on, padding

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData

_LARGEST_BATCH = 32  # sequences


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
    data: "TextCorpus | TaskData",
    device: torch.device,
    split: str = "validation",
    windows: int | None = None,
    number: int = 0,
) -> dict[str, float]:
    """The result of a model on a split of its run's data; a classifier's is that of :func:`evaluate_classifier`.

    A language model's is its loss on the sequences of :func:`held_out_batches`, the mean over the counted tokens, in
    these units:

    - ``nats_per_token`` and ``bits_per_token``: cross-entropy to base e and 2.
    - ``perplexity``: e to the nats per token, which is 2 to the bits per token. It is per token of this vocabulary;
      models with other vocabularies are not comparable by it.
    - ``bits_per_byte`` (causal runs only): bits per byte of text, which all vocabularies share.
    """
    if not isinstance(data, TextCorpus):
        return evaluate_classifier(model, config, data, device, split, number)
    was_training = model.training
    model.eval()
    losses, tokens = [], []
    for batch in held_out_batches(config, data, split, windows):
        losses.append(loss_on(model, batch, device))
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
        result["bits_per_byte"] = data.bits_per_byte(nats, split)
    return result


def measured_splits(task: "TaskData", split: str) -> dict[str, str]:
    """The splits that count as ``split``, each with the name of its part: a task may have two that were collected in
    two ways, as MNLI's ``validation_matched`` and ``validation_mismatched``. Raises ValueError where there is none."""
    found = {name: name.removeprefix(f"{split}_") for name in task.splits if name.startswith(f"{split}_")}
    if not found and split not in task.splits:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, task.splits))}")
    return found or {split: ""}


def check_splits(config: RunConfig, data: "TextCorpus | TaskData") -> None:
    """Before anything is trained: whether the data have the splits that are measured at the end.

    Raises :class:`RunRefused` for a split that there is not, ``DataUnavailable`` for one that this machine lacks.
    """
    names: Collection[str] = data.tokens if isinstance(data, TextCorpus) else data.splits
    parts: Collection[str] = () if isinstance(data, TextCorpus) else names  # a task's split may have two
    absent: Mapping[str, str] = {} if isinstance(data, TextCorpus) else data.absent
    for split in config.measured_at_end:
        if split in absent:
            raise DataUnavailable(f"measured_at_end={split!r}: {absent[split]}")
        if split not in names and not any(name.startswith(f"{split}_") for name in parts):
            raise RunRefused(f"measured_at_end={split!r}: must be one of {', '.join(map(repr, names))}")


@torch.no_grad()
def evaluate_classifier(
    model: nn.Module,
    config: RunConfig,
    task: "TaskData",
    device: torch.device,
    split: str = "validation",
    number: int = 0,
) -> dict[str, float]:
    """The task's scores on the whole of ``split``, and ``nats_per_example``, the mean cross-entropy.

    ``config.evaluation_examples`` reads no more than that many examples: drawn from the whole split and always the
    same ones, or with ``evaluation_part="moving"`` the next ones at each evaluation (``number`` counts them) in one
    fixed random order, from the beginning again after the last, so that no two evaluations measure the same.
    Skyformer's harness chooses its checkpoint so. Of several parts of a split the first one's results
    have plain names, the others' the part's name behind theirs: ``accuracy``, ``accuracy_mismatched``.
    """
    was_training = model.training
    model.eval()
    result: dict[str, float] = {}
    for position, (name, part) in enumerate(measured_splits(task, split).items()):
        losses, predicted, labels = [], [], []
        for batch in labelled_batches(config, task, name, number):
            logits_BC = model(batch["input_ids"].to(device), mask_on(batch, device)).float()
            losses.append(F.cross_entropy(logits_BC, batch["targets"].to(device), reduction="sum"))
            predicted.append(logits_BC.argmax(-1))
            labels.append(batch["targets"])
        # Read at the end, once: reading makes a GPU wait.
        classes, right = torch.cat(predicted).cpu().numpy(), torch.cat(labels).numpy()
        nats = math.fsum(torch.stack(losses).tolist()) / len(right)
        suffix = f"_{part}" if position else ""
        values = {"nats_per_example": nats} | scores(task.metrics, classes, right)
        result |= {f"{key}{suffix}": value for key, value in values.items()}
    model.train(was_training)
    return result


def labelled_batches(config: RunConfig, task: "TaskData", split: str, number: int = 0) -> Iterator[Batch]:
    """The examples of ``split`` that evaluation ``number`` reads, in batches no larger than training's micro-batches,
    whose memory is known to suffice."""
    from transnormer_lib.data import classification_batches
    from transnormer_lib.data.task_kinds import generator

    examples, limit, rows = task.splits[split], config.evaluation_examples, None
    if limit is not None and config.evaluation_part == "moving" and limit < len(examples):
        # Not as they are stored: IMDb is sorted by label, and a part of it would hold one class.
        order = generator("evaluation", "moving").permutation(len(examples))
        rows = order[(number * limit + np.arange(limit)) % len(examples)]
    batch_size = config.data.batch_size // config.accumulate
    options = padding(config, task)
    return classification_batches.evaluation_batches(examples, batch_size=batch_size, limit=limit, rows=rows, **options)


def better(task: "TaskData | None", result: dict[str, float], best: dict[str, float]) -> bool:
    """Whether a validation result is better than another: by the task's first score, else by the loss."""
    if task is not None:
        return result[task.metrics[0]] > best[task.metrics[0]]
    return loss_of(result) < loss_of(best)
