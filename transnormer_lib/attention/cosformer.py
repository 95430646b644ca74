"""cosFormer: ReLU features, and weights that fall with the distance as a cosine.

Qin et al., 2022, "cosFormer: Rethinking Softmax in Attention" (arXiv:2202.08791), Eq. 10:

    s_ij = relu(q_i)·relu(k_j) cos(π/2 · (i − j)/M)          o_i = Σ_j s_ij v_j / max(Σ_j s_ij, floor)

By cos(a − b) = cos a cos b + sin a sin b (Eq. 11) these are inner products of the features

    φ(x_i) = [relu(x_i) cos(π i / 2M), relu(x_i) sin(π i / 2M)]          (Eq. 12)

The paper only asks that M be at least the length, so that no weight is negative. Here M is ``max_length``. The released
code (OpenNLPLab/cosFormer@17e3d7c) takes the length of the current input (``weights_by="length"``): the weights of two
tokens then depend on the total number of tokens, padding included, and a causal layer's outputs on later tokens.

Shapes: B batch, H heads, N length, D head_dim.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.attention.feature_attention import FeatureAttention
from transnormer_lib.attention.interface import AttentionConfig, check_length
from transnormer_lib.attention.linear import scale_rows
from transnormer_lib.attention.registry import register


@dataclass(frozen=True)
class CosformerConfig(AttentionConfig):
    """cosFormer. ``weights_by="length"`` with ``causal`` makes an output depend on the number of later tokens."""

    max_length: int = 512  # the longest input; M of Eq. 10 where weights_by="max_length"
    weights_by: Literal["max_length", "length"] = "max_length"  # what M is; released: length
    denominator_floor: float = 1e-6  # Δ_i is clamped from below at this, as released


@register("cosformer", CosformerConfig)
class CosformerAttention(FeatureAttention):
    """Eq. 10 by Eq. 12. A row whose ReLU features are all zero gives zeros.

    Positions count padding. With ``weights_by="length"`` there is no recurrence.
    """

    config: CosformerConfig

    def __init__(self, config: CosformerConfig) -> None:
        super().__init__(config)
        self.feature_count = 2 * config.head_dim
        self.floor = config.denominator_floor

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        check_length(k.shape[2], self.config.max_length)
        q, k = self.rotated(q, k)
        angles_N = self._angles(k, 0)
        s = q.relu() @ k.relu().mT * (angles_N[:, None] - angles_N).cos()
        return scale_rows(s if allowed is None else s.masked_fill(~allowed, 0.0), self.floor)

    def query_features(self, q: Tensor, start: int) -> Tensor:
        angles_N1 = self._angles(q, start)[:, None]
        return torch.cat([q.relu() * angles_N1.cos(), q.relu() * angles_N1.sin()], -1)

    def key_features(self, k: Tensor, start: int) -> Tensor:
        check_length(start + k.shape[2], self.config.max_length)
        return super().key_features(k, start)

    def _angles(self, x: Tensor, start: int) -> Tensor:
        """π/2 · i/M for the positions start, start + 1, … of x [B, H, N, D]."""
        n = x.shape[2]
        longest = self.config.max_length if self.config.weights_by == "max_length" else n
        positions_N = torch.arange(start, start + n, dtype=x.dtype, device=x.device)
        return math.pi / 2 / longest * positions_N

    def _check_recurrent(self) -> None:
        super()._check_recurrent()
        if self.config.weights_by == "length":
            raise ValueError("weights_by='length': has no recurrent form, since every weight depends on the length")
