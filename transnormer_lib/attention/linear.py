"""Kernel-based linear attention, with and without the scaling that the paper calls the devil.

Eq. 3 of "The Devil in Linear Transformer" is O = Δ^-1 φ(Q) [φ(K)^T V]: ``linear`` divides by
Δ_i = Σ_j φ(q_i)·φ(k_j), ``linear-unscaled`` does not (Table 1, "1 + elu w/o scaling").

Shapes: B batch, H heads, N length, D head_dim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from transnormer_lib.attention.chunked import causal_product, full_product, product_and_normaliser
from transnormer_lib.attention.feature_maps import feature_map
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.registry import register


def scale_rows(s: Tensor, floor: float = 1e-6) -> Tensor:
    """P = Δ^-1 S of Eq. 29, with Δ_i = Σ_j s_ij clamped from below at ``floor``.

    The clamp is what the released 1+elu code does. Where φ is signed Δ_i can be negative, and the clamp then
    changes the row; Eq. 4 assumes that it does not happen.
    """
    return s / s.sum(-1, keepdim=True).clamp(min=floor)


@dataclass(frozen=True)
class UnscaledLinearConfig(AttentionConfig):
    """Linear attention without the denominator."""

    phi: str = "1+elu"  # feature map: "elu", "1+elu", "relu" or "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        feature_map(self.phi)


@register("linear-unscaled", UnscaledLinearConfig)
class UnscaledLinearAttention(Attention):
    """o_i = Σ_j s_ij v_j with s_ij = φ(q_i)·φ(k_j): Eq. 13 with φ. Its weights are S itself."""

    config: UnscaledLinearConfig

    def features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(φ(q), φ(k)). What turns features by their position overrides this: everything below reads it."""
        phi = feature_map(self.config.phi)
        return phi(widen(q)), phi(widen(k))

    def scores(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        """S of Eq. 6, s_ij = φ(q_i)·φ(k_j), [..., N, N]; zero where ``allowed`` is False."""
        phi_q, phi_k = self.features(q, k)
        s = phi_q @ phi_k.mT
        return s if allowed is None else s.masked_fill(~allowed, 0.0)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        return self.scores(q, k, allowed)

    def masked_features(self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(φ(q), φ(k)) with φ(k) zero on padding: a key without features is in no sum."""
        phi_q, phi_k = self.features(q, k)
        if key_padding_mask is not None:
            phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        return phi_q, phi_k

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        phi_q, phi_k = self.masked_features(q, k, key_padding_mask)
        if self.config.causal:
            return self.finish(causal_product(phi_q, phi_k, widen(v), self.config.chunk_size))
        return self.finish(full_product(phi_q, phi_k, widen(v)))


@dataclass(frozen=True)
class LinearConfig(UnscaledLinearConfig):
    """Linear attention of Eq. 3."""

    denominator_floor: float = 1e-6  # Δ_i is clamped from below at this, as the released 1+elu code does

    def __post_init__(self) -> None:
        super().__post_init__()
        floor = self.denominator_floor
        if isinstance(floor, bool) or not isinstance(floor, (int, float)) or not 0.0 < floor < math.inf:
            raise ValueError(f"denominator_floor={floor!r}: must be a positive finite number")


@register("linear", LinearConfig)
class LinearAttention(UnscaledLinearAttention):
    """o_i = Σ_j s_ij v_j / Σ_j s_ij, Eq. 3. With φ ≥ 0 each output is an average of values."""

    config: LinearConfig

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        return scale_rows(self.scores(q, k, allowed), self.config.denominator_floor)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        phi_q, phi_k = self.masked_features(q, k, key_padding_mask)
        t, z = product_and_normaliser(phi_q, phi_k, widen(v), self.config.causal, self.config.chunk_size)
        return t / z.clamp(min=self.config.denominator_floor)
