"""Scattered blocks: DiagAttention's blocks over a fixed random permutation of the positions, a control for locality.

A query of DiagAttention sees few keys, and they are its neighbours. Here it sees as many, at the same cost, and they
are anywhere: the positions of a segment of ``span`` tokens are dealt out at random to groups of ``block_size``, and a
query sees the keys of its group. What DiagAttention does better, it owes to its blocks being neighbourhoods.

The permutation is part of the definition. It is drawn from a generator of its own, so that it is the same for every
segment, head, layer, length, seed and process.

Shapes: B batch, H heads, N length, D head_dim, P positions per segment, S segments, W tokens per group, G groups,
C tokens of a group with the most of them in a segment that is cut short.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax

PERMUTATION_SEED = 20221207  # another one is another mechanism: stored runs would no longer be this one's


@dataclass(frozen=True)
class ScatteredConfig(AttentionConfig):
    block_size: int = 64  # w: tokens per group, as DiagAttention's
    span: int = 256  # positions over which the tokens of a group are scattered
    dropout: float = 0.0  # of the attention matrix, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.span % self.block_size:
            raise ValueError(f"span={self.span}: must be a multiple of block_size={self.block_size}")


def groups(span: int, block_size: int) -> Tensor:
    """The positions of each group [G, W] within a segment, in ascending order; always the same, on the CPU."""
    generator = torch.Generator().manual_seed(PERMUTATION_SEED)
    dealt_P = torch.randperm(span, generator=generator, device="cpu")
    return dealt_P.unflatten(0, (-1, block_size)).sort(1).values


@register("scattered", ScatteredConfig)
class ScatteredAttention(Attention):
    """p_ij = softmax_j(q_i·k_j / sqrt(D)) over the keys j of i's group in i's segment, causally those up to i.

    With ``rotary`` positions are those in the sequence. The recurrent state is the current segment's keys and values,
    with room for ``span`` of them. In a segment that is cut short a group takes up the room of the fullest one, so that
    a short sequence costs no more than a whole segment.
    """

    config: ScatteredConfig
    order_GW: Tensor
    slot_P: Tensor

    def __init__(self, config: ScatteredConfig) -> None:
        super().__init__(config)
        order_GW = groups(config.span, config.block_size)
        slot_P = order_GW.flatten().argsort()
        # They follow from the config, so weights are stored without them.
        self.register_buffer("order_GW", order_GW, persistent=False)
        self.register_buffer("slot_P", slot_P, persistent=False)  # where a position is among all groups' in a row
        self._slots: list[int] = slot_P.tolist()  # the same for one token, without waiting for the device
        # By length, how many tokens the fullest group has; the i-th entry is that of i + 1 positions.
        self._fullest: list[int] = (slot_P % config.block_size + 1).cummax(0).values.tolist()

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
        position_N = torch.arange(n, device=device)
        group_N = self.slot_P.to(device)[position_N % self.config.span] // self.config.block_size
        segment_N = position_N // self.config.span
        same_group = (group_N[:, None] == group_N[None, :]) & (segment_N[:, None] == segment_N[None, :])
        allowed = super().allowed(n, key_padding_mask, device)
        return same_group if allowed is None else same_group & allowed

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        return self._matrix(q, k, allowed)

    def _matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """The softmax [..., n, m] of the scores of rotated q [..., n, D] and k [..., m, D]."""
        return masked_softmax((q * self.config.head_dim**-0.5) @ k.mT, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Whole segments as one batched product over their groups, a shorter last segment as another."""
        q, k, v = self.inputs(q, k, v)
        n, span = q.shape[2], self.config.span
        if n % span == 0 or n < span:
            return self.finish(self._segments(q, k, v, key_padding_mask))
        outputs = []
        for part in (slice(0, n - n % span), slice(n - n % span, n)):
            mask = None if key_padding_mask is None else key_padding_mask[:, part]
            outputs.append(self._segments(q[:, :, part], k[:, :, part], v[:, :, part], mask))
        return self.finish(torch.cat(outputs, dim=2))

    def _segments(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """matrix @ values on a length that is shorter than a segment or a multiple of one."""
        p = min(self.config.span, q.shape[2])
        c = self._fullest[p - 1]
        order_GC = self.order_GW[:, :c]  # ascending, so what a segment cut short lacks is at its groups' ends
        taken = order_GC.clamp(max=p - 1).flatten()
        allowed = None
        if self.config.causal:
            allowed = torch.ones(c, c, dtype=torch.bool, device=q.device).tril()
        if p < self.config.span:
            there_G1C = (order_GC < p)[:, None]
            allowed = there_G1C if allowed is None else allowed & there_G1C
        if key_padding_mask is not None:
            real_BSGC = ~key_padding_mask.unflatten(1, (-1, p))[:, :, taken].unflatten(2, (-1, c))
            real_B1SG1C = real_BSGC[:, None, :, :, None]
            allowed = real_B1SG1C if allowed is None else allowed & real_B1SG1C
        q_BHSGCD, k_BHSGCD, v_BHSGCD = (
            x.unflatten(2, (-1, p)).index_select(3, taken).unflatten(3, (-1, c)) for x in (q, k, v)
        )
        matrix_BHSGCC = self.dropout(self._matrix(q_BHSGCD, k_BHSGCD, allowed))
        t_BHSGCD = matrix_BHSGCC @ v_BHSGCD
        slot_P, w = self.slot_P[:p], self.config.block_size
        back_P = slot_P // w * c + slot_P % w
        return t_BHSGCD.flatten(3, 4).index_select(3, back_P).flatten(2, 3)

    def state_shapes(self) -> StateShapes:
        shape = (self.config.span, self.config.head_dim)
        return {"keys": shape, "values": shape}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        span, n = self.config.span, k.shape[2]
        start = n - n % span
        k, v = (widen(x[:, :, start:]) for x in (k, v))  # completed segments are no longer needed
        (k,) = self.rotated(k, start=start)
        return {name: F.pad(x, (0, 0, 0, span - n % span)) for name, x in (("keys", k), ("values", v))}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k, v = self.inputs(q, k, v, start=position)
        keys, values, place = state["keys"], state["values"], position % self.config.span
        keys[:, :, place], values[:, :, place] = k[:, :, 0], v[:, :, 0]
        group, number = divmod(self._slots[place], self.config.block_size)
        seen = self.order_GW[group, : number + 1]  # its group up to now; later places still hold the segment before
        t = self.dropout(self._matrix(q, keys.index_select(2, seen), None)) @ values.index_select(2, seen)
        return self.finish(t), {"keys": keys, "values": values}

    def head_flops(self, length: int) -> int:
        w, span = self.config.block_size, self.config.span
        rest = length % span
        of_rest = span // w * self._fullest[rest - 1] ** 2 if rest else 0
        return 4 * self.config.head_dim * (length // span * span * w + of_rest)
