"""Evaluation: a language model's loss on fixed windows of text, the scores of a classifier or a look-up task."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transnormer_lib.checks import check_choice
from transnormer_lib.data.batches import IGNORE, Batch, evaluation_windows
from transnormer_lib.data.classification_batches import evaluation_batches
from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.data.pixels import PixelSet
from transnormer_lib.data.speech import SpeechTask, symbols_of
from transnormer_lib.data.task_kinds import generator
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.models.classifier import best_spans, span_losses
from transnormer_lib.models.transcriber import ctc_loss, greedy
from transnormer_lib.training.config import RunConfig, RunRefused
from transnormer_lib.training.metrics import error_rate, scores, span_scores
from transnormer_lib.training.records import error_of, loss_of
from transnormer_lib.training.setup import loss_on, mask_on, padding

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData
    from transnormer_lib.training.setup import Data

_LARGEST_BATCH = 32  # sequences
LONGEST_ANSWER = 50  # tokens of a span


@torch.no_grad()
def evaluate(
    model: nn.Module,
    config: RunConfig,
    data: "Data",
    device: torch.device,
    split: str = "validation",
    windows: int | None = None,
    number: int = 0,
) -> dict[str, float]:
    """The result of a model on a split of its run's data.

    For a language model, the loss on the sequences of :func:`held_out_batches`, the mean over the counted tokens:

    - ``nats_per_token`` and ``bits_per_token``: cross-entropy to base e and 2.
    - ``perplexity``: e to the nats per token. Comparable only between models with the same vocabulary.
    - ``bits_per_byte`` (causal runs only): bits per byte of text, comparable between vocabularies.

    For a task of ``data.context_tasks``, on as many sequences, ``nats_per_token``, ``bits_per_token`` and ``accuracy``:
    the share of the answers whose likeliest token is right.

    For speech, on as many utterances, ``nats_per_token`` and ``bits_per_token`` (CTC's loss per symbol) and
    ``error_rate``: the edits per symbol of the greedy transcripts.

    For images, on as many of them, ``nats_per_token`` and ``bits_per_token``: the bits per dimension.

    For a classifier, on the examples of :func:`labelled_batches`, ``nats_per_example``, the mean cross-entropy, and
    the task's scores; of spans, those of the likeliest ones of at most :data:`LONGEST_ANSWER` tokens. If the split has
    several parts, the first part's results have plain names and the others a suffix: ``accuracy``,
    ``accuracy_mismatched``.
    """
    was_training = model.training
    model.eval()
    if isinstance(data, ContextTask):
        result = _evaluate_context(model, config, data, device, split, windows)
    elif isinstance(data, SpeechTask):
        result = _evaluate_speech(model, config, data, device, split, windows)
    elif isinstance(data, TextCorpus | PixelSet):
        result = _evaluate_text(model, config, data, device, split, windows)
    else:
        result = {}
        for position, name in enumerate(measured_splits(data, split)):
            suffix = name.removeprefix(split) if position else ""
            part = _evaluate_part(model, config, data, device, name, number)
            result |= {f"{key}{suffix}": value for key, value in part.items()}
    model.train(was_training)
    return result


def _evaluate_text(
    model: nn.Module,
    config: RunConfig,
    corpus: TextCorpus | PixelSet,
    device: torch.device,
    split: str,
    windows: int | None,
) -> dict[str, float]:
    losses, tokens = [], []
    for batch in held_out_batches(config, corpus, split, windows):
        losses.append(loss_on(model, batch, device))
        tokens.append(int((batch["targets"] != IGNORE).sum()))
    means = torch.stack(losses).tolist()  # read once at the end, because reading makes a GPU wait
    nats = math.fsum(mean * count for mean, count in zip(means, tokens, strict=True)) / sum(tokens)
    result = {"nats_per_token": nats, "bits_per_token": nats / math.log(2)}
    if isinstance(corpus, PixelSet):
        return result
    result["perplexity"] = math.exp(nats) if nats < 700 else nats * math.inf
    if config.data.task == "causal":
        result["bits_per_byte"] = corpus.bits_per_byte(nats, split)
    return result


def _evaluate_context(
    model: nn.Module, config: RunConfig, task: ContextTask, device: torch.device, split: str, windows: int | None
) -> dict[str, float]:
    losses, right, answers = [], [], 0
    for batch in context_batches(config, task, split, windows):
        targets = batch["targets"].to(device)
        counted = targets != IGNORE
        logits = model(batch["input_ids"].to(device))[counted].float()
        losses.append(F.cross_entropy(logits, targets[counted], reduction="sum"))
        right.append((logits.argmax(-1) == targets[counted]).sum())
        answers += len(logits)
    nats = math.fsum(torch.stack(losses).tolist()) / answers
    accuracy = int(torch.stack(right).sum()) / answers
    return {"nats_per_token": nats, "bits_per_token": nats / math.log(2), "accuracy": accuracy}


def _evaluate_speech(
    model: nn.Module, config: RunConfig, task: SpeechTask, device: torch.device, split: str, windows: int | None
) -> dict[str, float]:
    losses, found, wanted = [], [], []
    for batch in speech_batches(config, task, split, windows):
        mask, targets = mask_on(batch, device), batch["targets"].to(device)
        logits_BNV = model(batch["frames"].to(device), mask)
        losses.append(ctc_loss(logits_BNV, targets, mask) * (targets != IGNORE).sum())
        found += greedy(logits_BNV, mask)
        wanted += symbols_of(batch["targets"])
    nats = math.fsum(torch.stack(losses).tolist()) / sum(map(len, wanted))
    return {"nats_per_token": nats, "bits_per_token": nats / math.log(2), "error_rate": error_rate(found, wanted)}


def _evaluate_part(
    model: nn.Module, config: RunConfig, task: "TaskData", device: torch.device, split: str, number: int
) -> dict[str, float]:
    if task.kind == "span":
        return _evaluate_spans(model, config, task, device, split, number)
    losses, predicted, labels = [], [], []
    for batch in labelled_batches(config, task, split, number):
        logits_BC = model(batch["input_ids"].to(device), mask_on(batch, device)).float()
        losses.append(F.cross_entropy(logits_BC, batch["targets"].to(device), reduction="sum"))
        predicted.append(logits_BC.argmax(-1))
        labels.append(batch["targets"])
    # Read once at the end, because reading makes a GPU wait.
    classes, right = torch.cat(predicted).cpu().numpy(), torch.cat(labels).numpy()
    nats = math.fsum(torch.stack(losses).tolist()) / len(right)
    return {"nats_per_example": nats} | scores(task.metrics, classes, right)


def _evaluate_spans(
    model: nn.Module, config: RunConfig, task: "TaskData", device: torch.device, split: str, number: int
) -> dict[str, float]:
    passages = task.splits[split].passages
    assert passages is not None  # a task of spans
    losses, found, answers = [], [], []
    for batch in labelled_batches(config, task, split, number):
        logits_BCN2 = model(batch["input_ids"].to(device), mask_on(batch, device)).float()
        losses.append(span_losses(logits_BCN2, batch["targets"].to(device)).sum())
        places = batch["places"]
        spans = best_spans(logits_BCN2, (places >= 0).to(device), LONGEST_ANSWER).cpu()
        for example, of, (window, first, last) in zip(batch["examples"].tolist(), places, spans.tolist(), strict=True):
            _, passage, *references = passages.texts[example]
            found.append(passage[int(of[window, first]) : int(of[window, last]) + 1])
            answers.append(references)
    nats = math.fsum(torch.stack(losses).tolist()) / len(found)
    return {"nats_per_example": nats} | span_scores(found, answers)


def held_out_batches(
    config: RunConfig, corpus: TextCorpus | PixelSet, split: str = "validation", windows: int | None = None
) -> Iterator[Batch]:
    """``windows`` sequences of ``split`` (default: ``config.validation_windows``), spread evenly over it.

    They do not depend on the seed, so that runs are compared on the same sequences. Batches are no larger than
    training's micro-batches, which are known to fit memory. Raises ValueError for a split that the corpus lacks.
    """
    data = config.data
    batch_size = min(_LARGEST_BATCH, data.batch_size // config.accumulate)
    limit = config.validation_windows if windows is None else windows
    if isinstance(corpus, PixelSet):
        return corpus.held_out(split, limit, batch_size)
    check_choice("split", split, corpus.tokens)
    tokens = corpus.tokens[split]
    masked = (corpus.vocabulary, data.masking) if data.task == "masked" else None
    words = corpus.word_starts.get(split)
    shape = {"length": data.length, "batch_size": batch_size, "limit": limit}
    return evaluation_windows(tokens, **shape, masked=masked, word_starts=words)


def context_batches(
    config: RunConfig, task: ContextTask, split: str = "validation", windows: int | None = None
) -> Iterator[Batch]:
    """The fixed sequences of a split, as :func:`held_out_batches` has them of a text."""
    batch_size = min(_LARGEST_BATCH, config.data.batch_size // config.accumulate)
    return task.held_out(split, config.validation_windows if windows is None else windows, batch_size)


def speech_batches(
    config: RunConfig, task: SpeechTask, split: str = "validation", windows: int | None = None
) -> Iterator[Batch]:
    """The fixed utterances of a split, as :func:`held_out_batches` has them of a text."""
    batch_size = min(_LARGEST_BATCH, config.data.batch_size // config.accumulate)
    return task.held_out(split, config.validation_windows if windows is None else windows, batch_size)


def labelled_batches(config: RunConfig, task: "TaskData", split: str, number: int = 0) -> Iterator[Batch]:
    """The examples of ``split`` that evaluation ``number`` reads, in batches of the size of training's micro-batches.

    All of them, or ``config.evaluation_examples``: the same ones each time, or with ``evaluation_part="moving"`` the
    next ones in a fixed random order, cyclically. Skyformer's harness chooses its checkpoint with moving parts.
    """
    examples, limit, rows = task.splits[split], config.evaluation_examples, None
    if limit is not None and config.evaluation_part == "moving" and limit < len(examples):
        # Not in the stored order: IMDb is sorted by label, so a part of it would have one class.
        order = generator("evaluation", "moving").permutation(len(examples))
        rows = order[(number * limit + np.arange(limit)) % len(examples)]
    batch_size = config.data.batch_size // config.accumulate
    return evaluation_batches(examples, padding(config, task), batch_size=batch_size, limit=limit, rows=rows)


def validation_batches(config: RunConfig, data: "Data", number: int) -> list[Batch]:
    """All batches that validation ``number`` reads."""
    if isinstance(data, TextCorpus | PixelSet):
        return list(held_out_batches(config, data))
    if isinstance(data, ContextTask):
        return list(context_batches(config, data))
    if isinstance(data, SpeechTask):
        return list(speech_batches(config, data))
    splits = measured_splits(data, "validation")
    return [batch for split in splits for batch in labelled_batches(config, data, split, number)]


def measured_splits(data: "Data", split: str, argument: str = "split") -> list[str]:
    """The splits that count as ``split``: itself, or its parts, such as MNLI's ``validation_matched`` and
    ``validation_mismatched``. Raises :class:`RunRefused`, naming ``argument``, if the data have none."""
    names = list(data.tokens if isinstance(data, TextCorpus) else data.splits)
    parts = [name for name in names if name.startswith(f"{split}_")]
    if not parts and split not in names:
        raise RunRefused(f"{argument}={split!r}: must be one of {', '.join(map(repr, names))}")
    return parts or [split]


def check_splits(config: RunConfig, data: "Data") -> None:
    """Check, before training, that the data have the splits to be measured at the end.

    Raises :class:`RunRefused` for an unknown split, ``DataUnavailable`` for one that this machine lacks.
    """
    for split in config.measured_at_end:
        if not isinstance(data, TextCorpus) and split in data.absent:
            raise DataUnavailable(f"measured_at_end={split!r}: {data.absent[split]}")
        measured_splits(data, split, "measured_at_end")


def better(data: "Data", result: dict[str, float], best: dict[str, float]) -> bool:
    """Whether a validation result is better than another, by the task's first score, the transcriber's error rate or
    the language model's loss."""
    if isinstance(data, SpeechTask):
        return error_of(result) < error_of(best)
    if isinstance(data, TextCorpus | ContextTask | PixelSet):
        return loss_of(result) < loss_of(best)
    return result[data.metrics[0]] > best[data.metrics[0]]
