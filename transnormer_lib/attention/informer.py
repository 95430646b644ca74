"""Informer's ProbSparse attention: a few queries attend, the others take the mean of the values.

Zhou et al., 2021 (arXiv:2012.07436), Eq. 3 and 4 and Algorithm 1. A query attends if its scores stand out from their
mean, measured on a random sample K̄ of the keys:

    M̄(q_i, K̄) = max_j {q_i·k_j / sqrt(D)} − mean_j {q_i·k_j / sqrt(D)}            the measurement, j in the sample
    o_i = Σ_j softmax_j(q_i·k_j / sqrt(D)) v_j    for the u queries of the largest M̄,    mean(V) for the others

with u = c·⌈ln n⌉ of n queries, and c·⌈ln n⌉ keys in the sample, drawn with replacement; at most n of either, so that
short sequences get softmax attention. The paper leaves open how ln is rounded, and its sample has no c: both follow the
released code (zhouhaoyi/Informer2020, models/attn.py).

n counts a sequence's own real tokens. The sample is given by fractions f_s of it, the token of rank ⌊f_s·n⌋, which
all queries share: fresh ones in each call in training mode, the buffer's in evaluation mode.

**Causal.** The paper masks the scores of the selected queries and says no more. The release still selects among all
queries of the sequence, by keys that may come later, and gives the others the running *sum* of the values: the output
at i then depends on the future and grows with i. Here everything at i comes from the prefix: its sample, u, the query's
rank among the queries up to i, the mean of the values up to i. ``selection="sequence"`` and ``lazy="sum"`` are the
release's. The release divides the sampled sum by n and not by the size of the sample: ``mean_over="length"``. It builds
a dropout of the weights and never applies it; there is none here.

Shapes: B batch, H heads, N length, D head_dim, S selected queries, F fractions, U keys in a sample.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.derivatives import transformed
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import KeepsFloat32, wide_dtype, widen
from transnormer_lib.attention.query_blocks import by_query_blocks
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax

_LONGEST_LN = 24  # ⌈ln n⌉ of 26 billion tokens: c times as many fractions are drawn


@dataclass(frozen=True)
class InformerConfig(AttentionConfig):
    factor: int = 5  # c of u, the number of selected queries
    sampling_factor: int = 5  # c of U, the number of sampled keys; the release has one c for both
    mean_over: Literal["sample", "length"] = "sample"  # what the sampled sum is divided by; released: length
    selection: Literal["prefix", "sequence"] = "prefix"  # causal: among which queries; released: sequence
    lazy: Literal["mean", "sum"] = "mean"  # of the values seen, for queries not selected; released, causal: sum

    @property
    def by_prefix(self) -> bool:
        return self.causal and self.selection == "prefix"


def budget(factor: int, n: Tensor) -> Tensor:
    """min(c·⌈ln n⌉, n) for whole numbers n; 0 for n = 0 and, as ln 1 = 0, for n = 1."""
    return torch.minimum(factor * n.clamp(min=1).double().log().ceil().long(), n)


@register("informer", InformerConfig)
class InformerAttention(KeepsFloat32, Attention):
    """ProbSparse attention. Its weights are the selected queries' softmax and the others' equal shares.

    Gradients reach q and k only through the selected queries' softmax. Bidirectional, time and memory are of the order
    N ln N. A causal sequence may select every query, but selects only some c·(ln N)²/2 if measurements come in random
    order; scores exist for ``chunk_size`` of them at a time. A recurrence would have to cache all measurements.
    """

    config: InformerConfig
    fractions_F: Tensor

    def __init__(self, config: InformerConfig) -> None:
        super().__init__(config)
        dtype = wide_dtype(torch.get_default_dtype())
        self.register_buffer("fractions_F", torch.empty(config.sampling_factor * _LONGEST_LN, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.fractions_F.uniform_(generator=generator)

    def _sample(self, real_BN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n [B, N], the places of each query's sampled keys and which of them count [B, N, U]).

        Not by prefix, all queries have the same: [B, 1] and [B, 1, U].
        """
        n_BN = real_BN.cumsum(1)
        if not self.config.by_prefix:
            n_BN = n_BN[:, -1:]
        places_BN = (~real_BN).to(torch.uint8).argsort(dim=1, stable=True)  # of the r-th real token
        sizes_BN1 = budget(self.config.sampling_factor, n_BN)[..., None]
        longest = int(budget(self.config.sampling_factor, torch.tensor(places_BN.shape[1])))
        fractions_U = torch.rand_like(self.fractions_F) if self.training else self.fractions_F
        fractions_U = fractions_U[:longest].to(n_BN.device)
        # A fraction rounded to half precision, or a product rounded up, may reach n itself.
        ranks_BNU = (fractions_U.double() * n_BN[..., None]).long().minimum(n_BN[..., None] - 1).clamp(min=0)
        token_BNU = places_BN[..., None].expand(-1, -1, longest).gather(1, ranks_BNU)
        return n_BN, token_BNU, torch.arange(longest, device=n_BN.device) < sizes_BN1

    def _measured(self, first: Tensor, largest: Tensor, total: Tensor, sizes: Tensor, n: Tensor) -> Tensor:
        """M̄ from the first sampled score, and the largest and the sum of all scores minus the first.

        A query whose sample is one repeated key thus measures exactly zero, without rounding.
        """
        if self.config.mean_over == "sample":
            return largest - total / sizes.clamp(min=1)
        return first + largest - (total + sizes * first) / n.clamp(min=1)

    @torch.no_grad()
    def _selected(self, q: Tensor, k: Tensor, real_BN: Tensor) -> tuple[Tensor, Tensor]:
        """(the selected queries, all measurements), [B, H, N]. One sampled key at a time: memory linear in N."""
        n_BN, token_BNU, counts_BNU = self._sample(real_BN)
        largest = torch.full(q.shape[:3], -torch.inf, dtype=q.dtype, device=q.device)
        first, total = None, torch.zeros_like(largest)
        for token_BN, counts_BN in zip(token_BNU.unbind(-1), counts_BNU.unbind(-1), strict=True):
            sampled = k.gather(2, token_BN[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3]))
            s = (q * sampled).sum(-1)
            first = s if first is None else first
            s = s - first
            largest = torch.maximum(largest, s.masked_fill(~counts_BN[:, None], -torch.inf))
            total = total + s.masked_fill(~counts_BN[:, None], 0.0)
        sizes_BN = counts_BNU.sum(-1)
        m_BHN = self._measured(total if first is None else first, largest, total, sizes_BN[:, None], n_BN[:, None])
        m_BHN = m_BHN.masked_fill(~(real_BN & (sizes_BN > 0))[:, None], -torch.inf)
        if self.config.by_prefix:
            larger = earlier_at_least(m_BHN)
        else:
            order = m_BHN.argsort(dim=-1, descending=True, stable=True)
            larger = order.argsort(dim=-1)
        return (larger < budget(self.config.factor, n_BN)[:, None]) & real_BN[:, None], m_BHN

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        n = q.shape[2]
        seen_BNN = torch.ones(1, n, n, dtype=torch.bool, device=q.device) if allowed is None else allowed
        seen_BNN = seen_BNN.view(-1, *seen_BNN.shape[-2:]).expand(q.shape[0], n, n)
        s = q @ k.mT * self.config.head_dim**-0.5
        selected = self._selected_by_comparison(s, seen_BNN)
        share = seen_BNN[:, None].to(s.dtype)
        if self.config.lazy == "mean":
            share = share / share.sum(-1, keepdim=True).clamp(min=1.0)
        return torch.where(selected[..., None], masked_softmax(s, seen_BNN[:, None]), share)

    @torch.no_grad()
    def _selected_by_comparison(self, s_BHNN: Tensor, seen_BNN: Tensor) -> Tensor:
        """The selected queries [B, H, N] from all scores, each query's rank by comparison with every other."""
        real_BN = seen_BNN.diagonal(dim1=-2, dim2=-1)
        n_BN, token_BNU, counts_BNU = self._sample(real_BN)
        sampled = s_BHNN.gather(-1, token_BNU[:, None].expand(-1, *s_BHNN.shape[1:3], -1))
        counts = counts_BNU[:, None]
        first = sampled[..., 0] if counts.shape[-1] else sampled.sum(-1)
        sampled = sampled - first[..., None]
        largest = sampled.masked_fill(~counts, -torch.inf).amax(-1) if counts.shape[-1] else sampled.sum(-1)
        total = sampled.masked_fill(~counts, 0.0).sum(-1)
        m = self._measured(first, largest, total, counts.sum(-1), n_BN[:, None])
        position = torch.arange(s_BHNN.shape[-1], device=s_BHNN.device)
        earlier = position[None, :] < position[:, None]
        ahead = m[..., None, :] > m[..., :, None]
        ahead = (ahead | (m[..., None, :] == m[..., :, None]) & earlier) & real_BN[:, None, None, :]
        if self.config.by_prefix:
            ahead = ahead & earlier
        return (ahead.sum(-1) < budget(self.config.factor, n_BN)[:, None]) & real_BN[:, None]

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = self.rotated(widen(q), widen(k))
        v, n = widen(v), q.shape[2]
        real_BN = torch.ones(q.shape[0], n, dtype=torch.bool, device=q.device)
        if key_padding_mask is not None:
            real_BN = ~key_padding_mask
        selected, _ = self._selected(q, k, real_BN)
        lazy = self._lazy(v, real_BN)
        if self.config.by_prefix:
            # The largest number of them is a value, which neither vmap nor the meta device can tell.
            most = n if transformed() or q.is_meta else int(selected.sum(-1).max())
        else:
            most = int(budget(self.config.factor, torch.tensor(n)))
        if not most:
            return lazy + (q[..., :0].sum() + k[..., :0].sum())  # a gradient of zero
        token_BHS = selected.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :most]
        index = token_BHS[..., None].expand(-1, -1, -1, q.shape[3])
        q_BHSD = q.gather(2, index) * self.config.head_dim**-0.5
        keys_N = torch.arange(n, device=q.device)
        real_B11N = None if key_padding_mask is None else real_BN[:, None, None]

        def attended(some: slice) -> Tensor:
            allowed = real_B11N
            if self.config.causal:
                past = keys_N <= token_BHS[:, :, some, None]
                allowed = past if allowed is None else past & allowed
            return masked_softmax(q_BHSD[:, :, some] @ k.mT, allowed) @ v

        block = self.config.chunk_size if self.config.causal else most
        o_BHSD = by_query_blocks(attended, q_BHSD, block)
        # Heads select different numbers of queries; the surplus ones keep their lazy output.
        kept = torch.where(selected.gather(2, token_BHS)[..., None], o_BHSD, lazy.gather(2, index))
        return lazy.scatter(2, index, kept)

    def _lazy(self, v: Tensor, real_BN: Tensor) -> Tensor:
        """What a query that is not selected gets, [B, H, N, D]; padding's values are zero."""
        if self.config.causal:
            total, n = v.cumsum(2), real_BN.cumsum(1)[:, None, :, None]
        else:
            total, n = v.sum(2, keepdim=True).expand_as(v), real_BN.sum(1)[:, None, None, None]
        return total / n.clamp(min=1) if self.config.lazy == "mean" else total

    def head_flops(self, length: int) -> int:
        """The selected queries' products; the sample's scores are sums of elementwise products.

        A causal layer's selection depends on the data; this counts measurements in random order.
        """
        u = int(budget(self.config.factor, torch.tensor(length)))
        if self.config.by_prefix:
            u = min(length, max(u, round(self.config.factor * math.log(length) ** 2 / 2)))
        return 4 * length * self.config.head_dim * u


def earlier_at_least(m: Tensor) -> Tensor:
    """For each entry of m [..., N] the number of earlier ones that are at least as large, in N log² N.

    This is how merge sort counts inversions: for each earlier entry, exactly one pair of blocks has it in the left half
    and entry i in the right half.
    """
    n, size = m.shape[-1], 1
    m = F.pad(m, (0, (1 << (n - 1).bit_length()) - n))
    counts = torch.zeros_like(m, dtype=torch.long)
    while size < m.shape[-1]:
        left, right = m.unflatten(-1, (-1, 2, size)).unbind(-2)
        smaller = torch.searchsorted(left.sort(dim=-1).values, right.contiguous())
        counts.unflatten(-1, (-1, 2, size))[..., 1, :] += size - smaller
        size *= 2
    return counts[..., :n]
