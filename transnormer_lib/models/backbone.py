"""From token ids to hidden states, for every model: embeddings, positions, a stack of blocks, a final norm.

Shapes: B batch, N length, D width, H heads.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.norms import LayerNorm, RMSNorm
from transnormer_lib.models.blocks import Block, build_norm
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.inputs import check_device, check_ids
from transnormer_lib.models.positions import Positions
from transnormer_lib.models.pretrained import Pretrained


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards in the mode that it had."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class Backbone(nn.Module, Pretrained):
    """The stack that ``config`` describes; a subclass adds a head and draws the weights (``models.initialisation``)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.head: nn.Module | None = None  # a subclass sets these three
        self.output: nn.Parameter | None = None
        self.output_bias: nn.Parameter | None = None
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_width)
        self.positions = Positions(config)
        self.segments = nn.Embedding(config.segments, config.embedding_width) if config.segments else None
        self.embedding_norm: nn.Module = nn.Identity()
        if config.kind == "encoder":
            layer = config.embedding_norm == "layer"
            self.embedding_norm = LayerNorm(config.dim, affine=True) if layer else RMSNorm(config.dim)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in config.attention)
        self.final_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        # Embeddings have standard deviation width^-1/2, so this scale makes the input's entries of unit size.
        self.embedding_scale = math.sqrt(config.embedding_width) if config.scale_embedding else 1.0

    def embed(self, input_ids_BN: Tensor, start: int = 0) -> Tensor:
        """The first block's input [B, N, D]; ``start`` is the position of the first token.

        Raises ValueError or TypeError for ids that are no [B, N] of whole numbers below ``vocab_size``. A GPU tells of
        ids out of range by an assertion of its own, since looking at them would wait for it.
        """
        if not isinstance(input_ids_BN, Tensor) or input_ids_BN.ndim != 2 or not input_ids_BN.shape[1]:
            check_ids("input_ids", input_ids_BN, self.config.vocab_size)
            raise ValueError(f"input_ids.shape={tuple(input_ids_BN.shape)}: must be [B, N], N at least 1")
        return self.dropout(self.embedding_norm(self.positions(self._embedded(input_ids_BN), start)))

    def embed_one(self, input_ids_B: Tensor, position: Tensor) -> Tensor:
        """The first block's input [B, D] for one token each, at a position [] that is read on the device only."""
        return self.dropout(self.embedding_norm(self.positions.one(self._embedded(input_ids_B), position)))

    def _embedded(self, input_ids: Tensor) -> Tensor:
        try:
            embedded = self.embedding(input_ids)
        except (IndexError, RuntimeError, TypeError):
            check_ids("input_ids", input_ids, self.config.vocab_size)
            check_device("input_ids", input_ids, self.embedding.weight)
            raise
        if self.segments is not None:
            embedded = embedded + self.segments.weight[0]
        return embedded * self.embedding_scale

    def hidden(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The hidden states [B, N, D] after the final norm."""
        x = self.embed(input_ids_BN)
        for block in self.blocks:
            x = block(x, key_padding_mask)
        return self.final_norm(x)

    @torch.no_grad()
    def attention_weights(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> list[Tensor]:
        """Per layer the attention weights [B, H, N, N] as its mechanism defines them, all by the reference forms."""
        model = copy.deepcopy(self)
        for mechanism in (m for m in model.modules() if isinstance(m, attention.Mechanism)):
            mechanism.config = replace(mechanism.config, impl="reference")
        x, weights = model.embed(input_ids_BN), []
        for block in model.stack():
            weights.append(block.weights(x, key_padding_mask))
            x = block(x, key_padding_mask)
        return weights

    def whole_config(self) -> Any:
        return self.config

    def parameter_count(self) -> int:
        """Number of trainable parameters; tied weights count once."""
        return sum(p.numel() for p in self.parameters())

    def stack(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]
