"""DiagAttention: softmax or ReLA attention inside blocks that do not overlap.

Section 4.3 of "The Devil in Linear Transformer": a query sees its own block of ``block_size`` tokens, so
time is N·w·D. T2 takes softmax, T1 takes ReLA (Zhang et al., 2021): ReLU of the scores and RMSNorm of the
output over the embedding. The released T1 has no gate on that norm and the released T2 no norm at all
(OpenNLPLab/fairseq-evo@38fa81f). The release also lets the zeros that fill a last, ragged block into the
softmax; here they never enter it.

Shapes: B batch, H heads, N length, D head_dim, W tokens per block, G blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention import triton_forms
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norm import magnitude_weights
from transnormer_lib.attention.norms import RMSNorm, inverse_rms, over_embedding, widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax
from transnormer_lib.choices import EpsPlacement


@dataclass(frozen=True)
class DiagConfig(AttentionConfig):
    """DiagAttention. T1: ``scores="rela"``; T2: ``scores="softmax"``."""

    block_size: int = 64  # w; released: 64
    scores: Literal["softmax", "rela"] = "softmax"
    norm: Literal["rms", "none"] | None = None  # of the output; None: rms for rela, none for softmax
    eps: float = 1e-8  # of that norm, which runs over the H·D numbers of a token
    eps_placement: EpsPlacement = "inside"  # Definition D.1: inside the root; released: outside
    dropout: float = 0.0  # of the attention matrix, in training; released: 0.1 in the bidirectional model

    @property
    def output_norm(self) -> str:
        return self.norm or ("rms" if self.scores == "rela" else "none")


@register("diag", DiagConfig)
class DiagAttention(Attention):
    """Attention inside blocks. Its weights are the softmax, or ``magnitude_weights`` of ReLA's scores.

    With ``rotary`` positions start anew in each block, as in the release. The recurrent state is the current block's
    keys and values, with room for ``block_size`` of them.
    """

    config: DiagConfig
    kernel_devices = ("cuda",)

    def __init__(self, config: DiagConfig) -> None:
        super().__init__(config)
        self.norm: RMSNorm | None = None
        if config.output_norm == "rms":
            self.norm = RMSNorm(config.heads * config.head_dim, config.eps, config.eps_placement)

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        from transnormer_kernels import diag_attention

        config = self.config
        o = diag_attention(
            *(x.transpose(1, 2) for x in (q, k, v)),
            block_size=config.block_size,
            scores=config.scores,
            causal=config.causal,
            norm="embedding" if config.output_norm == "rms" else "none",
            eps=config.eps,
            eps_placement=config.eps_placement,
            key_padding_mask=key_padding_mask,
            **triton_forms.rotation(self.rotary, q.device),
        )
        return o.transpose(1, 2)

    def kernel_refusal(self, dtype: torch.dtype, device: torch.device) -> str:
        if reason := triton_forms.refusal(self.config.head_dim, dtype, device):
            return reason
        if self.config.dropout and self.training:
            return "the kernel has no dropout"
        if self.config.block_size > 128:
            return f"block_size={self.config.block_size} is above the kernel's 128"
        if dtype == torch.float32 and self.config.head_dim > 64 and self.config.block_size > 64:
            return "float32 blocks above 64 tokens of above 64 numbers exceed a processor's shared memory"
        return ""

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
        block = torch.arange(n, device=device) // self.config.block_size
        same_block = block[:, None] == block[None, :]
        allowed = super().allowed(n, key_padding_mask, device)
        return same_block if allowed is None else same_block & allowed

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """The scores' softmax or ReLU, for whole sequences and for blocks: [..., n, n] for q, k [..., n, D]."""
        q, k = self.rotated(q, k, period=self.config.block_size)
        return self._matrix(q, k, allowed)

    def _matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        s = (q * self.config.head_dim**-0.5) @ k.mT
        if self.config.scores == "softmax":
            return masked_softmax(s, allowed)
        return (s if allowed is None else s.masked_fill(~allowed, 0.0)).relu()

    def finish(self, t: Tensor) -> Tensor:
        return t if self.norm is None else over_embedding(self.norm, t)

    def shown_weights(self, matrix: Tensor) -> Tensor:
        return matrix if self.config.scores == "softmax" else magnitude_weights(matrix)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Whole blocks as one batched product, a shorter last block as another, so that no key is filled in."""
        q, k, v = widen(q), widen(k), widen(v)
        n, w = q.shape[2], self.config.block_size
        if n % w == 0 or n < w:  # nothing to cut, and a cut costs a copy in the backward pass
            return self.finish(self._blocks(q, k, v, key_padding_mask))
        outputs = []
        for part in (slice(0, n - n % w), slice(n - n % w, n)):
            mask = None if key_padding_mask is None else key_padding_mask[:, part]
            outputs.append(self._blocks(q[:, :, part], k[:, :, part], v[:, :, part], mask))
        return self.finish(torch.cat(outputs, dim=2))

    def _blocks(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """matrix @ values on a length that is shorter than a block or a multiple of one."""
        w = min(self.config.block_size, q.shape[2])
        allowed = None
        if self.config.causal:
            allowed = torch.ones(w, w, dtype=torch.bool, device=q.device).tril()
        if key_padding_mask is not None:
            real_B1G1W = ~key_padding_mask.unflatten(1, (-1, w))[:, None, :, None, :]
            allowed = real_B1G1W if allowed is None else allowed & real_B1G1W
        q_BHGWD, k_BHGWD, v_BHGWD = (x.unflatten(2, (-1, w)) for x in (q, k, v))
        matrix_BHGWW = self.dropout(self.attention_matrix(q_BHGWD, k_BHGWD, allowed))
        return (matrix_BHGWW @ v_BHGWD).flatten(2, 3)

    def state_shapes(self) -> StateShapes:
        shape = (self.config.block_size, self.config.head_dim)
        return {"keys": shape, "values": shape}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        w, n = self.config.block_size, k.shape[2]
        k, v = (widen(x[:, :, n - n % w :]) for x in (k, v))  # completed blocks are no longer needed
        (k,) = self.rotated(k)
        return {name: F.pad(x, (0, 0, 0, w - n % w)) for name, x in (("keys", k), ("values", v))}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k, v = widen(q), widen(k), widen(v)
        q, k = self.rotated(q, k, start=position, period=self.config.block_size)
        keys, values, slot = state["keys"], state["values"], position % self.config.block_size
        keys[:, :, slot], values[:, :, slot] = k[:, :, 0], v[:, :, 0]
        seen = slice(slot + 1)  # later slots still hold the previous block
        t = self.dropout(self._matrix(q, keys[:, :, seen], None)) @ values[:, :, seen]
        return self.finish(t), {"keys": keys, "values": values}

    def fixed_recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: Tensor) -> Tensor:
        q, k, v = widen(q), widen(k), widen(v)
        q, k = self.rotated(q, k, start=position, period=self.config.block_size)
        slot, slots = position % self.config.block_size, torch.arange(self.config.block_size, device=q.device)
        for name, x in (("keys", k), ("values", v)):
            state[name].index_copy_(2, slot[None], x)
        return self.finish(self._matrix(q, state["keys"], slots <= slot) @ state["values"])

    def bound(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> Callable[[int], None]:
        if self.rotary is not None or widen(qkv_3BHD) is not qkv_3BHD:
            return super().bound(qkv_3BHD, o_BHD, state)
        (q, k, v), w, o = qkv_3BHD, self.config.block_size, o_BHD.flatten(0, 1)[:, None]
        keys, values = (state[name].flatten(0, 1) for name in ("keys", "values"))  # views
        q_row, scores = q.new_empty(o.shape), keys.new_empty(w, len(keys))
        views: dict[int, tuple[Tensor, ...]] = {}

        def views_of(slot: int) -> tuple[Tensor, ...]:
            seen, places = slice(slot + 1), (state[name][:, :, slot] for name in ("keys", "values"))
            row = scores.view(-1)[: len(keys) * (slot + 1)].view(len(keys), 1, slot + 1)
            return (*places, keys[:, seen].mT, values[:, seen], row)

        def step(position: int) -> None:
            slot = position % w
            if slot not in views:
                views[slot] = views_of(slot)
            key, value, seen_keys, seen_values, row = views[slot]
            key.copy_(k)
            value.copy_(v)
            torch.mul(q, scale, out=q_heads)
            torch.bmm(q_row, seen_keys, out=row)
            if softmax:
                torch.softmax(row, -1, out=row)
            else:
                row.relu_()
            torch.bmm(row, seen_values, out=o)
            if norm is not None:
                whole.mul_(inverse_rms(whole, norm.eps, norm.eps_placement))

        norm, whole = self.norm, o_BHD.flatten(1)  # a view
        softmax, scale, q_heads = self.config.scores == "softmax", self.config.head_dim**-0.5, q_row.view(q.shape)
        return step

    def head_flops(self, length: int) -> int:
        w = self.config.block_size
        return 4 * self.config.head_dim * (length // w * w * w + (length % w) ** 2)
