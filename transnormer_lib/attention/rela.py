"""ReLA: attention with a ReLU and a norm of the output in place of the softmax.

Zhang, Titov & Sennrich, 2021, "Sparse Attention with Linear Units" (arXiv:2104.07012), Section 3:

    z_i = Σ_j ReLU(q_i·k_j / sqrt(D)) v_j         o = σ(w ⊙ z) ⊙ RMSNorm(z)   (ReLA-g)   or   RMSNorm(z)   (ReLA-i)

z are the concatenated heads, and RMSNorm has a gain g. ReLA-g learns the gate's w and starts with g = 1; ReLA-i has no
gate and starts with a g drawn as w is, close to zero. The authors' code (bzhangGo/zero@22a9201, modules/rela.py) is
ReLA-g, with dropout of the weights. The released TransNormer T1 has neither gate nor gain: that is ``diag`` with
``scores="rela"``.

Three more variants, with ``power=2`` the squared ReLU of GAU among several heads, compare what may follow the scores:
``rows``, each row divided by its sum, ``rms``, NormAttention's RMSNorm of z without a gain, and ``none``, neither.

Shapes: B batch, H heads, N length, D head_dim, C = chunk_size queries at a time.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from transnormer_lib.attention.interface import AttentionConfig
from transnormer_lib.attention.norm import magnitude_weights
from transnormer_lib.attention.norms import RMSNorm, over_embedding, rms_norm, widen
from transnormer_lib.attention.query_blocks import by_query_blocks
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import CachedAttention


@dataclass(frozen=True)
class ReLAConfig(AttentionConfig):
    variant: Literal["g", "i", "rows", "rms", "none"] = "g"  # ReLA-g has the gate, ReLA-i the small first gain
    power: Literal[1, 2] = 1  # of the rectified scores
    eps: float = 1e-8  # of RMSNorm, inside the root, as in the authors' code
    dropout: float = 0.0  # of the attention matrix, in training


class GatedRMSNorm(nn.Module):
    """σ(w ⊙ z) ⊙ RMSNorm(z) over a last dimension of ``size``, or without the gate.

    The gate's w, or without a gate the gain, starts from Xavier's uniform distribution for a vector,
    U(−sqrt(3 / size), sqrt(3 / size)); a gain beside a gate starts at 1.
    """

    def __init__(self, size: int, eps: float, gated: bool) -> None:
        super().__init__()
        self.norm = RMSNorm(size, eps, affine=True)
        self.gate = nn.Parameter(torch.empty(size)) if gated else None

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None) -> None:
        gain, bound = self.norm.gain, (3 / self.norm.size) ** 0.5
        if gain is not None:
            nn.init.ones_(gain)
        small = gain if self.gate is None else self.gate
        if small is not None:
            nn.init.uniform_(small, -bound, bound, generator=generator)

    def forward(self, z: Tensor) -> Tensor:
        y = self.norm(z)
        return y if self.gate is None else y * torch.sigmoid(self.gate * z)


@register("rela", ReLAConfig)
class ReLAttention(CachedAttention):
    """ReLU(Q Kᵀ / sqrt(D)) V and its norm. Its weights are ``magnitude_weights`` of the rectified scores.

    Time is quadratic in N, memory is not: scores exist for C queries at a time. The recurrent state is a cache of all
    keys and values, as softmax attention's.
    """

    config: ReLAConfig

    def __init__(self, config: ReLAConfig) -> None:
        super().__init__(config)
        self.norm: GatedRMSNorm | None = None
        if config.variant in ("g", "i"):
            self.norm = GatedRMSNorm(config.heads * config.head_dim, config.eps, config.variant == "g")
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if self.norm is not None:
            self.norm.reset_parameters(generator)

    def _rectified(self, s: Tensor) -> Tensor:
        return s.relu() if self.config.power == 1 else s.relu().square()

    def _mixed(self, matrix: Tensor, v: Tensor) -> Tensor:
        """The rectified scores, divided by their rows' sums if asked for, times v; a row of zeros gives zeros."""
        o = self.dropout(matrix) @ v
        if self.config.variant != "rows":
            return o
        return o / matrix.sum(-1, keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        s = q @ k.mT * self.config.head_dim**-0.5
        matrix = self._rectified(s if allowed is None else s.masked_fill(~allowed, 0.0))
        if self.config.variant != "rows":
            return matrix
        return matrix / matrix.sum(-1, keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)

    def finish(self, t: Tensor) -> Tensor:
        if self.norm is not None:
            return over_embedding(self.norm, t)
        return over_embedding(lambda z: rms_norm(z, self.config.eps), t) if self.config.variant == "rms" else t

    def shown_weights(self, matrix: Tensor) -> Tensor:
        return magnitude_weights(matrix)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.inputs(q, k, v)
        q = q * self.config.head_dim**-0.5  # no mask: padding's values are zero
        if key_padding_mask is not None and self.config.variant == "rows":
            k = k.masked_fill(key_padding_mask[:, None, :, None], 0.0)  # relu(0) = 0 leaves it out of the sums

        def some(queries: slice) -> Tensor:
            seen = slice(queries.stop if self.config.causal else None)
            s = q[:, :, queries] @ k[:, :, seen].mT
            if self.config.causal:
                s = s.tril(queries.start)
            return self._mixed(self._rectified(s), v[:, :, seen])

        random = self.training and self.config.dropout > 0
        return self.finish(by_query_blocks(some, q, self.config.chunk_size, random))

    def over_cache(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        s = widen(q) * self.config.head_dim**-0.5 @ widen(keys).mT
        return self.finish(self._mixed(self._rectified(s), widen(values)))

    def head_flops(self, length: int) -> int:
        block = self.config.chunk_size
        if not self.config.causal or length <= block:
            return 4 * length * length * self.config.head_dim
        pairs = sum((min(at + block, length) - at) * min(at + block, length) for at in range(0, length, block))
        return 4 * pairs * self.config.head_dim
