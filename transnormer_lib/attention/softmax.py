"""Vanilla softmax attention, Eq. 2 and 5 of "The Devil in Linear Transformer": the reference to compare with.

Shapes: B batch, H heads, N length, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.interface import Attention, AttentionConfig, State, check_dropout
from transnormer_lib.attention.registry import register

_SMALLEST_CACHE = 16  # tokens


def masked_softmax(s: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the last dimension of the scores s among the allowed entries.

    Entries that are not allowed are exactly zero; a row without an allowed entry is zero, not NaN.
    """
    if allowed is None:
        return s.softmax(-1)
    # A finite fill keeps rows without a key, and their gradients, free of NaN; such a row comes out uniform
    # and is emptied afterwards.
    p = s.masked_fill(~allowed, torch.finfo(s.dtype).min).softmax(-1)
    return p.masked_fill(~allowed, 0.0)


@dataclass(frozen=True)
class SoftmaxConfig(AttentionConfig):
    """Softmax attention."""

    dropout: float = 0.0  # of the attention matrix, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dropout(self.dropout)


@register("softmax", SoftmaxConfig)
class SoftmaxAttention(Attention):
    """p_ij = softmax_j(q_i·k_j / sqrt(D)), o_i = Σ_j p_ij v_j.

    The chunked form is PyTorch's fused attention, whose time stays quadratic in N. Its memory is linear, but
    for causal attention with a padding mask, which needs a boolean [B, 1, N, N]. Its state is a cache of all keys
    and values, which grows with the position; its capacity doubles, so that a token costs no copy on average.
    """

    config: SoftmaxConfig

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.turned(q, k)
        return masked_softmax((q * self.config.head_dim**-0.5) @ k.mT, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.turned(q, k)
        p = self.config.dropout if self.training else 0.0
        if key_padding_mask is None:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.config.causal)
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=p)

    def state_after(self, k: Tensor, v: Tensor) -> State:
        _, k = self.turned(k, k)
        return {"keys": _with_room(k), "values": _with_room(v)}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k = self.turned(q, k, start=position)
        keys, values = state["keys"], state["values"]
        if position == keys.shape[2]:
            keys, values = _with_room(keys), _with_room(values)
        keys[:, :, position], values[:, :, position] = k[:, :, 0], v[:, :, 0]
        seen = slice(position + 1)
        o = F.scaled_dot_product_attention(q, keys[:, :, seen], values[:, :, seen])
        return o, {"keys": keys, "values": values}

    def flops(self, length: int) -> int:
        """Quadratic. The part above the diagonal is counted too: it is up to the kernel whether it is skipped."""
        return 4 * self.config.heads * length * length * self.config.head_dim


def _with_room(cache: Tensor) -> Tensor:
    """A cache [B, H, C, D] with at least as much room again after what it holds."""
    return F.pad(cache, (0, 0, 0, max(cache.shape[2], _SMALLEST_CACHE)))
