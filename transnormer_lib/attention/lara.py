"""LARA, linear randomized attention: softmax attention by importance sampling from a few shared proposals.

"Linear Complexity Randomized Self-attention Mechanism" (Zheng, Wang and Kong, 2022, arXiv:2204.04667), Section 4. With
ξ(x, ω) = exp(x·ω / sqrt(D) − ‖x‖² / (2 sqrt(D))), softmax attention of query n is the mean of

    f(ω) = Σ_m ξ(k_m, ω) v_m / Σ_m ξ(k_m, ω)      under      p_n(ω) ∝ N(ω; 0, sqrt(D) I) ξ(q_n, ω) Σ_m ξ(k_m, ω)

and LARA estimates it with one sample ω_c of each of C proposals N(μ_c, sqrt(D) I), μ_c = q̃_c + k̃_c:

    o_n = Σ_c w_nc f(ω_c) / Σ_c w_nc                  w_nc = α_nc p_n(ω_c) / N(ω_c; μ_c)
    α_nc = N(ω_c; μ_c) / Σ_c' N(ω_c; μ_c') + a (t_nc − 1/C Σ_c' t_nc'),      t_nc = softmax over n of q_n·q̃_c / sqrt(D)

The first term of α is the balance heuristic of multiple importance sampling, the second makes it specific to the query.
Landmarks q̃_c and k̃_c are segment means of the queries and keys after a linear map and a LayerNorm
(``landmark_map``). As in the release (HKUNLP/efficient-attention@531ff51) evaluation takes ω_c = μ_c, and α is clamped
from below.

Unlike the release, segments and t cover real tokens only, and samples have the variance sqrt(D) of the densities above,
where the release adds noise of variance 1 (``noise="unit"``).

Shapes: B batch, H heads, N length, D head_dim, C landmarks, L real tokens of a sequence.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.landmarks import mean_of_segments, real_tokens, segment_means, sequence_by_sequence
from transnormer_lib.attention.norms import LayerNorm, widen
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax

SMALLEST_ALPHA = 1e-8  # the clamp of α, as released


@dataclass(frozen=True)
class LaraConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "LARA's proposals are means over the whole sequence, and it has no causal form"

    landmarks: int = 49  # C; released: 49 on images, 8 to 32 in translation
    weighting: Literal["optimal", "balance"] = "optimal"  # balance: α without its query-specific term
    coefficient: float = field(default=1.0, metadata={"least": 0})  # a; released: 1, on images 2
    landmark_map: bool = True  # linear map and LayerNorm before the means, as released for text; False: plain means
    noise: Literal["proposal", "unit"] = "proposal"  # of ω in training: variance sqrt(D), or 1 as released


class LandmarkMap(nn.Module):
    """LayerNorm(W x + b) over the last dimension, the same for all heads; W starts as N(0, 0.02²), b at zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(size, size)), nn.Parameter(torch.empty(size))
        self.norm = LayerNorm(size, affine=True)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(self.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.bias)
        self.norm.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.linear(x, widen(self.weight), widen(self.bias)))


@register("lara", LaraConfig)
class Lara(Attention):
    """The estimate above. The rows of its matrix, Σ_c w_nc ξ(k_m, ω_c) / …, sum to one."""

    config: LaraConfig

    def __init__(self, config: LaraConfig) -> None:
        super().__init__(config)
        mapped = config.landmark_map
        self.map_q: nn.Module = LandmarkMap(config.head_dim) if mapped else nn.Identity()
        self.map_k: nn.Module = LandmarkMap(config.head_dim) if mapped else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for landmark_map in (self.map_q, self.map_k):
            if isinstance(landmark_map, LandmarkMap):
                landmark_map.reset_parameters(generator)

    def noise_like(self, mu_BHCD: Tensor) -> Tensor:
        """The noise added to the proposals' means, zero in evaluation mode."""
        if not self.training:
            return torch.zeros_like(mu_BHCD)
        std = self.config.head_dim**0.25 if self.config.noise == "proposal" else 1.0
        return std * torch.randn_like(mu_BHCD)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        b, h, n, d = q.shape
        noise_BHCD = self.noise_like(q.new_empty(b, h, min(self.config.landmarks, n), d))

        def xi(x: Tensor, omega: Tensor) -> Tensor:  # log ξ, [H, C, ·]
            return (omega @ x.mT - 0.5 * x.square().sum(-1)[:, None, :]) / d**0.5

        def estimate(q: Tensor, k: Tensor, noise: Tensor) -> Tensor:
            q_c = mean_of_segments(self.config.landmarks, self.map_q(q))
            mu = q_c + mean_of_segments(self.config.landmarks, self.map_k(k))
            omega = mu + noise[:, : mu.shape[1]]
            log_density = xi(mu, omega)  # of ω_c under proposal c', up to a shared factor: [H, C, C']
            own = log_density.diagonal(dim1=-2, dim2=-1)[..., None]
            log_alpha = own - log_density.logsumexp(-1, keepdim=True)
            if self.config.weighting == "optimal":
                t = torch.softmax(q_c @ q.mT / d**0.5, dim=-1)
                alpha = log_alpha.exp() + self.config.coefficient * (t - t.mean(-2, keepdim=True))
                log_alpha = alpha.clamp(min=SMALLEST_ALPHA).log()
            log_p = xi(q, omega) + xi(k, omega).logsumexp(-1, keepdim=True)
            log_w = log_alpha + log_p - own
            return torch.softmax(log_w, dim=-2).mT @ torch.softmax(xi(k, omega), dim=-1)

        return sequence_by_sequence(estimate, q, k, real_tokens(allowed, q), noise_BHCD)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(widen(q), widen(k))
        root = self.config.head_dim**-0.5
        means, columns, keys = segment_means(self.config.landmarks, key_padding_mask, q)
        q_BHCD, k_BHCD = means @ self.map_q(q), means @ self.map_k(k)
        mu = q_BHCD + k_BHCD
        omega = mu + self.noise_like(mu)
        # Sums leave out padding and missing landmarks; without a mask there are none.
        # The logarithms of ξ without ‖q_n‖², which is the same for all c and cancels.
        log_q_BHCN, log_k_BHCN, log_mu_BHCC = (root * (omega @ x.mT) for x in (q, k, mu))
        log_k_BHCN, log_mu_BHCC = (
            log - 0.5 * root * x.square().sum(-1)[:, :, None, :] for log, x in ((log_k_BHCN, k), (log_mu_BHCC, mu))
        )
        own = log_mu_BHCC.diagonal(dim1=-2, dim2=-1)[..., None]
        all_proposals = _logsumexp(log_mu_BHCC, columns)
        log_alpha = own - all_proposals
        if columns is not None:  # a missing landmark has no bound here, and its exponential would be infinite
            log_alpha = log_alpha.masked_fill(~columns.mT, 0.0)
        if self.config.weighting == "optimal":
            t = masked_softmax(root * (q_BHCD @ q.mT), keys)  # padded queries are padded keys
            count = t.shape[-2] if columns is None else columns.sum(-1, keepdim=True).clamp(min=1)
            alpha = log_alpha.exp() + self.config.coefficient * (t - t.sum(-2, keepdim=True) / count)
            log_alpha = alpha.clamp(min=SMALLEST_ALPHA).log()
        log_w = log_alpha + log_q_BHCN + _logsumexp(log_k_BHCN, keys) - own
        values_BHCD = masked_softmax(log_k_BHCN, keys) @ widen(v)
        return masked_softmax(log_w.mT, columns) @ values_BHCD

    def head_flops(self, length: int) -> int:
        n, d, c = length, self.config.head_dim, min(self.config.landmarks, length)
        mapped = 4 * n * d * d if self.config.landmark_map else 0
        return mapped + (12 + 2 * (self.config.weighting == "optimal")) * n * c * d + 2 * c * c * d


def _logsumexp(x: Tensor, allowed: Tensor | None) -> Tensor:
    """Over the allowed entries of the last dimension; without any the result is very small but finite."""
    return (x if allowed is None else x.masked_fill(~allowed, torch.finfo(x.dtype).min)).logsumexp(-1, keepdim=True)
