"""Vanilla softmax attention, Eq. 2 and 5 of "The Devil in Linear Transformer": the reference to compare with.

Shapes: B batch, H heads, N length, D head_dim.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.derivatives import TwiceDifferentiable, transformed
from transnormer_lib.attention.interface import Attention, AttentionConfig, without_autocast
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes, append, cache_of, cache_shapes
from transnormer_lib.attention.registry import register


def masked_softmax(s: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed entries of the last dimension of s; others, and rows without any, are exactly zero."""
    if allowed is None:
        return s.softmax(-1)
    # A finite fill keeps rows without a key, and their gradients, free of NaN; such a row comes out uniform
    # and is emptied afterwards.
    p = s.masked_fill(~allowed, torch.finfo(s.dtype).min).softmax(-1)
    return p.masked_fill(~allowed, 0.0)


class CachedAttention(Attention):
    """Base of mechanisms whose recurrent form caches every key and value; a subclass writes ``over_cache``."""

    def over_cache(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The output [B, H, 1, D] of the last of L tokens, for its rotated query, all rotated keys and all values."""
        raise NotImplementedError

    def state_shapes(self) -> StateShapes:
        return cache_shapes(self.config.head_dim, self.config.head_dim)

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype  # nothing is summed in it

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (k,) = self.rotated(k)
        return cache_of(k, v)

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k = self.rotated(q, k, start=position)
        after, keys, values = append(state, k, v, position)
        return self.over_cache(q, keys, values), after


@dataclass(frozen=True)
class SoftmaxConfig(AttentionConfig):
    dropout: float = 0.0  # of the attention matrix, in training


@register("softmax", SoftmaxConfig)
class SoftmaxAttention(CachedAttention):
    """p_ij = softmax_j(q_i·k_j / sqrt(D)), o_i = Σ_j p_ij v_j.

    The chunked form is PyTorch's fused attention: quadratic time, linear memory, except for causal attention with a
    padding mask, which needs a boolean [B, 1, N, N], for dropout on a CPU, which has no fused form, and for second and
    forward-mode derivatives, which are the specification's. The recurrent state is a cache of all keys and values,
    whose room doubles when it is full. ``flops`` counts all pairs of tokens, causal or not, as PyTorch's own counter
    does.
    """

    config: SoftmaxConfig

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        return self.rotated_matrix(q, k, allowed)

    def rotated_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """``attention_matrix`` of rotated queries and keys."""
        return masked_softmax((q * self.config.head_dim**-0.5) @ k.mT, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        allowed = None if key_padding_mask is None else self.allowed(q.shape[2], key_padding_mask, q.device)
        p, causal = self._dropout_p(), self.config.causal and allowed is None

        def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with without_autocast(q.device.type):
                seen = self.allowed(q.shape[2], key_padding_mask, q.device)
                return (self.rotated_matrix(widen(q), widen(k), seen) @ widen(v)).to(q.dtype)

        if transformed() and not p:
            return plain(q, k, v)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=p, is_causal=causal)
        if p or torch.compiler.is_compiling() or not o.requires_grad:
            return o
        return TwiceDifferentiable.apply(q, k, v, o, plain)

    def over_cache(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, keys, values, dropout_p=self._dropout_p())

    def fixed_recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: Tensor) -> Tensor:
        q, k = self.rotated(q, k, start=position)
        for name, x in (("keys", k), ("values", v)):
            state[name].index_copy_(2, position[None], x)
        seen_L = torch.arange(state["keys"].shape[2], device=q.device) <= position
        return F.scaled_dot_product_attention(q, state["keys"], state["values"], attn_mask=seen_L[None, :])

    def _dropout_p(self) -> float:
        return self.config.dropout if self.training else 0.0
