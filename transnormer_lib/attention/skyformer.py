"""Kernelized attention, a Gaussian kernel in place of the softmax, and Skyformer, its Nyström approximation.

"Skyformer: Remodel Self-Attention with Gaussian Kernel and Nyström Method" (Chen et al., 2021, arXiv:2111.00035):

    kernelized    o = C V             c_ij = κ(q_i, k_j) = exp(−‖q_i − k_j‖² / (2 sqrt(D))), not normalised
    skyformer     C is the block (queries, keys) of B̄ = κ([Q; K], [Q; K]), which is positive semidefinite:
                  B̄ ≈ B̄ S (Sᵀ B̄ S)⁺ Sᵀ B̄        S picks rows of [Q; K] as landmarks

The pseudo-inverse is that of M = Sᵀ B̄ S + γ I. The paper scales it to D_M^{-1/2} M D_M^{-1/2} with D_M the row sums, so
that its singular values are in (0, 1] (Lemma 3), and then iterates.

Landmarks are half queries, half keys, at the same places for all heads. Training redraws the places in every pass, each
token at most once; evaluation spreads them evenly over a sequence's real tokens. The release
(pkuzengqi/Skyformer@1a677cb) also draws in evaluation, with repetition, from as many first tokens as are real, and
starts the iteration from the largest norm of the whole batch (``norms_of="batch"``).

Shapes: B batch, H heads, N length, D head_dim, M landmarks among the queries and as many among the keys.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from transnormer_lib.attention import landmarks, windows
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.landmarks import NormsOf
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.registry import register


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    """exp(−‖x_i − y_j‖² / (2 sqrt(D))) for x [..., I, D] and y [..., J, D]: [..., I, J], as one matrix product."""
    x, y = x * x.shape[-1] ** -0.25, y * y.shape[-1] ** -0.25
    half_x, half_y = 0.5 * x.square().sum(-1)[..., :, None], 0.5 * y.square().sum(-1)[..., None, :]
    # Rounding can make the squared distance of equal large vectors negative.
    return (x @ y.mT - half_x - half_y).clamp(max=0.0).exp()


def gaussian_of_differences(x: Tensor, y: Tensor) -> Tensor:
    """The same from the differences x_i − y_j: the specification."""
    return torch.exp(-(x[..., :, None, :] - y[..., None, :, :]).square().sum(-1) / (2 * x.shape[-1] ** 0.5))


@dataclass(frozen=True)
class KernelizedConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "kernelized attention is published without a causal form"

    dropout: float = 0.0  # of the kernel matrix, in training; Long Range Arena harness: 0.1


@register("kernelized", KernelizedConfig)
class Kernelized(Attention):
    """o_i = Σ_j exp(−‖q_i − k_j‖² / (2 sqrt(D))) v_j: a sum, not an average, whose size grows with the length."""

    config: KernelizedConfig

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        matrix = gaussian_of_differences(q, k)
        return matrix if allowed is None else matrix.masked_fill(~allowed, 0.0)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(widen(q), widen(k))
        return self.dropout(gaussian_kernel(q, k)) @ widen(v)  # the values of padding are zero


@dataclass(frozen=True)
class SkyformerConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "Skyformer's landmarks come from the whole sequence"

    landmarks: int = 128  # 2 M, half of them queries, half keys; Long Range Arena harness: 128
    iterations: int = 6  # of the pseudo-inverse; released: 6
    ridge: float = 0.1  # γ, added to the diagonal before the inverse; released: 0.1
    norms_of: NormsOf = "matrix"  # what scales the iteration's first guess; released: batch

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.landmarks % 2:
            raise ValueError(f"landmarks={self.landmarks}: must be even, half of them queries and half keys")


@register("skyformer", SkyformerConfig)
class Skyformer(Attention):
    """o = κ(Q, X) (κ(X, X) + γ I)⁻¹ κ(X, K) V with X the landmarks. It is ``kernelized`` if X is [Q; K] and γ → 0.

    If queries and keys are far from the landmarks, the kernel underflows and the output is zero.
    """

    config: SkyformerConfig

    def places(self, key_padding_mask: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
        """(the places [B, 2, M] of the landmarks among queries and keys, which of them are landmarks [B, M]).

        M = min(landmarks / 2, N); a sequence of L real tokens has min(landmarks / 2, L).
        """
        b, n, device = like.shape[0], like.shape[2], like.device
        m = min(self.config.landmarks // 2, n)
        count = windows.counts(n, key_padding_mask, device)[:, None]
        at = torch.arange(m, device=device)
        is_landmark = (at < count).expand(b, -1)
        if self.training:
            lot_B2N = torch.rand(b, 2, n, device=device)
            if key_padding_mask is not None:
                lot_B2N = lot_B2N.masked_fill(key_padding_mask[:, None, :], -1.0)
            return lot_B2N.topk(m, dim=-1).indices, is_landmark
        ranks = at * count // count.clamp(min=1, max=m)
        places = ranks.clamp(max=n - 1).expand(b, -1)
        if key_padding_mask is not None:
            # Tokens in the order of their ranks: real ones first.
            places = key_padding_mask.long().argsort(dim=1, stable=True).gather(1, places)
        return places[:, None].expand(-1, 2, -1), is_landmark

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        real_BN = landmarks.real_tokens(allowed, q)
        places_B2M, is_landmark_BM = self.places(None if allowed is None else ~real_BN, q)
        rank_BN = real_BN.long().cumsum(1) - 1  # from a place in the sequence to its index among the real tokens

        def scaled(q: Tensor, k: Tensor, places: Tensor, is_landmark: Tensor, rank: Tensor) -> tuple[Tensor, ...]:
            in_q, in_k = rank[places[:, is_landmark]]
            x = torch.cat([q[:, in_q], k[:, in_k]], dim=1)
            m = gaussian_of_differences(x, x) + self.config.ridge * torch.eye(
                x.shape[1], dtype=x.dtype, device=x.device
            )
            root = m.sum(-1, keepdim=True) ** -0.5
            return x, root * m * root.mT, root

        bound: Tensor | None = None
        if self.config.norms_of == "batch":
            rows = zip(q, k, real_BN, places_B2M, is_landmark_BM, rank_BN, strict=True)
            each = [scaled(a[:, real], b[:, real], *its)[1] for a, b, real, *its in rows if bool(real.any())]
            bound = torch.stack([landmarks.column_norm(m).amax() for m in each]).amax() if each else None

        def approximation(q: Tensor, k: Tensor, *chosen: Tensor) -> Tensor:
            x, m, root = scaled(q, k, *chosen)
            inverse = landmarks.schulz_inverse(
                m, landmarks.column_norm(m) if bound is None else bound, self.config.iterations
            )
            return gaussian_of_differences(q, x) @ (root * inverse * root.mT) @ gaussian_of_differences(x, k)

        return landmarks.sequence_by_sequence(approximation, q, k, real_BN, places_B2M, is_landmark_BM, rank_BN)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(widen(q), widen(k))
        places_B2M, is_landmark_BM = self.places(key_padding_mask, q)
        at_q, at_k = places_B2M[:, None, :, :, None].unbind(2)  # [B, 1, M, 1]
        x = torch.cat([q.take_along_dim(at_q, 2), k.take_along_dim(at_k, 2)], dim=2)
        query_kernel, key_kernel, m = gaussian_kernel(q, x), gaussian_kernel(x, k), gaussian_kernel(x, x)
        m = m + self.config.ridge * torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
        if key_padding_mask is not None:
            columns = torch.cat([is_landmark_BM, is_landmark_BM], dim=1)[:, None, None, :]
            query_kernel, key_kernel = query_kernel.masked_fill(~columns, 0.0), key_kernel.masked_fill(~columns.mT, 0.0)
            m = m.masked_fill(~(columns & columns.mT), 0.0)
        # A landmark's row sums to at least γ; the clamp is for rows of zeros, which are no landmarks.
        root = m.sum(-1, keepdim=True).clamp(min=0.5 * self.config.ridge).rsqrt()
        m = root * m * root.mT
        bound = landmarks.column_norm(m)
        if self.config.norms_of == "batch":
            bound = bound.amax()
        inverse = landmarks.schulz_inverse(m, bound, self.config.iterations)
        return query_kernel @ (root * (inverse @ (root * (key_kernel @ widen(v)))))

    def head_flops(self, length: int) -> int:
        n, d = length, self.config.head_dim
        m = 2 * min(self.config.landmarks // 2, length)
        return 8 * n * m * d + 4 * m * m * d + landmarks.schulz_flops(m, self.config.iterations)
