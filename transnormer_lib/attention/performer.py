"""Performer's FAVOR+: softmax attention by positive orthogonal random features.

Choromanski et al., 2021, "Rethinking Attention with Performers" (arXiv:2009.14794). With x = D^{−1/4} q or D^{−1/4} k
and ω_1 … ω_M ~ N(0, I) (Lemma 1, Eq. 5):

    φ(x)_r = exp(ω_r·x − ‖x‖²/2) / sqrt(M),      E[φ(q)·φ(k)] = exp(q·k / sqrt(D)),

and attention is D̂^{−1} φ(Q) [φ(K)^T V] (Eq. 4). The generalised kernel has φ(x)_r = relu(ω_r·x) instead (Section 2.4).
The factor 1 / sqrt(M) cancels and is left out.

**The stabiliser.** As released (google-research, performer/fast_attention), exponentials are divided by their largest
factor, and ε is added:

    φ(q_i)_r = exp(ω_r·x_i − ‖x_i‖²/2 − max_r ω_r·x_i) + ε
    φ(k_j)_r = exp(ω_r·x_j − ‖x_j‖²/2 − c) + ε,                          c = max_{j, r} ω_r·x_j.

Nothing overflows, and no denominator is below M ε². Without ε the stabilisers would cancel; with it c depends on which
keys it covers. The released code takes all of them: a causal output then depends on the future, and any output on
padding. Here c_i is the maximum over the keys that query i may see. Without ``causal`` this is the released form, and a
causal o_i is what the released form gives the last token of the sequence that ends at i. It stays linear, because

    Σ_j φ(q_i)·φ(k_j) v_j = Σ_r φ(q_i)_r Σ_j exp(ω_r·x_j − ‖x_j‖²/2 − c_i) v_j + ε Σ_r φ(q_i)_r Σ_j v_j        (j ≤ i)

is a product whose state is divided by e^{c_i − c_{i−1}} from token to token, and a running sum of values.
``stabiliser="all-keys"`` is the released form of a causal layer.

Shapes: B batch, H heads, N length, D head_dim, M features, E = D + 1 (the denominator), C tokens per chunk, G chunks.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.feature_attention import FeatureAttention
from transnormer_lib.attention.interface import AttentionConfig
from transnormer_lib.attention.linear import scale_rows
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.random_features import RandomProjection, RowNorms
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register


@dataclass(frozen=True)
class PerformerConfig(AttentionConfig):
    """Performer. ``stabiliser="all-keys"`` with ``causal`` lets later keys change earlier outputs through ε."""

    features: int = 128  # M: Skyformer's in the Long Range Arena; TransNormer's baseline 64, the paper's rule D log D
    kernel: Literal["softmax", "relu"] = "softmax"  # what φ(q)·φ(k) estimates
    orthogonal: bool = True  # rows of ω orthogonal in blocks of D, else independent
    row_norms: RowNorms = "chi"  # of orthogonal rows: as of Gaussian vectors, or all sqrt(D), which is biased
    redraw_interval: int | None = 1000  # training steps per draw of ω; None: never redrawn
    eps: float | None = None  # ε added to every feature; None: as released, 1e-4 for softmax and 1e-3 for relu
    stabiliser: Literal["seen", "all-keys"] = "seen"  # the keys whose maximum c is, of the softmax kernel


def projected(x: Tensor, omega_MD: Tensor) -> tuple[Tensor, Tensor]:
    """(ω_r·x [..., M], ‖x‖²/2 [..., 1]) of x = D^{−1/4} times the argument."""
    x = x * x.shape[-1] ** -0.25
    return x @ omega_MD.to(x.dtype).mT, x.square().sum(-1, keepdim=True) / 2


@register("performer", PerformerConfig)
class PerformerAttention(FeatureAttention):
    """o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), Eq. 4 and 5, ω shared by the heads.

    The recurrent state of the softmax kernel is that of ``FeatureAttention`` without ε and divided by e^c, with c
    ("top") and Σ_j v_j. With ``stabiliser="all-keys"`` there is no recurrence.
    """

    config: PerformerConfig

    def __init__(self, config: PerformerConfig) -> None:
        super().__init__(config)
        shape = (config.features, config.head_dim)
        self.feature_count = config.features
        self.projection = RandomProjection(shape, config.redraw_interval, config.orthogonal, config.row_norms)
        self.softmax_kernel = config.kernel == "softmax"
        self.eps = config.eps if config.eps is not None else (1e-4 if self.softmax_kernel else 1e-3)
        self.floor = torch.finfo(torch.float32).tiny  # a denominator is at least M ε², however small ε is

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.projection.reset_parameters(generator)

    def query_features(self, q: Tensor, start: int) -> Tensor:
        along, half_square = projected(q, widen(self.projection.omega))
        if not self.softmax_kernel:
            return along.relu() + self.eps
        return (along - half_square - along.amax(-1, keepdim=True)).exp() + self.eps

    def key_features(self, k: Tensor, start: int) -> Tensor:
        """φ(k) of the relu kernel; the softmax kernel's depends on other keys as well."""
        return projected(k, widen(self.projection.omega))[0].relu() + self.eps

    def scaled_keys(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """(exp(ω_r·x − ‖x‖²/2 − s) [B, H, N, M], s = max_r ω_r·x [B, H, N, 1]) of the softmax kernel."""
        along, half_square = projected(k, widen(self.projection.omega))
        s = along.amax(-1, keepdim=True)
        return (along - half_square - s).exp(), s

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        if not self.softmax_kernel:
            return super().attention_matrix(q, k, allowed)
        q, k = self.rotated(q, k)
        if allowed is None:
            allowed = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=k.device)
        phi_q, (keys, s) = self.query_features(q, 0), self.scaled_keys(k)
        visible = allowed if self.config.stabiliser == "seen" else allowed.any(-2, keepdim=True)
        c = s.mT.masked_fill(~visible, torch.finfo(s.dtype).min).amax(-1, keepdim=True)
        # Filled before the exponential: s_j − c_i has no upper bound for a key that is not seen.
        factor = (s.mT - c).masked_fill(~allowed, -math.inf).exp()
        weights = phi_q @ keys.mT * factor + self.eps * phi_q.sum(-1, keepdim=True)
        return scale_rows(weights.masked_fill(~allowed, 0.0), self.floor)

    def product(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if not self.softmax_kernel:
            return super().product(q, k, v, key_padding_mask)
        phi_q, (keys, s), v_one = self.query_features(q, 0), self.scaled_keys(k), F.pad(v, (0, 1), value=1.0)
        if key_padding_mask is not None:
            padding_B1N1 = key_padding_mask[:, None, :, None]
            keys, v_one = keys.masked_fill(padding_B1N1, 0.0), v_one.masked_fill(padding_B1N1, 0.0)
            # The lowest number instead of −∞, whose difference from itself is NaN.
            s = s.masked_fill(padding_B1N1, torch.finfo(s.dtype).min)
        if self.config.causal and self.config.stabiliser == "seen":
            c = s.cummax(-2).values
        else:
            c = s.amax(-2, keepdim=True).expand_as(s)
        sums_q = self.eps * phi_q.sum(-1, keepdim=True)
        if self.config.causal:
            t = shifted_causal_product(phi_q, keys, s, c, v_one, self.config.chunk_size)
            t = t + sums_q * v_one.cumsum(-2)
        else:
            t = phi_q @ ((keys * (s - c).exp()).mT @ v_one) + sums_q * v_one.sum(-2, keepdim=True)
        return t[..., :-1] / t[..., -1:].clamp(min=self.floor)

    def state_shapes(self) -> StateShapes:
        if not self.softmax_kernel:
            return super().state_shapes()
        return {**super().state_shapes(), "top": (), "v": (self.config.head_dim,)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        if not self.softmax_kernel:
            return super().state_after(k, v)
        (k,) = self.rotated(widen(k))
        keys, s = self.scaled_keys(k)
        top_BH = s.amax((-2, -1))
        keys = keys * (s - top_BH[..., None, None]).exp()
        return {"kv": keys.mT @ widen(v), "z": keys.sum(-2), "top": top_BH, "v": widen(v).sum(-2)}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        if not self.softmax_kernel:
            return super().recurrence(q, k, v, state, position)
        q, k = self.rotated(widen(q), widen(k), start=position)
        phi_q, (keys, s), v = self.query_features(q, 0), self.scaled_keys(k), widen(v)
        s_BH = s[..., 0, 0]
        before_BH = state["top"] if position else s_BH
        top_BH = torch.maximum(before_BH, s_BH)
        shrink_BH1 = (before_BH - top_BH).exp()[..., None]
        keys = keys * (s - top_BH[..., None, None]).exp()
        kv = state["kv"].mul_(shrink_BH1[..., None]).addcmul_(keys.mT, v)
        z, v_sum = state["z"].mul_(shrink_BH1).add_(keys[:, :, 0]), state["v"].add_(v[:, :, 0])
        sums_q = self.eps * phi_q.sum(-1, keepdim=True)
        denominator = phi_q @ z[..., None] + sums_q * (position + 1)
        o = (phi_q @ kv + sums_q * v_sum[:, :, None]) / denominator.clamp(min=self.floor)
        return o, {"kv": kv, "z": z, "top": top_BH, "v": v_sum}

    def _check_recurrent(self) -> None:
        super()._check_recurrent()
        if self.softmax_kernel and self.config.stabiliser == "all-keys":
            raise ValueError("stabiliser='all-keys': has no recurrent form, since every key changes every feature")

    def head_flops(self, length: int) -> int:
        if not (self.softmax_kernel and self.config.causal):
            return super().head_flops(length)
        m, e, c = self.config.features, self.config.head_dim + 1, min(self.config.chunk_size, length)
        padded = -(-length // c) * c
        return 2 * padded * c * (m + e) + 4 * (padded - c) * m * e + self.feature_flops(length)

    def feature_flops(self, length: int) -> int:
        return 4 * length * self.config.features * self.config.head_dim


def shifted_causal_product(phi_q: Tensor, keys: Tensor, s: Tensor, c: Tensor, v: Tensor, chunk_size: int) -> Tensor:
    """Σ_{j ≤ i} φ(q_i)·K_j e^{s_j − c_i} v_j [B, H, N, E] for φ(q), K [B, H, N, M], s, c [B, H, N, 1], v [B, H, N, E].

    c must not decrease, and c_i be at least every s_j with j ≤ i. Memory N·(C + M) + N/C·M·E per head. A state is
    relative to the c of its chunk's last token:

        T_g = T_{g−1} e^{c_{g−1} − c_g} + Σ_{j in g} K_j e^{s_j − c_g} v_j^T
    """
    n = v.shape[2]
    size = min(chunk_size, n)
    if ragged := -n % size:  # zero keys at the end, after every query that is kept
        phi_q, keys, v = (F.pad(x, (0, 0, 0, ragged)) for x in (phi_q, keys, v))
        s, c = (torch.cat([x, c[:, :, -1:].expand(-1, -1, ragged, -1)], 2) for x in (s, c))
    q_c, k_c, v_c, s_c, c_c = (x.unflatten(2, (-1, size)) for x in (phi_q, keys, v, s, c))
    after = torch.ones(size, size, dtype=torch.bool, device=v.device).triu(1)
    # Filled before the exponential: above the diagonal s_j − c_i has no upper bound.
    factor_BHGCC = (s_c.mT - c_c).masked_fill(after, -math.inf).exp()
    t = (q_c @ k_c.mT * factor_BHGCC) @ v_c
    if n > size:
        last_BHG11 = c_c[..., -1:, :]
        earlier = slice(-1)  # the last chunk's state is not needed
        scaled = k_c[:, :, earlier] * (s_c - last_BHG11)[:, :, earlier].exp()
        states = (scaled.mT @ v_c[:, :, earlier]).unbind(2)
        shrink = (last_BHG11[:, :, :-1] - last_BHG11[:, :, 1:]).exp().unbind(2)
        before = [states[0]]  # the chunk after each
        for g in range(1, len(states)):
            before.append(states[g] + before[-1] * shrink[g - 1])
        since = (last_BHG11[:, :, :-1] - c_c[:, :, 1:]).exp()
        later = since * (q_c[:, :, 1:] @ torch.stack(before, 2))
        t = torch.cat([t[:, :, :1], t[:, :, 1:] + later], 2)
    return t.flatten(2, 3)[:, :, :n]
