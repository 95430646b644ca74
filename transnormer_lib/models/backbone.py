"""What every model has between token ids and hidden states: embeddings, positions, a stack of blocks, a final norm.

Shapes: B batch, N length, D width, H heads.
"""

import math

import torch
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.norms import LayerNorm
from transnormer_lib.models.blocks import Block, build_norm
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.initialisation import draw_fairseq, draw_normal
from transnormer_lib.models.positions import Positions


class Backbone(nn.Module):
    """The stack that ``config`` says, without a head. A subclass adds one, overrides ``reset_head`` and, as the last
    thing it does, calls ``reset_parameters``.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.positions = Positions(config)
        self.embedding_norm = nn.Identity() if config.kind == "decoder" else LayerNorm(config.dim, affine=True)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in config.attention)
        self.final_norm = build_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        # With embeddings of standard deviation dim^-1/2 the scale makes the input's entries of unit size.
        self.embedding_scale = math.sqrt(config.dim) if config.scale_embedding else 1.0

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, in a fixed order: ``config.init`` names the scheme of ``models.initialisation``.

        Norms are left as they are: they start as the identity. A mechanism's own weights come first and may be drawn
        over by the scheme; LRPE's reflection is drawn last.
        """
        for module in self.modules():
            if isinstance(module, attention.Attention | attention.AttentionBlock):
                module.reset_parameters(generator)
        if self.config.init == "normal-0.02":
            draw_normal(self, 0.02, generator)
        else:
            draw_fairseq(self, self.config.dim, generator)
        self.reset_head(generator)
        if isinstance(self.positions.table, nn.Parameter):
            nn.init.normal_(self.positions.table, std=0.02, generator=generator)
        for module in self.modules():
            if isinstance(module, attention.Rotary):
                module.reset_parameters(generator)

    def reset_head(self, generator: torch.Generator | None) -> None:
        """Draw what the subclass added."""

    def embed(self, input_ids_BN: Tensor, start: int = 0) -> Tensor:
        """What the first block sees of tokens whose first stands at position ``start``: [B, N, D]."""
        x = self.positions(self.embedding(input_ids_BN) * self.embedding_scale, start)
        return self.dropout(self.embedding_norm(x))

    def hidden(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The hidden states [B, N, D] after the final norm."""
        x = self.embed(input_ids_BN)
        for block in self.blocks:
            x = block(x, key_padding_mask)
        return self.final_norm(x)

    @torch.no_grad()
    def attention_weights(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> list[Tensor]:
        """Per layer the attention weights [B, H, N, N], as its mechanism defines them."""
        x, weights = self.embed(input_ids_BN), []
        for block in self.stack():
            weights.append(block.weights(x, key_padding_mask))
            x = block(x, key_padding_mask)
        return weights

    def stack(self) -> list[Block]:
        """The layers, first layer first."""
        return [block for block in self.blocks if isinstance(block, Block)]
