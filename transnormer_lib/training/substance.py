"""What a run trains and on what, whatever its task: the data, the batches, the model, the loss of a batch.

Shapes: B batch, N length.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn

from transnormer_lib.data.batches import Batch, Sampler, causal_batches, masked_batches
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.models.classifier import build_classifier, count_classifier_parameters, with_head
from transnormer_lib.models.language_model import build_model, count_parameters
from transnormer_lib.training.config import DataConfig, RunConfig, RunRefused

if TYPE_CHECKING:
    from transnormer_lib.data.tasks import TaskData

    Data = TextCorpus | TaskData

_HEADS = ("head.", "output")  # what a model has beside its backbone, by the beginning of its name
# Which random features come next, and when, is the run's own: by the ends of names (``attention.random_features``).
_COUNTS = ("projection.seed", "projection.draws", "projection.passes")


def load_task_data(data: DataConfig) -> "TaskData":
    """The classification task that ``data`` names."""
    from transnormer_lib.data import tasks

    return tasks.load_task(
        data.task_name, data.vocabulary, data.length, data.limit or None, joined=data.joined, corpus=data.corpus
    )


def load_data(config: RunConfig) -> "Data":
    """The corpus or the task of a run.

    Raises :class:`RunRefused` where the model does not fit it, ``DataUnavailable`` where it cannot be had.
    """
    if config.head is None:
        corpus = load_text_corpus(config.data.corpus, config.data.vocabulary)
        _check_vocabulary(config, corpus.vocabulary.size, repr(config.data.vocabulary))
        return corpus
    task = load_task_data(config.data)
    _check_vocabulary(config, task.vocab_size, f"task {task.name!r}")
    for name, theirs in (("classes", task.classes), ("pairs", task.pairs)):
        if getattr(config.head, name) != theirs:
            raise RunRefused(f"head.{name}={getattr(config.head, name)!r}: task {task.name!r} has {name}={theirs!r}")
    if task.length > config.model.max_length:
        raise RunRefused(
            f"model.max_length={config.model.max_length}: task {task.name!r} has sequences of {task.length}"
        )
    return task


def _check_vocabulary(config: RunConfig, size: int, whose: str) -> None:
    if size != config.model.vocab_size:
        raise RunRefused(f"model.vocab_size={config.model.vocab_size}: {whose} has {size} ids")


def training_batches(config: RunConfig, data: "Data") -> Sampler:
    """The batch of every step, a function of the seed and the step alone."""
    options = config.data
    if isinstance(data, TextCorpus):
        tokens, cut = data.tokens["train"], {"length": options.length, "batch_size": options.batch_size}
        if options.task == "causal":
            return causal_batches(tokens, **cut, seed=config.seed)
        return masked_batches(tokens, data.vocabulary, **cut, seed=config.seed, masking=options.masking)
    from transnormer_lib.data import classification_batches

    return classification_batches.training_batches(
        data.splits["train"], batch_size=options.batch_size, seed=config.seed, **padding(config, data)
    )


class PaddingOptions(TypedDict):
    """The token that stands on padding, and the multiple of tokens that a batch is filled up to."""

    pad_id: int
    multiple: int


def padding(config: RunConfig, data: "TaskData") -> PaddingOptions:
    """How sequences of unequal length are padded: to multiples of 64, unless the model knows no such position."""
    from transnormer_lib.data.classification_batches import MULTIPLE

    fits = -(-data.length // MULTIPLE) * MULTIPLE <= config.model.max_length
    return {"pad_id": data.pad_id, "multiple": MULTIPLE if fits else 1}


def build(config: RunConfig, weights: Path | None = None) -> nn.Module:
    """The model with its first weights: those that the seed fixes, and below the head those in ``weights``.

    Raises :class:`RunRefused` where ``weights`` lacks one, or has it in another shape.
    """
    if config.head is None:
        model: nn.Module = build_model(config.model, config.seed)
    else:
        model = build_classifier(with_head(config.model, config.head), config.seed)
    if weights is not None:
        _take_backbone(model, weights)
    return model


@torch.no_grad()
def _take_backbone(model: nn.Module, weights: Path) -> None:
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
    """Number of trainable parameters, counted on the meta device: nothing is allocated."""
    if config.head is None:
        return count_parameters(config.model)
    return count_classifier_parameters(with_head(config.model, config.head))


def loss_on(model: Any, batch: Batch, device: torch.device) -> Tensor:
    """The mean loss over the counted tokens, or over the examples, of a batch: [], in nats."""
    ids, targets = batch["input_ids"].to(device), batch["targets"].to(device)
    if "key_padding_mask" not in batch:
        return model(ids, targets_BN=targets)
    return model(ids, mask_on(batch, device), targets_B=targets)


def mask_on(batch: Batch, device: torch.device) -> Tensor | None:
    """The padding of a batch; None where it has none, which spares the work of honouring it."""
    mask = batch["key_padding_mask"]
    return mask.to(device) if mask.any() else None


def tokens_in(batch: Batch) -> int:
    """How many tokens a batch has, padding left out."""
    mask = batch.get("key_padding_mask")
    return batch["input_ids"].numel() - (0 if mask is None else int(mask.sum()))
