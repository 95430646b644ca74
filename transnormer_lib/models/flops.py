"""Floating-point operations of a language model: matrix products alone, a multiply-add counting two."""

import torch

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import Block, LanguageModel

PREDICTED_SHARE = 0.15  # of the tokens of a masked LM, the share that its head and vocabulary projection run on


def forward_flops(config: ModelConfig, length: int, predicted_share: float = PREDICTED_SHARE) -> int:
    """Operations of one sequence's forward pass with its logits; looking up embeddings costs none.

    A decoder predicts at every position, an encoder at ``predicted_share`` of them.
    """
    with torch.device("meta"):
        model = LanguageModel(config)
    linears = attentions = 0
    for block in model.modules():
        if isinstance(block, Block):
            attentions += block.attention.attention.flops(length)
            linears += sum(m.weight.numel() for m in block.modules() if isinstance(m, torch.nn.Linear))
    head = config.vocab_size * config.dim
    if model.head is None:
        predicted = length
    else:
        predicted = max(round(length * predicted_share), 1)
        head += model.head.dense.weight.numel()
    return 2 * length * linears + attentions + 2 * predicted * head


def training_flops(config: ModelConfig, length: int, sequences: int) -> int:
    """Operations of the forward and backward passes over ``sequences``: the backward pass costs two forward ones."""
    return 3 * sequences * forward_flops(config, length)
