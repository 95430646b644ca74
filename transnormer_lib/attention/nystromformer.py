"""Nyströmformer: softmax attention reconstructed from its rows and columns at a few landmarks.

Eq. 13 and 14 and Section 3 of "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention" (Xiong et
al., 2021, arXiv:2102.03902), with Q̃ and K̃ the means of segments of Q and K:

    Ŝ = F̃ A⁺ B̃       F̃ = softmax(Q K̃^T / sqrt(D))    A = softmax(Q̃ K̃^T / sqrt(D))    B̃ = softmax(Q̃ K^T / sqrt(D))
    o = Ŝ V + DConv(V)

with a pseudo-inverse by six iterations and, as the skip connection of its Figure 2, a depthwise convolution of the
values along the length with one kernel per head.

The released code (mlpen/Nystromformer, transformers) differs: it segments padding too and scales the iteration's first
guess by the largest norms of the whole batch (``norms_of="batch"``; here each matrix has its own). It uses softmax
attention for a sequence of as many tokens as landmarks, which the formula approaches by itself.

Shapes: B batch, H heads, N length, D head_dim, M landmarks, W width of the convolution, L real tokens of a sequence.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention import landmarks
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.landmarks import NormsOf
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax


@dataclass(frozen=True)
class NystromformerConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "Nyströmformer's landmarks are means over the whole sequence"

    landmarks: int = 128  # M; Long Range Arena harness: 128, the paper's language model: 64
    iterations: int = 6  # of the pseudo-inverse; the paper: 6
    conv_kernel: int | None = 33  # W, odd; None: no convolution, as in the Long Range Arena harness
    norms_of: NormsOf = "matrix"  # what scales the iteration's first guess; released: batch

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conv_kernel is not None and self.conv_kernel % 2 == 0:
            raise ValueError(f"conv_kernel={self.conv_kernel}: must be odd, so that it has a middle")


@register("nystromformer", NystromformerConfig)
class Nystromformer(Attention):
    """o = F̃ A⁺ B̃ V + DConv(V). Its matrix holds both terms; rows sum to about one without the convolution.

    The convolution reads neighbouring places, with zeros on padding. It starts uniform in ±1/sqrt(W), as torch's own.
    """

    config: NystromformerConfig

    def __init__(self, config: NystromformerConfig) -> None:
        super().__init__(config)
        width = config.conv_kernel
        self.conv_HW = None if width is None else nn.Parameter(torch.empty(config.heads, width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if self.conv_HW is not None:
            bound = self.conv_HW.shape[1] ** -0.5
            nn.init.uniform_(self.conv_HW, -bound, bound, generator=generator)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        real_BN, m, root = landmarks.real_tokens(allowed, q), self.config.landmarks, self.config.head_dim**0.5

        def softmax(x: Tensor, y: Tensor) -> Tensor:
            return torch.softmax(x @ y.mT / root, dim=-1)

        def between_landmarks(q: Tensor, k: Tensor) -> Tensor:
            return softmax(landmarks.mean_of_segments(m, q), landmarks.mean_of_segments(m, k))

        bound: Tensor | None = None
        if self.config.norms_of == "batch":
            rows = zip(q, k, real_BN, strict=True)
            each = [between_landmarks(a[:, real], b[:, real]) for a, b, real in rows if bool(real.any())]
            if each:
                bound = torch.stack([landmarks.column_norm(a).amax() for a in each]).amax()  # their ‖·‖∞ are all 1

        def approximation(q: Tensor, k: Tensor) -> Tensor:
            q_m, k_m, a = landmarks.mean_of_segments(m, q), landmarks.mean_of_segments(m, k), between_landmarks(q, k)
            a_inverse = landmarks.schulz_inverse(
                a, landmarks.column_norm(a) * landmarks.row_norm(a) if bound is None else bound, self.config.iterations
            )
            return softmax(q, k_m) @ a_inverse @ softmax(q_m, k)

        matrix = landmarks.sequence_by_sequence(approximation, q, k, real_BN)
        if self.conv_HW is not None:
            place = torch.arange(q.shape[2], device=q.device)
            tap = place[None, :] - place[:, None] + self.conv_HW.shape[1] // 2  # the kernel's entry between i and j
            inside = (tap >= 0) & (tap < self.conv_HW.shape[1])
            taps_HNN = widen(self.conv_HW)[:, tap.clamp(0, self.conv_HW.shape[1] - 1)]
            matrix = matrix + (taps_HNN * inside).masked_fill(~real_BN[:, None, None, :], 0.0)
        return matrix

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.inputs(q, k, v)
        q, k = q * self.config.head_dim**-0.25, k * self.config.head_dim**-0.25
        means, columns, keys = landmarks.segment_means(self.config.landmarks, key_padding_mask, q)
        q_BHMD, k_BHMD = means @ q, means @ k
        a = masked_softmax(q_BHMD @ k_BHMD.mT, None if columns is None else columns & columns.mT)
        bound = landmarks.column_norm(a) * landmarks.row_norm(a)
        if self.config.norms_of == "batch":
            bound = bound.amax()
        a_inverse = landmarks.schulz_inverse(a, bound, self.config.iterations)
        seen_BHMD = a_inverse @ (masked_softmax(q_BHMD @ k.mT, keys) @ v)
        o = masked_softmax(q @ k_BHMD.mT, columns) @ seen_BHMD
        if self.conv_HW is not None:
            h, width = self.conv_HW.shape
            o = o + F.conv2d(v, widen(self.conv_HW).view(h, 1, width, 1), padding=(width // 2, 0), groups=h)
        return o

    def head_flops(self, length: int) -> int:
        n, d, m = length, self.config.head_dim, min(self.config.landmarks, length)
        # Four products of N·M·D, two segment means, and the products between landmarks.
        products = 12 * n * m * d + 4 * m * m * d + landmarks.schulz_flops(m, self.config.iterations)
        return products + 2 * n * d * (self.config.conv_kernel or 0)
