"""Linformer: keys and values projected along the length, so that a query attends to a fixed number of mixtures.

Eq. 7 of "Linformer: Self-Attention with Linear Complexity" (Wang et al., 2020, arXiv:2006.04768):

    head = softmax(Q (E K)^T / sqrt(D)) F V        E, F learned, [P, max_length]

One E and one F serve all heads, which the paper calls headwise sharing; with ``share_kv`` they are the same matrix, its
key-value sharing. Position j of the sequence uses column j of E, padding included; a shorter sequence does not use the
last columns. E and F are kept transposed, as e_NP and f_NP.

Shapes: B batch, H heads, N length, D head_dim, P projected length.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from transnormer_lib.attention.interface import Attention, AttentionConfig, check_length
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.registry import register


@dataclass(frozen=True)
class LinformerConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "Linformer's projections mix all positions, and it has no published causal form"

    max_length: int = 512  # rows of E and F; longer sequences are refused
    projected: int = 128  # P, the paper's k; Long Range Arena harness: 128
    share_kv: bool = False  # one matrix for keys and values; harness: yes, and one per head
    dropout: float = 0.0  # of the softmax [N, P], in training


@register("linformer", LinformerConfig)
class Linformer(Attention):
    """o_i = Σ_p softmax_p(q_i·(E K)_p / sqrt(D)) (F V)_p. Its matrix is softmax(·) F: rows need not sum to one.

    E and F start as N(0, 1/P), the random projections of the paper's Theorem 2.
    """

    config: LinformerConfig

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config)
        shape = (config.max_length, config.projected)
        self.e_NP = nn.Parameter(torch.empty(shape))
        self.f_NP = None if config.share_kv else nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for weight in (self.e_NP, self.f_NP):
            if weight is not None:
                nn.init.normal_(weight, std=self.config.projected**-0.5, generator=generator)

    def projections(self, n: int) -> tuple[Tensor, Tensor]:
        """(E, F) for a sequence of n tokens, both [n, P]. Raises ValueError beyond ``max_length``."""
        check_length(n, self.config.max_length)
        e = widen(self.e_NP[:n])
        return e, e if self.f_NP is None else widen(self.f_NP[:n])

    def mixture_weights(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(softmax [B, H, N, P], F [N, P]) of Eq. 7."""
        q, k = self.rotated(q, k)
        e, f = self.projections(q.shape[2])
        return torch.softmax(q @ (e.mT @ k).mT / self.config.head_dim**0.5, dim=-1), f

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        p, f = self.mixture_weights(q, k)
        return _without(p @ f.mT, allowed)

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        # Dropout applies to the softmax, as in the chunked form, not to its product with F.
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        p, f = self.mixture_weights(widen(q), widen(k))
        return _without(self.dropout(p) @ f.mT, allowed) @ widen(v), _without(p @ f.mT, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(widen(q), widen(k))
        e, f = self.projections(q.shape[2])
        keys_BHPD, values_BHPD = e.mT @ k, f.mT @ widen(v)
        p_BHNP = ((q * self.config.head_dim**-0.5) @ keys_BHPD.mT).softmax(-1)
        return self.dropout(p_BHNP) @ values_BHPD

    def head_flops(self, length: int) -> int:
        return 8 * length * self.config.projected * self.config.head_dim


def _without(matrix: Tensor, allowed: Tensor | None) -> Tensor:
    """The matrix with zeros on padded keys, whose values are zero anyway."""
    return matrix if allowed is None else matrix.masked_fill(~allowed, 0.0)
