"""Decoder and encoder language models for every registered attention.

A model is: token embedding (+ positions) → blocks → logits through the tied embedding.
- Decoder (autoregressive): pre-norm blocks, embeddings scaled by √dim, a final norm.
- Encoder (masked LM): post-norm blocks, LayerNorm on the embeddings, an MLM head (dense, GELU, LayerNorm, bias).
Shapes: B batch, N length, D width, V vocabulary, H heads.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.norms import LayerNorm, RMSNorm
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.feed_forward import feed_forward
from transnormer_lib.models.positions import Positions


def _norm(config: ModelConfig) -> nn.Module:
    return RMSNorm(config.dim) if config.norm == "rms" else LayerNorm(config.dim, affine=True)


class Block(nn.Module):
    """One layer: attention and feed-forward, each with a residual connection and a norm."""

    def __init__(self, config: ModelConfig, mechanism: str) -> None:
        super().__init__()
        options: dict[str, Any] = dict(config.attention_options.get(mechanism, {}))
        core = attention.build(
            mechanism,
            {
                "heads": config.heads,
                "head_dim": config.head_dim,
                "causal": config.kind == "decoder",
                **options,
            },
        )
        self.attention = attention.MultiHeadAttention(config.dim, core)
        self.feed_forward = feed_forward(config)
        self.attention_norm = _norm(config)
        self.feed_forward_norm = _norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm_placement == "pre"

    def forward(
        self, x_BND: Tensor, key_padding_mask: Tensor | None = None, return_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The block's output [B, N, D] and, if asked for, its attention weights [B, H, N, N]."""
        weights = None
        h = self.attention_norm(x_BND) if self.pre_norm else x_BND
        attended = self.attention(h, key_padding_mask=key_padding_mask, return_weights=return_weights)
        if return_weights:
            attended, weights = attended
        x_BND = x_BND + self.dropout(attended)
        if self.pre_norm:
            return x_BND + self.dropout(self.feed_forward(self.feed_forward_norm(x_BND))), weights
        x_BND = self.attention_norm(x_BND)
        return self.feed_forward_norm(x_BND + self.dropout(self.feed_forward(x_BND))), weights


class MaskedLMHead(nn.Module):
    """RoBERTa's head: dense, GELU, LayerNorm, then the tied embedding with a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim)
        self.norm = LayerNorm(config.dim, affine=True)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_BND: Tensor, embedding_VD: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.dense(x_BND))), embedding_VD, self.bias)


class LanguageModel(nn.Module):
    """A decoder or encoder stack as ``config`` says.

    Weights are drawn from ``generator`` (or torch's default one), so a seed fixes them.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.positions = Positions(config)
        is_decoder = config.kind == "decoder"
        self.embedding_norm = nn.Identity() if is_decoder else LayerNorm(config.dim, affine=True)
        self.blocks = nn.ModuleList(Block(config, mechanism) for mechanism in config.attention)
        self.final_norm = _norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.head = None if is_decoder else MaskedLMHead(config)
        self.dropout = nn.Dropout(config.dropout)
        # With embeddings of standard deviation dim^-1/2 the scale makes the input's entries of unit size.
        self.embedding_scale = math.sqrt(config.dim) if config.init == "fairseq" else 1.0
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, in a fixed order.

        ``fairseq``: embeddings N(0, 1/dim); q, k, v Xavier-uniform with gain 1/√2, attention output with gain 1;
        feed-forward uniform in ±1/√fan_in with its biases, torch's default for a Linear. ``normal-0.02``: every
        weight N(0, 0.02), biases zero. Norms start as the identity in both.
        """
        if self.config.init == "normal-0.02":
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    nn.init.normal_(module.weight, std=0.02, generator=generator)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)
        else:
            nn.init.normal_(self.embedding.weight, std=self.config.dim**-0.5, generator=generator)
            for name, module in self.named_modules():
                if isinstance(module, nn.Linear):
                    self._reset_linear(name.rpartition(".")[2], module, generator)
        if isinstance(self.positions.table, nn.Parameter):
            nn.init.normal_(self.positions.table, std=0.02, generator=generator)

    @staticmethod
    def _reset_linear(name: str, linear: nn.Linear, generator: torch.Generator | None) -> None:
        if name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            gain = 1.0 if name == "out_proj" else 2**-0.5
            nn.init.xavier_uniform_(linear.weight, gain=gain, generator=generator)
            nn.init.zeros_(linear.bias)
        else:
            bound = linear.in_features**-0.5
            nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
            nn.init.uniform_(linear.bias, -bound, bound, generator=generator)

    def _hidden(
        self, input_ids_BN: Tensor, key_padding_mask: Tensor | None, return_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        x = self.positions(self.embedding(input_ids_BN) * self.embedding_scale)
        x = self.dropout(self.embedding_norm(x))
        all_weights = []
        for block in self.blocks:
            x, weights = block(x, key_padding_mask, return_weights)
            if weights is not None:
                all_weights.append(weights)
        return self.final_norm(x), all_weights

    def forward(
        self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None, targets_BN: Tensor | None = None
    ) -> Tensor:
        """Logits [B, N, V], or with ``targets_BN`` the loss. In ``key_padding_mask`` [B, N] True marks padding.

        The loss is the mean cross-entropy in nats over the positions whose target is not ``IGNORE``. It is computed
        here rather than by the caller because wrappers for several devices see only ``forward``.
        """
        hidden, _ = self._hidden(input_ids_BN, key_padding_mask, return_weights=False)
        if targets_BN is None:
            return self._logits(hidden)
        if self.config.kind == "encoder":
            # A masked-LM batch counts few positions: project those alone onto the vocabulary.
            counted = targets_BN != IGNORE
            return F.cross_entropy(self._logits(hidden[counted]), targets_BN[counted])
        return F.cross_entropy(self._logits(hidden).flatten(0, 1), targets_BN.flatten(), ignore_index=IGNORE)

    def _logits(self, hidden_BND: Tensor) -> Tensor:
        if self.head is not None:
            return self.head(hidden_BND, self.embedding.weight)
        return F.linear(hidden_BND, self.embedding.weight)

    @torch.no_grad()
    def attention_weights(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> list[Tensor]:
        """Per layer the attention weights [B, H, N, N], defined for each mechanism by its ``return_weights``."""
        return self._hidden(input_ids_BN, key_padding_mask, return_weights=True)[1]


def build_model(config: ModelConfig, seed: int) -> LanguageModel:
    """The model with the weights that ``seed`` fixes, whatever torch's global random state is."""
    return LanguageModel(config, torch.Generator().manual_seed(seed))


def count_parameters(config: ModelConfig) -> int:
    """Number of trainable parameters, counted on the meta device: nothing is allocated. Tied weights count once."""
    with torch.device("meta"):
        model = LanguageModel(config)
    return sum(p.numel() for p in model.parameters())
