"""Random Feature Attention: softmax attention on unit vectors by random sines and cosines.

Peng et al., 2021, "Random Feature Attention" (arXiv:2103.02143). With x = q / ‖q‖ or k / ‖k‖ and, for each head,
w_r = σ ⊙ w̃_r, w̃_1 … w̃_M ~ N(0, I) and σ learned (Sections 2.2 and 3.1):

    φ(x) = [sin(w_1·x), …, sin(w_M·x), cos(w_1·x), …, cos(w_M·x)],      φ(x)·φ(y) = Σ_r cos(w_r·(x − y))

whose mean is M times a Gaussian kernel, which on unit vectors is proportional to the softmax's exponential. Attention
is Eq. 5, causal as the recurrence of Eq. 6.

These features are signed. A sum of positive kernel values is estimated with an error of about sqrt(1 / 2M) per key, so
a denominator can be near zero or negative, a case the paper does not treat. As the released code does
(Noahs-ARK/RFA@d0f7146), this file scales φ by 0.1 and clamps the denominator from below at 1 (the release only in
training): for M = 64 that is 1.5 times the weight of a query's own copy, so the first outputs of a causal layer are
smaller than averages.

Each forward pass in training redraws w̃, as in the paper; the released code picks one of 500 drawn beforehand. The gate
of Section 3.2 (RFA-Gate) is left out: it is computed from the layer's input, not from k.

Shapes: B batch, H heads, N length, D head_dim, M pairs of features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transnormer_lib.attention.feature_attention import FeatureAttention
from transnormer_lib.attention.interface import AttentionConfig
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.random_features import RandomProjection
from transnormer_lib.attention.registry import register

FEATURE_SCALE = 0.1  # of sines and cosines, as released: without the denominator's clamp it would cancel
_SHORTEST = 1e-3  # a shorter vector is divided by this instead, and its gradient stays bounded


@dataclass(frozen=True)
class RFAConfig(AttentionConfig):
    features: int = 64  # M, of which there are 2M features; as released
    redraw_interval: int | None = 1  # training steps per draw of w̃; None: never redrawn
    denominator_floor: float = 1.0  # Δ_i, made of features scaled by 0.1, is clamped from below at this; as released


@register("rfa", RFAConfig)
class RFAAttention(FeatureAttention):
    """o_i = Σ_j φ(q_i)·φ(k_j) v_j / max(Σ_j φ(q_i)·φ(k_j), floor), Eq. 5 and 6."""

    config: RFAConfig

    def __init__(self, config: RFAConfig) -> None:
        super().__init__(config)
        self.feature_count = 2 * config.features
        self.projection = RandomProjection((config.heads, config.features, config.head_dim), config.redraw_interval)
        self.sigma_HD = nn.Parameter(torch.ones(config.heads, config.head_dim))
        self.floor = config.denominator_floor

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.projection.reset_parameters(generator)
        self.sigma_HD.fill_(1.0)

    def query_features(self, q: Tensor, start: int) -> Tensor:
        x = q / torch.linalg.vector_norm(q, dim=-1, keepdim=True).clamp(min=_SHORTEST)
        w_HMD = widen(self.sigma_HD).to(x.dtype)[:, None] * widen(self.projection.omega).to(x.dtype)
        along = x @ w_HMD.mT
        return FEATURE_SCALE * torch.cat([along.sin(), along.cos()], -1)

    def feature_flops(self, length: int) -> int:
        return 4 * length * self.config.features * self.config.head_dim
