"""Decoder and encoder language models for every registered attention.

A model is: token embedding (+ positions) → blocks → logits through the tied embedding.
- Decoder (autoregressive): in the paper pre-norm blocks, embeddings scaled by √dim, a final norm.
- Encoder (masked LM): in the paper post-norm blocks, LayerNorm on the embeddings, an MLM head (dense, GELU,
  LayerNorm, bias).
A decoder also runs as a recurrence: ``prefill`` reads a prompt in parallel, ``step`` one token at a time.
Sampling is in ``models.generation``.
Shapes: B batch, N length, D width, V vocabulary, H heads.
"""

import math
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.norms import LayerNorm, RMSNorm
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.feed_forward import FFN, GLU, feed_forward
from transnormer_lib.models.positions import Positions

ModelState = list[attention.State]  # one state per block


def _norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.dim, eps_placement=config.norm_eps_placement)
    return LayerNorm(config.dim, affine=True)


def _attention(config: ModelConfig, mechanism: str) -> attention.Attention:
    """The mechanism with the model's fields; the mechanism's own options come last and win."""
    options: dict[str, Any] = {
        "heads": config.heads,
        "head_dim": config.head_dim,
        "causal": config.kind == "decoder",
        "rotary": config.rotary,
    }
    if any(field.name == "dropout" for field in fields(attention.config_class(mechanism))):
        options["dropout"] = config.attention_dropout
    return attention.build(mechanism, options | dict(config.attention_options.get(mechanism, {})))


class Block(nn.Module):
    """One layer: attention and feed-forward, each with a residual connection and a norm."""

    def __init__(self, config: ModelConfig, mechanism: str) -> None:
        super().__init__()
        self.attention = attention.MultiHeadAttention(config.dim, _attention(config, mechanism))
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
        attended = self.attention(self._seen(x_BND), key_padding_mask=key_padding_mask, return_weights=return_weights)
        if return_weights:
            attended, weights = attended
        return self._rest(x_BND, attended), weights

    def prefill(self, x_BND: Tensor) -> tuple[Tensor, attention.State]:
        """The block's output and the state after its last token; decoders only."""
        attended, state = self.attention.prefill(self._seen(x_BND))
        return self._rest(x_BND, attended), state

    def step(self, x_BD: Tensor, state: attention.State) -> tuple[Tensor, attention.State]:
        """The block's output for one more token."""
        attended, state = self.attention.step(self._seen(x_BD), state)
        return self._rest(x_BD, attended), state

    def _seen(self, x: Tensor) -> Tensor:
        """What attention sees of the residual stream x [..., D]."""
        return self.attention_norm(x) if self.pre_norm else x

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """All of the block after its attention, token by token: x and the result are [..., D]."""
        x = x + self.dropout(attended)
        if self.pre_norm:
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x)
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


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
        self.embedding_scale = math.sqrt(config.dim) if config.scale_embedding else 1.0
        self.output = None if config.tied else nn.Parameter(torch.empty(config.vocab_size, config.dim))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, in a fixed order.

        ``fairseq``: embeddings and output N(0, 1/dim); q, k, v Xavier-uniform with gain 1/√2, in DiagAttention and
        the attention output with gain 1 (OpenNLPLab/fairseq-evo@38fa81f); feed-forward uniform in ±1/√fan_in with its
        biases, torch's default for a Linear. ``normal-0.02``: every weight of standard deviation 0.02, biases zero.
        Norms start as the identity in both. The reflection of LRPE is drawn as well.
        """
        if self.config.init == "normal-0.02":
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    nn.init.normal_(module.weight, std=0.02, generator=generator)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)
        else:
            nn.init.normal_(self.embedding.weight, std=self.config.dim**-0.5, generator=generator)
            for module in self.modules():
                if isinstance(module, attention.MultiHeadAttention):
                    _reset_attention(module, generator)
                elif isinstance(module, FFN | GLU):
                    _reset_linears(module, generator)
            if self.head is not None:
                _reset_linears(self.head, generator)
        if self.output is not None:
            std = 0.02 if self.config.init == "normal-0.02" else self.config.dim**-0.5
            nn.init.normal_(self.output, std=std, generator=generator)
        if isinstance(self.positions.table, nn.Parameter):
            nn.init.normal_(self.positions.table, std=0.02, generator=generator)
        for module in self.modules():
            if isinstance(module, attention.Rotary):
                module.reset_parameters(generator)

    def _embed(self, input_ids_BN: Tensor, start: int = 0) -> Tensor:
        x = self.positions(self.embedding(input_ids_BN) * self.embedding_scale, start)
        return self.dropout(self.embedding_norm(x))

    def _hidden(
        self, input_ids_BN: Tensor, key_padding_mask: Tensor | None, return_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        x = self._embed(input_ids_BN)
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
        output_VD = self.embedding.weight if self.output is None else self.output
        if self.head is not None:
            return self.head(hidden_BND, output_VD)
        return F.linear(hidden_BND, output_VD)

    def prefill(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """Logits [B, V] of the token after a prompt [B, N], and the state for :meth:`step`. Decoders only."""
        self._check_recurrent()
        x, states = self._embed(input_ids_BN), []
        for block in self._stack():
            x, state = block.prefill(x)
            states.append(state)
        return self._logits(self.final_norm(x[:, -1])), states

    def step(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """Logits [B, V] after one more token per sequence, equal to ``forward``'s at that position.

        Costs the same at every position where no block is softmax attention, whose cache grows. The states given in
        are used up: their memory may be written to.
        """
        self._check_recurrent()
        x = self._embed(input_ids_B[:, None], start=int(states[0]["position"]))[:, 0]
        new_states = []
        for block, state in zip(self._stack(), states, strict=True):
            x, state = block.step(x, state)
            new_states.append(state)
        return self._logits(self.final_norm(x)), new_states

    def initial_state(self, batch: int) -> ModelState:
        """The state before the first token of ``batch`` sequences."""
        self._check_recurrent()
        weight = self.embedding.weight
        return [block.attention.initial_state(batch, weight.dtype, weight.device) for block in self._stack()]

    def _stack(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def _check_recurrent(self) -> None:
        if self.config.kind != "decoder":
            raise ValueError(f"kind={self.config.kind!r}: only a decoder runs as a recurrence")

    @torch.no_grad()
    def attention_weights(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None) -> list[Tensor]:
        """Per layer the attention weights [B, H, N, N], defined for each mechanism by its ``return_weights``."""
        return self._hidden(input_ids_BN, key_padding_mask, return_weights=True)[1]


def _reset_attention(layer: attention.MultiHeadAttention, generator: torch.Generator | None) -> None:
    gain = 1.0 if layer.attention.name == "diag" else 2**-0.5
    for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
        nn.init.xavier_uniform_(linear.weight, gain=gain, generator=generator)
        nn.init.zeros_(linear.bias)
    nn.init.xavier_uniform_(layer.out_proj.weight, generator=generator)
    nn.init.zeros_(layer.out_proj.bias)


def _reset_linears(parent: nn.Module, generator: torch.Generator | None) -> None:
    for linear in parent.modules():
        if isinstance(linear, nn.Linear):
            bound = linear.in_features**-0.5
            nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
            nn.init.uniform_(linear.bias, -bound, bound, generator=generator)


def build_model(config: ModelConfig, seed: int) -> LanguageModel:
    """The model with the weights that ``seed`` fixes, whatever torch's global random state is."""
    return LanguageModel(config, torch.Generator().manual_seed(seed))


def count_parameters(config: ModelConfig) -> int:
    """Number of trainable parameters, counted on the meta device: nothing is allocated. Tied weights count once."""
    with torch.device("meta"):
        model = LanguageModel(config)
    return sum(p.numel() for p in model.parameters())
