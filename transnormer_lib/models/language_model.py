"""Decoder and encoder language models for every registered attention.

A model is token embedding (+ positions) → blocks → logits through the tied embedding.

- Decoder (autoregressive): in the paper pre-norm blocks, embeddings scaled by √dim, a final norm.
  With ``config.logistics`` the output is a mixture of logistics over pixel values (``models.logistics``).
- Encoder (masked LM): in the paper post-norm blocks, LayerNorm on the embeddings, a masked-LM head.

A decoder also runs as a recurrence: ``prefill`` reads a prompt in parallel, ``step`` one token at a time;
``models.generation`` samples with them. Shapes: B batch, N length, D width, V vocabulary, H heads.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.norms import LayerNorm
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.backbone import Backbone
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.initialisation import draw_weights, undrawn
from transnormer_lib.models.inputs import check_ids, check_sequences, check_targets, explained
from transnormer_lib.models.logistics import LogisticHead

ModelState = list[attention.State]  # one state per block


class MaskedLMHead(nn.Module):
    """RoBERTa's head: dense, GELU, LayerNorm, then the tied embedding with a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim)
        self.norm = LayerNorm(config.dim, affine=True)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_BND: Tensor, embedding_VD: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.dense(x_BND))), embedding_VD, self.bias)


class LanguageModel(Backbone):
    """The decoder or encoder that ``config`` describes, its weights drawn from ``generator`` or torch's default one."""

    head: MaskedLMHead | LogisticHead | None

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        dense = config.kind == "encoder" and config.masked_head == "dense"
        self.head = MaskedLMHead(config) if dense else None
        if config.logistics:
            self.head = LogisticHead(config.dim, config.logistics, config.vocab_size)
        self.output = (
            None if config.tied or config.logistics else nn.Parameter(torch.empty(config.vocab_size, config.dim))
        )
        self.output_bias = nn.Parameter(torch.empty(config.vocab_size)) if config.output_bias else None
        draw_weights(self, generator)

    @property
    def writes_text(self) -> bool:
        return self.config.kind == "decoder" and self.vocabulary is not None

    def forward(
        self, input_ids_BN: Tensor, key_padding_mask: Tensor | None = None, targets_BN: Tensor | None = None
    ) -> Tensor:
        """Logits [B, N, V], or with ``targets_BN`` the loss. In ``key_padding_mask`` [B, N] True marks padding.

        The loss is the mean cross-entropy in nats over the positions whose target is not ``IGNORE``; it is computed
        here because wrappers for several devices see only ``forward``. Raises ValueError or TypeError for ids, a mask
        or targets that do not fit.
        """
        if torch.compiler.is_compiling():
            return self._forward(input_ids_BN, key_padding_mask, targets_BN)
        with explained(lambda: self._check(input_ids_BN, key_padding_mask, targets_BN)):
            return self._forward(input_ids_BN, key_padding_mask, targets_BN)

    def _check(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None, targets_BN: Tensor | None) -> None:
        check_ids("input_ids", input_ids_BN, self.config.vocab_size)
        weight = self.embedding.weight
        check_sequences("input_ids", input_ids_BN, "[B, N]", key_padding_mask, weight)
        if targets_BN is not None:
            check_targets(targets_BN, tuple(input_ids_BN.shape), self.config.vocab_size, weight)

    def _forward(self, input_ids_BN: Tensor, key_padding_mask: Tensor | None, targets_BN: Tensor | None) -> Tensor:
        hidden = self.hidden(input_ids_BN, key_padding_mask)
        if targets_BN is None:
            return self.logits(hidden)
        if self.config.kind == "encoder":
            # Few positions of a masked-LM batch count: project only those onto the vocabulary.
            counted = targets_BN != IGNORE
            return F.cross_entropy(self.logits(hidden[counted]), targets_BN[counted])
        if isinstance(self.head, LogisticHead):
            counted = targets_BN != IGNORE
            nats_BN = -self.head.mixtures(hidden).log_probability(targets_BN.where(counted, 0))
            return nats_BN[counted].mean()
        return F.cross_entropy(self.logits(hidden).flatten(0, 1), targets_BN.flatten(), ignore_index=IGNORE)

    def logits(self, hidden_BND: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., D]; those of a mixture are its log probabilities."""
        if isinstance(self.head, LogisticHead):
            return self.head.mixtures(hidden_BND).log_probabilities()
        output_VD = self.embedding.weight if self.output is None else self.output
        if self.head is not None:
            return self.head(hidden_BND, output_VD)
        return F.linear(hidden_BND, output_VD, self.output_bias)

    @torch.no_grad()
    def prefill(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """Logits [B, V] of the token after a prompt [B, N], and the state for :meth:`step`. Decoders only."""
        hidden_BD, states = self.read(input_ids_BN)
        return self.logits(hidden_BD), states

    @torch.no_grad()
    def read(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """:meth:`prefill` up to the hidden states [B, D] of the last token after the final norm."""
        self._check_recurrent()
        x, states = self.embed(input_ids_BN), []
        for block in self.stack():
            x, state = block.prefill(x)
            states.append(state)
        return self.final_norm(x[:, -1]), states

    @torch.no_grad()
    def step(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """Logits [B, V] after one more token per sequence, equal to ``forward``'s at that position.

        The cost is the same at every position unless a block's cache grows, as softmax attention's does. Do not reuse
        ``states``: their memory may be overwritten.
        """
        hidden_BD, states = self.advance(input_ids_B, states)
        return self.logits(hidden_BD), states

    @torch.no_grad()
    def advance(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """:meth:`step` up to the hidden states [B, D] after the final norm."""
        self._check_recurrent()
        x = self.embed(input_ids_B[:, None], start=int(states[0]["position"]))[:, 0]
        new_states = []
        for block, state in zip(self.stack(), states, strict=True):
            x, state = block.step(x, state)
            new_states.append(state)
        return self.final_norm(x), new_states

    def initial_state(self, batch: int) -> ModelState:
        """The state before the first token of ``batch`` sequences."""
        self._check_recurrent()
        weight = self.embedding.weight
        return [block.attention.initial_state(batch, weight.dtype, weight.device) for block in self.stack()]

    def _check_recurrent(self) -> None:
        if self.config.kind != "decoder":
            raise ValueError(f"kind={self.config.kind!r}: only a decoder runs as a recurrence")


def build_model(config: ModelConfig, seed: int) -> LanguageModel:
    """The model with weights drawn from ``seed`` alone, independent of torch's global random state."""
    return LanguageModel(config, torch.Generator().manual_seed(seed))


def width_for(config: ModelConfig, parameters: float) -> int:
    """The width inside the FFN or GLU, at least 1, that brings ``config`` closest to a number of parameters.

    Raises ValueError for a model whose layers have neither.
    """
    # The count is linear in the width.
    one, two = (count_parameters(replace(config, hidden=width)) for width in (1, 2))
    if one == two:
        raise ValueError(f"attention={config.attention[0]!r}: these layers have no FFN or GLU with a width to choose")
    return max(round((parameters - one) / (two - one)) + 1, 1)


def count_parameters(model: ModelConfig | Backbone) -> int:
    """Number of trainable parameters; tied weights count once. No weight of a config is drawn for it."""
    if isinstance(model, Backbone):
        return model.parameter_count()
    with undrawn():
        return LanguageModel(model).parameter_count()
