"""What a run trains, and on what: data, batches, model and loss, for language models and classifiers alike.

Shapes: B batch, N length.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from transnormer_lib.data.batches import Batch, DrawnBatches, Sampler, WindowBatches
from transnormer_lib.data.classification_batches import MULTIPLE, EpochBatches, ExampleBatches, Padding
from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.pixels import VALUES, PixelSet, load_pixels
from transnormer_lib.data.speech import PADDED_TO, SpeechTask
from transnormer_lib.data.speech_tasks import speech_task
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.models.classifier import build_classifier, count_classifier_parameters, with_head
from transnormer_lib.models.language_model import build_model, count_parameters
from transnormer_lib.models.transcriber import build_transcriber, count_transcriber_parameters
from transnormer_lib.training.config import DataConfig, RunConfig, RunRefused
from transnormer_lib.training.metrics import check_edit_distance

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData

    Data = TextCorpus | TaskData | ContextTask | PixelSet | SpeechTask

_HEADS = ("head.", "output")  # the weights outside the backbone, by the start of their names
# The state that decides which random features come next, by the end of its names (``attention.random_features``): a
# run that starts from another one keeps its own.
_COUNTS = ("projection.seed", "projection.draws", "projection.passes")


def load_task_data(data: DataConfig) -> "TaskData":
    """The classification task that ``data`` names."""
    from transnormer_lib.data import tasks

    return tasks.load_task(
        data.task_name, data.vocabulary, data.length, data.limit or None, joined=data.joined, corpus=data.corpus
    )


def load_data(config: RunConfig) -> "Data":
    """The corpus or the task of a run.

    Raises :class:`RunRefused` if the model does not fit it, ``DataUnavailable`` if it is not on this machine.
    """
    model, head = config.model, config.head
    if config.data.task == "context":
        found = ContextTask(config.data.task_name, config.data.length)
        if model.vocab_size != found.vocab_size:
            raise RunRefused(f"model.vocab_size={model.vocab_size}: {found.name!r} has {found.vocab_size} ids")
        return found
    if config.data.task == "pixels":
        if model.vocab_size != VALUES:
            raise RunRefused(f"model.vocab_size={model.vocab_size}: a pixel has {VALUES} values")
        return load_pixels(config.data.task_name)
    if config.data.task == "speech":
        return _load_speech(config)
    if head is None:
        corpus = load_text_corpus(config.data.corpus, config.data.vocabulary)
        if corpus.vocabulary.size != model.vocab_size:
            raise RunRefused(
                f"model.vocab_size={model.vocab_size}: {config.data.vocabulary!r} has {corpus.vocabulary.size} ids"
            )
        return corpus
    task = load_task_data(config.data)
    for fits, field, theirs in (
        (model.vocab_size == task.vocab_size, f"model.vocab_size={model.vocab_size}", f"{task.vocab_size} ids"),
        (model.max_length >= task.length, f"model.max_length={model.max_length}", f"sequences of {task.length}"),
        (head.classes == task.classes, f"head.classes={head.classes}", f"classes={task.classes}"),
        (head.pairs == task.pairs, f"head.pairs={head.pairs}", f"pairs={task.pairs}"),
        (head.kind == task.kind, f"head.kind={head.kind!r}", f"kind={task.kind!r}"),
    ):
        if not fits:
            raise RunRefused(f"{field}: task {task.name!r} has {theirs}")
    return task


def _load_speech(config: RunConfig) -> SpeechTask:
    task = speech_task(config.data.task_name, config.data.length)
    for field, ours, theirs in (
        ("features", config.model.features, task.features),
        ("vocab_size", config.model.vocab_size, len(task.symbols)),
    ):
        if ours != theirs:
            raise RunRefused(f"model.{field}={ours}: task {task.name!r} has {theirs}")
    if (padded := -(-task.length // PADDED_TO) * PADDED_TO) > (longest := config.model.max_length):
        raise RunRefused(f"model.max_length={longest}: batches of task {task.name!r} have up to {padded} frames")
    task.fingerprint  # noqa: B018  reads the recordings, or says that they are missing
    check_edit_distance()
    return task


def training_batches(config: RunConfig, data: "Data") -> Sampler:
    """The batch of every step, a function of the seed and the step."""
    options = config.data
    if isinstance(data, SpeechTask):
        return data.sampler(options.batch_size, config.seed)
    if isinstance(data, ContextTask):
        return DrawnBatches(data, options.batch_size, config.seed)
    if isinstance(data, PixelSet):
        return EpochBatches(data, options.batch_size, config.seed)
    if isinstance(data, TextCorpus):
        masked = (data.vocabulary, options.masking) if options.task == "masked" else None
        shape = {"length": options.length, "batch_size": options.batch_size, "seed": config.seed}
        words, tokens = data.word_starts.get("train"), data.tokens["train"].size
        if tokens < options.length + (masked is None):
            raise RunRefused(f"data.length={options.length}: {options.corpus!r} has only {tokens} tokens to train on")
        return WindowBatches(data.tokens["train"], **shape, masked=masked, shortest=options.shortest, word_starts=words)
    return ExampleBatches(data.splits["train"], padding(config, data), options.batch_size, config.seed)


def padding(config: RunConfig, data: "TaskData") -> Padding:
    """Pad to multiples of 64, unless that exceeds the model's longest sequence."""
    fits = -(-data.length // MULTIPLE) * MULTIPLE <= config.model.max_length
    return Padding(data.pad_id, MULTIPLE if fits else 1)


def build(config: RunConfig, weights: Path | None = None) -> nn.Module:
    """The model with initial weights drawn from the seed; its backbone's are read from ``weights``, if given.

    Raises :class:`RunRefused` if ``weights`` lacks one, or has it in another shape.
    """
    model: nn.Module
    if config.model.features:
        model = build_transcriber(config.model, config.seed)
    elif config.head is None:
        model = build_model(config.model, config.seed)
    else:
        model = build_classifier(with_head(config.model, config.head), config.seed)
    if weights is not None:
        _load_backbone(model, weights)
    return model


@torch.no_grad()
def _load_backbone(model: nn.Module, weights: Path) -> None:
    from safetensors.torch import load_file

    stored = load_file(str(weights))
    for name, own in model.state_dict().items():
        if name.startswith(_HEADS) or name.endswith(_COUNTS):
            continue
        if name not in stored or stored[name].shape != own.shape:
            found = list(stored[name].shape) if name in stored else "nothing"
            raise RunRefused(f"start_from: {weights} has {found} under {name}, the model {list(own.shape)}")
        own.copy_(stored[name])


def parameters_of(config: RunConfig) -> int:
    """Number of trainable parameters, counted without drawing them.

    Raises :class:`RunRefused` for a model that has no room in this machine's memory.
    """
    model = config.model
    try:
        if model.features:
            return count_transcriber_parameters(model)
        if config.head is None:
            return count_parameters(model)
        return count_classifier_parameters(with_head(model, config.head))
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and "memory" not in str(problem):
            raise
        raise RunRefused(
            f"model.dim={model.dim}: with layers={model.layers}, hidden={model.hidden_width}, max_length="
            f"{model.max_length} and vocab_size={model.vocab_size} the weights exceed this machine's memory"
        ) from problem


def loss_on(model: Any, batch: Batch, device: torch.device) -> Tensor:
    """The mean loss of a batch over its counted tokens, its symbols or its examples: [], in nats."""
    if "frames" in batch:
        return model(batch["frames"].to(device), mask_on(batch, device), targets_BS=batch["targets"].to(device))
    ids, targets = batch["input_ids"].to(device), batch["targets"].to(device)
    if "key_padding_mask" not in batch:
        return model(ids, targets_BN=targets)
    return model(ids, mask_on(batch, device), targets_B=targets)


def mask_on(batch: Batch, device: torch.device) -> Tensor | None:
    """The padding mask of a batch; None without padding, which saves the work of masking."""
    mask = batch["key_padding_mask"]
    return mask.to(device) if mask.any() else None


def tokens_in(batch: Batch) -> int:
    """The number of tokens, or of frames, of a batch, without padding."""
    mask = batch.get("key_padding_mask")
    if "frames" in batch:
        return int((~batch["key_padding_mask"]).sum())
    return batch["input_ids"].numel() - (0 if mask is None else int(mask.sum()))
