"""Floating-point operations of a model: matrix products alone, a multiply-add counting two."""

from collections import Counter

import torch
from torch import nn

from transnormer_lib.models.blocks import Block
from transnormer_lib.models.classifier import head_of, with_head
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.models.language_model import MaskedLMHead

PREDICTED_SHARE = 0.15  # of the tokens of a masked LM, the share that its head and vocabulary projection run on


def forward_flops(
    config: ModelConfig, length: int, predicted_share: float = PREDICTED_SHARE, head: ClassifierHead | None = None
) -> int:
    """Operations of one sequence's forward pass with its logits; looking up embeddings costs none.

    A decoder predicts at every position, an encoder at ``predicted_share`` of them, at one at least; with ``head`` it
    is a classifier of sequences, or of pairs, each of ``length`` tokens.
    Raises ValueError for a ``length`` below 1 or a ``predicted_share`` outside [0, 1].
    """
    if not 0.0 <= predicted_share <= 1.0:
        raise ValueError(f"predicted_share={predicted_share!r}: must be in [0, 1]")
    operations = 0
    with torch.device("meta"):  # the shapes alone; one layer of each kind, since those of a kind cost the same
        blocks = {layer: Block(config, layer) for layer in set(config.attention)}
        vocabulary_head = MaskedLMHead(config) if config.kind == "encoder" and head is None else None
        class_head = None if head is None else head_of(with_head(config, head))
    for layer, count in Counter(config.attention).items():
        operations += count * (_attended(blocks[layer], length) + 2 * length * _weights(blocks[layer]))
    if head is not None and class_head is not None:
        return (2 if head.pairs else 1) * operations + 2 * _weights(class_head)
    predicted, projected = length, config.vocab_size * config.dim
    if vocabulary_head is not None:
        predicted, projected = max(round(length * predicted_share), 1), projected + _weights(vocabulary_head)
    return operations + 2 * predicted * projected


def attention_flops(config: ModelConfig, length: int) -> int:
    """Operations of the attention in all layers on one sequence, projections included. FLASH and the like have no other
    part in a layer."""
    with torch.device("meta"):
        blocks = {layer: Block(config, layer) for layer in set(config.attention)}
    return sum(
        _attended(blocks[layer], length) + 2 * length * _weights(blocks[layer].attention) for layer in config.attention
    )


def training_flops(config: ModelConfig, length: int, sequences: int, head: ClassifierHead | None = None) -> int:
    """Operations of the forward and backward passes over ``sequences`` (or pairs): the backward pass costs two
    forward ones.

    The products are those of the gradients of either factor. What a fused kernel computes a second time to save
    memory is not counted. ``length`` and ``head`` as in :func:`forward_flops`.
    """
    return 3 * sequences * forward_flops(config, length, head=head)


def _attended(block: Block, length: int) -> int:
    """Operations of a layer's mechanisms themselves."""
    return sum(mechanism.flops(length) for mechanism in block.mechanisms)


def _weights(module: nn.Module) -> int:
    """Numbers in the matrices of a module's linear layers: multiply-adds per token."""
    return sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear))
