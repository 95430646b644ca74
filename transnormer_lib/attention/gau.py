"""GAU with softmax_plus, the gated attention unit of the "GAU-based model" and of its predecessor GAU-α.

    a_ij = q_i·k_j / √s,  q = R (γ_q ⊙ z), k = R (γ_k ⊙ z)       linear layers without bias
    A_i  = softmax(log_512(n) a_i)                               softmax_plus
    y    = (u ⊙ A v) W_o

Liu (2022), "Implementation and Experiments for GAU-based Model", Sections 3.2, 3.3 and 4.1; JunnYu/GAU-alpha-pytorch.
n is the number of keys that a query may see: in a causal form each row has its own. The logarithm makes the entropy of
a row nearly independent of n. The paper writes √d_h instead of √s, and offsets b_Q, b_K that the release leaves out.

The other normalisers are the squared ReLUs of Tables 1 and 2:

    relu2-n2      relu(a / n)²                   Hua et al. (2022), with ``scale=False``
    relu2-n       relu(a)² / n                   the release's squared_relu; with a = q·k / √s this is Table 1's n·s
    relu2-ns      relu(a)² / (n s)               n·s as Table 2 prints it
    relu2-s2      relu(a / s)²                   s²; Table 1: does not converge
    relu2-scaled  relu(a)² / (c_i n s)           c_i = Σ_j relu(a_ij)²: a row sums to 1 / (n s), not to 1
    relu2-rows    relu(a)² / c_i                 a row sums to 1: what normalising a row means elsewhere
    mean          1 / n                          no scores: the gate without attention, for comparison

Table 1's factors are those of relu(q·k)²: ``scale=False``. Table 2 has √d_h inside: ``scale=True``.

Three options are interventions, none of them published: ``gate=False`` leaves out u, ``norm_after`` puts TransNormer's
RMSNorm over A v in front of the gate, in place of a normaliser of the rows, and the normaliser ``mean``.

Shapes: B batch, N length, D width, e width of u and v, s width of z.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.gated import CachedBlock, GatedConfig, Images
from transnormer_lib.attention.norms import rms_norm
from transnormer_lib.attention.recurrent import State, append
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax

Normaliser = Literal[
    "softmax_plus", "softmax", "relu2-n2", "relu2-n", "relu2-ns", "relu2-s2", "relu2-scaled", "relu2-rows", "mean"
]


@dataclass(frozen=True)
class GAUConfig(GatedConfig):
    normaliser: Normaliser = "softmax_plus"  # from scores to the matrix A
    scale: bool = True  # divide the scores by √s
    min_keys: int = 1  # softmax_plus takes n to be at least this; one release: 16
    offset: bool = False  # β beside γ, as the paper writes; the release has none
    dropout: float = 0.1  # of A, in training
    gate: bool = True  # u ⊙ A v; False: A v
    norm_after: bool = False  # RMSNorm of A v over its e features, as NormAttention has it


@register("gau", GAUConfig)
class GAU(CachedBlock):
    """GAU. The fast form folds all factors into the queries; the recurrent state is a growing cache of keys and values.

    Memory is quadratic with every normaliser: no fused softmax attention takes values that are wider than the keys.
    """

    config: GAUConfig

    def __init__(self, config: GAUConfig) -> None:
        super().__init__(config, bias=False, offset=config.offset, dropout=config.dropout, gated=config.gate)
        self.reset_parameters()

    def finish(self, u: Tensor | None, o_BNE: Tensor) -> Tensor:
        return super().finish(u, rms_norm(o_BNE) if self.config.norm_after else o_BNE)

    def attention_matrix(self, images: Images, allowed: Tensor) -> Tensor:
        q, k = images
        s, normaliser = self.config.s, self.config.normaliser
        a = q @ k.mT / (math.sqrt(s) if self.config.scale else 1.0)
        n = allowed.sum(-1, keepdim=True).clamp(min=1).to(a.dtype)
        if normaliser == "softmax":
            return masked_softmax(a, allowed)
        if normaliser == "softmax_plus":
            return masked_softmax(n.clamp(min=self.config.min_keys).log() / math.log(512) * a, allowed)
        a = a.masked_fill(~allowed, 0.0)
        if normaliser == "relu2-n2":
            return (a / n).relu().square()
        if normaliser == "relu2-s2":
            return (a / s).relu().square()
        if normaliser == "relu2-n":
            return a.relu().square() / n
        if normaliser == "relu2-ns":
            return a.relu().square() / (n * s)
        if normaliser == "mean":
            return allowed.to(a.dtype) / n
        c = a.relu().square().sum(-1, keepdim=True).clamp(min=torch.finfo(a.dtype).tiny)  # zero if its row is
        rows = a.relu().square() / c
        return rows if normaliser == "relu2-rows" else rows / (n * s)

    def mix(self, images: Images, v_BNE: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = images
        causal = self.config.causal
        real_BN = self.real(v_BNE, key_padding_mask)
        n_B_1 = (real_BN.cumsum(1) if causal else real_BN.sum(1, keepdim=True)).clamp(min=1.0)[..., None]
        if self.config.normaliser == "mean":
            if self.training and self.config.dropout:  # which leaves out entries of A
                every = self.allowed(v_BNE.shape[1], key_padding_mask, v_BNE.device)
                return self.dropout(every / n_B_1) @ v_BNE
            if causal:
                return v_BNE.cumsum(1) / n_B_1
            return (v_BNE.sum(1, keepdim=True) / n_B_1).expand_as(v_BNE)
        q = q * self._factor(n_B_1)
        if self.config.normaliser.startswith("softmax"):
            p = self.config.dropout if self.training else 0.0
            allowed = None if key_padding_mask is None else self.allowed(q.shape[1], key_padding_mask, q.device)
            is_causal = causal and allowed is None
            return F.scaled_dot_product_attention(q, k, v_BNE, allowed, dropout_p=p, is_causal=is_causal, scale=1.0)
        if key_padding_mask is not None:
            k = k.masked_fill(key_padding_mask[..., None], 0.0)  # relu(0) = 0 leaves it out of c_i as well
        matrix = (q @ k.mT).relu().square()
        if causal:
            matrix = matrix.tril()
        return self._over_rows(self.dropout(matrix) @ v_BNE, matrix, n_B_1)

    def _factor(self, n: Tensor) -> Tensor | float:
        """f of relu(f q·k)² or of softmax(f q·k), for rows with n keys."""
        s, normaliser = self.config.s, self.config.normaliser
        f = s**-0.5 if self.config.scale else 1.0
        if normaliser == "softmax_plus":
            return f * n.clamp(min=self.config.min_keys).log() / math.log(512)
        if normaliser == "relu2-n2":
            return f / n
        if normaliser == "relu2-s2":
            return f / s
        if normaliser == "relu2-n":
            return f * n.rsqrt()
        if normaliser == "relu2-ns":
            return f * (n * s).rsqrt()
        return f

    def _over_rows(self, o: Tensor, matrix: Tensor, n: Tensor) -> Tensor:
        """o divided by what the factor leaves of the divisor: c_i, and for relu2-scaled n s."""
        if self.config.normaliser not in ("relu2-scaled", "relu2-rows"):
            return o
        c = matrix.sum(-1, keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)
        return o / c if self.config.normaliser == "relu2-rows" else o / (c * n * self.config.s)

    def mix_one(self, images: Images, v_B1E: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        after, keys, values = append(state, images[1], v_B1E, position)
        n = torch.tensor(position + 1.0, dtype=keys.dtype, device=keys.device)
        if self.config.normaliser == "mean":
            return self.dropout(values.mean(1, keepdim=True)), after
        scores = (images[0] * self._factor(n)) @ keys.mT
        if self.config.normaliser.startswith("softmax"):
            return self.dropout(scores.softmax(-1)) @ values, after
        matrix = scores.relu().square()
        return self._over_rows(self.dropout(matrix) @ values, matrix, n), after
