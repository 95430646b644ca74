"""Linear attention with the polynomial kernel of degree 2.

Katharopoulos et al., 2020, "Transformers are RNNs" (arXiv:2006.16236), Section 3.2.1: a similarity that is never
negative, and that finitely many features give exactly,

    s_ij = (q_i·k_j)² = φ(q_i)·φ(k_j)          o_i = Σ_j s_ij v_j / max(Σ_j s_ij, floor)

The paper counts D² features, all products x_a x_b. Half of them come twice, so D(D + 1)/2 are enough
(``feature_maps.degree_two``). The cost is linear in the length from the first token on, and below that of softmax
attention only for sequences longer than about D²/2 tokens.

Shapes: B batch, H heads, N length, D head_dim, M = D(D + 1)/2 features.
"""

from dataclasses import dataclass

from torch import Tensor

from transnormer_lib.attention.feature_attention import FeatureAttention
from transnormer_lib.attention.feature_maps import degree_two
from transnormer_lib.attention.interface import AttentionConfig
from transnormer_lib.attention.linear import scale_rows
from transnormer_lib.attention.registry import register


@dataclass(frozen=True)
class PolynomialConfig(AttentionConfig):
    denominator_floor: float = 1e-6  # Δ_i is clamped from below at this: it is zero for a query orthogonal to all keys


@register("polynomial", PolynomialConfig)
class PolynomialAttention(FeatureAttention):
    """The output above. The recurrent state is Σ_j φ(k_j) v_j^T [M, D] and Σ_j φ(k_j) [M]."""

    config: PolynomialConfig

    def __init__(self, config: PolynomialConfig) -> None:
        super().__init__(config)
        self.feature_count = config.head_dim * (config.head_dim + 1) // 2
        self.floor = config.denominator_floor

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        s = (q @ k.mT).square()
        return scale_rows(s if allowed is None else s.masked_fill(~allowed, 0.0), self.floor)

    def query_features(self, q: Tensor, start: int) -> Tensor:
        return degree_two(q)
