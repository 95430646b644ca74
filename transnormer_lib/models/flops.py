"""Floating-point operations of a model: matrix products only; a multiply-add counts as two."""

from collections import Counter

from torch import nn

from transnormer_lib.models.blocks import Block
from transnormer_lib.models.classifier import head_of, with_head
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.models.initialisation import undrawn
from transnormer_lib.models.language_model import MaskedLMHead
from transnormer_lib.models.transcriber import BiLstm, build_transcriber

PREDICTED_SHARE = 0.15  # share of a masked LM's tokens that its head and vocabulary projection run on


def forward_flops(
    config: ModelConfig, length: int, predicted_share: float = PREDICTED_SHARE, head: ClassifierHead | None = None
) -> int:
    """Operations of one sequence's forward pass with its logits; an embedding lookup costs none.

    A decoder predicts at every position, an encoder at ``predicted_share`` of them and at least one. With ``head`` the
    model is a classifier of sequences, or of pairs, each of ``length`` tokens, or of groups: choices have all their
    candidates, spans one window of their passage. A transcriber predicts at every frame.
    Raises ValueError for a ``length`` below 1 or a ``predicted_share`` outside [0, 1].
    """
    if not 0.0 <= predicted_share <= 1.0:
        raise ValueError(f"predicted_share={predicted_share!r}: must be in [0, 1]")
    if config.features:
        return _of_transcriber(config, length)
    operations = _in_layers(config, length)
    with undrawn():
        if head is not None:
            uses = {"label": 1, "choice": head.classes, "span": length}[head.kind]  # of the head
            return sequences_of(head) * operations + 2 * uses * _weights(head_of(with_head(config, head)))
        predicted, projected = length, (3 * config.logistics or config.vocab_size) * config.dim
        if config.kind == "encoder":
            predicted = max(round(length * predicted_share), 1)
            projected += _weights(MaskedLMHead(config)) if config.masked_head == "dense" else 0
    return operations + 2 * predicted * projected


def sequences_of(head: ClassifierHead) -> int:
    """The sequences of one example, as :func:`forward_flops` counts them."""
    return head.classes if head.kind == "choice" else 2 if head.pairs else 1


def _of_transcriber(config: ModelConfig, length: int) -> int:
    with undrawn():
        model = build_transcriber(config, 0)
    if isinstance(model, BiLstm):
        matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
        return 2 * length * matrices
    return _in_layers(config, length) + 2 * length * (_weights(model.embedding) + _weights(model.head))


def attention_flops(config: ModelConfig, length: int) -> int:
    """Operations of the attention in all layers on one sequence, with its projections; all of a block such as FLASH."""
    return _in_layers(config, length, attention_only=True)


def training_flops(config: ModelConfig, length: int, sequences: int, head: ClassifierHead | None = None) -> int:
    """Operations of the forward and backward passes over ``sequences`` (or pairs, or groups) of ``length`` tokens.

    The backward pass costs two forward ones, a product per gradient of either factor. What a fused kernel recomputes
    to save memory is not counted.
    """
    return 3 * sequences * forward_flops(config, length, head=head)


def _in_layers(config: ModelConfig, length: int, attention_only: bool = False) -> int:
    """Operations of all layers on one sequence; layers with the same attention cost the same."""
    operations = 0
    for layer, count in Counter(config.attention).items():
        with undrawn():
            block = Block(config, layer)
        weights = _weights(block.attention if attention_only else block)
        operations += count * (sum(one.flops(length) for one in block.mechanisms) + 2 * length * weights)
    return operations


def _weights(module: nn.Module) -> int:
    """Weights of a module's linear layers without biases: multiply-adds per token."""
    return sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear))
