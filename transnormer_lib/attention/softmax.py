"""Vanilla softmax attention, Eq. 2 and 5 of "The Devil in Linear Transformer": the reference to compare with.

Shapes: B batch, H heads, N length, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.registry import register


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
    """Softmax attention has no field of its own."""


@register("softmax", SoftmaxConfig)
class SoftmaxAttention(Attention):
    """p_ij = softmax_j(q_i·k_j / sqrt(D)), o_i = Σ_j p_ij v_j.

    The chunked form is PyTorch's fused attention, whose time stays quadratic in N. Its memory is linear, but
    for causal attention with a padding mask, which needs a boolean [B, 1, N, N].
    """

    config: SoftmaxConfig

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        return masked_softmax((q * self.config.head_dim**-0.5) @ k.mT, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if key_padding_mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.config.causal)
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
