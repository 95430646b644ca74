"""Reformer's LSH attention: a query attends to keys that fall into its bucket.

Kitaev, Kaiser & Levskaya, 2020 (arXiv:2001.04451), Section 2 and Appendix A. Queries and keys are the same vectors up
to their length, so that they share their buckets; in round r

    k_j = q_j / ‖q_j‖           h(x) = argmax([x R; −x R])  for a random R [D, b/2]
    P_i^(r) = {j : h^(r)(q_i) = h^(r)(q_j), the chunk of j is that of i or the one before}           (Eq. 4 and 5)
    o_i = Σ_r exp(z_i^(r) − z_i) o_i^(r),  o_i^(r) = Σ_{j in P_i^(r)} exp(q_i·k_j − m_ij − z_i^(r)) v_j   (Eq. 6 to 10)

with z^(r) and z the logarithms of the sums of a round and of all, m_ij = log N_ij if N_ij rounds have j in P_i, so
that it counts once, and m_ii = 10^5: a token attends to itself only if it has nothing else (Eq. 11).

**The chunks.** The paper sorts all tokens by bucket and position and cuts every ``chunk_size``. Later tokens then shift
the chunks of earlier ones, so that a causal output at i depends on the future. Here each bucket is cut by itself, after
every ``chunk_size`` of *its* tokens: a token's chunk is the number of earlier tokens in its bucket, divided by
``chunk_size``. The number of buckets comes from ``max_length``, not from the input. ``chunking="sorted"`` is the
paper's form, in which the first chunk looks back at the last; ``"across"`` is the released one, which also lets a query
see the keys of other buckets in those chunks (and whose first chunk looks back at the round before, here at its own).
Padding has no bucket in any of them. As in the paper and the release, no query looks at the chunk after, even in
bidirectional models.

**Shared queries and keys.** ``k`` is not used and gets a gradient of zero: in a layer that projects it, those weights
are idle. With separate keys a bucket could hold queries and no key, which is why the paper shares them.

**Other differences.** The authors' code and its descendants replace the score of a token with itself by −10^5 instead
of subtracting that, and so does this file. They count a key once in each round (``duplicates="each"``), and their
scores are q·k with k_j = sqrt(D) q_j / ‖q_j‖ over sqrt(D), as here; ``scaled`` divides by one more sqrt(D), as Eq. 1
read literally. Training draws new rotations in each call; evaluation uses the buffer's, where the release also draws.

Shapes: B batch, H heads, N length, D head_dim, R rounds, M = chunk_size, G = ⌈N/M⌉ windows, W neighbouring windows.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.interface import Attention, AttentionConfig, check_length
from transnormer_lib.attention.norms import KeepsFloat32, rms_norm, wide_dtype, widen
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax

SELF_SCORE = -1e5  # Eq. 11; replaces a token's score with itself
_HASHED_AT_ONCE = 2**20  # tokens times buckets, per head
_PADDED_KEY, _PADDED_QUERY = -1, -2  # chunks of padding, which match no other


@dataclass(frozen=True)
class ReformerConfig(AttentionConfig):
    hashes: int = 2  # n_rounds; Long Range Arena's baselines: 2
    buckets: int | None = None  # b, even; None: 2·max_length / chunk_size, rounded down to a power of two, as released
    max_length: int = 512  # the longest input if buckets is None
    chunking: Literal["bucket", "sorted", "across"] = "bucket"  # the paper: sorted; released: across
    duplicates: Literal["once", "each"] = "once"  # how a key counts that several rounds find; released: each
    scaled: bool = False  # scores over one more sqrt(D)
    eps: float = 1e-6  # of the keys' length, as released
    dropout: float = 0.0  # of the attention matrix of a round, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets is not None and self.buckets % 2:
            raise ValueError(f"buckets={self.buckets}: must be even, since a bucket has one opposite to it")

    @property
    def bucket_count(self) -> int:
        return self.buckets or 1 << (max(2 * self.max_length // self.chunk_size, 2).bit_length() - 1)


@register("reformer", ReformerConfig)
class ReformerAttention(KeepsFloat32, Attention):
    """LSH attention. Its weights are the softmax over the union of the rounds.

    Time and memory are linear in N for a given number of buckets. The fast form sorts the tokens of a round by bucket,
    so that a query's two chunks, wherever they begin, are in W neighbouring windows of M tokens. There is no recurrent
    form: the state would have to cache the queries, which are the keys here.
    """

    config: ReformerConfig
    rotations_HRDb: Tensor

    def __init__(self, config: ReformerConfig) -> None:
        super().__init__(config)
        shape = (config.heads, config.hashes, config.head_dim, config.bucket_count // 2)
        self.register_buffer("rotations_HRDb", torch.empty(shape, dtype=wide_dtype(torch.get_default_dtype())))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.rotations_HRDb.normal_(generator=generator)

    def _queries_and_keys(self, q: Tensor) -> tuple[Tensor, Tensor]:
        (q,) = self.rotated(q)
        # Divided by the root of its mean square, a vector has the length sqrt(D).
        power = -1.0 if self.config.scaled else -0.5
        return q, rms_norm(q, self.config.eps) * self.config.head_dim**power

    @torch.no_grad()
    def _buckets(self, q: Tensor, real_B1N1: Tensor | None) -> Tensor:
        """h^(r)(q) [B, H, R, N]; padding has the number after the last."""
        rotations = torch.randn_like(self.rotations_HRDb) if self.training else self.rotations_HRDb
        some = max(1, _HASHED_AT_ONCE // self.config.bucket_count)  # tokens: b may grow with the length
        rounds = [
            torch.cat([_nearest(piece @ rotation_HDb) for piece in q.split(some, dim=2)], dim=2)
            for rotation_HDb in rotations.to(q.dtype).unbind(1)
        ]
        buckets = torch.stack(rounds, dim=2)
        if real_B1N1 is not None:
            buckets = buckets.masked_fill(~real_B1N1.squeeze(-1)[:, :, None], self.config.bucket_count)
        return buckets

    def _check_length(self, n: int) -> None:
        if self.config.buckets is None:
            check_length(n, self.config.max_length)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        self._check_length(q.shape[2])
        real_B1N1 = None
        if allowed is not None:
            seen = allowed.view(-1, *allowed.shape[-2:])
            real_B1N1 = seen.expand(-1, q.shape[2], -1).diagonal(dim1=-2, dim2=-1)[:, None, :, None]
        q, k_of_q = self._queries_and_keys(q)
        count = self._found_by(self._buckets(q, real_B1N1))
        own = torch.eye(q.shape[2], dtype=torch.bool, device=q.device)
        s = (q @ k_of_q.mT).masked_fill(own, SELF_SCORE)
        if self.config.duplicates == "each":
            s = s + count.clamp(min=1).to(s.dtype).log()
        found = count > 0 if allowed is None else (count > 0) & allowed
        return masked_softmax(s, found) + k[..., :0].sum()

    def _found_by(self, buckets_BHRN: Tensor) -> Tensor:
        """N_ij, in how many rounds the query at i finds the key at j, by comparing all with all: [B, H, N, N]."""
        m, b = self.config.chunk_size, self.config.bucket_count
        mine, others = buckets_BHRN[..., :, None], buckets_BHRN[..., None, :]
        position = torch.arange(buckets_BHRN.shape[-1], device=buckets_BHRN.device)
        same = mine == others
        before = same & (position[None, :] < position[:, None])
        if self.config.chunking != "bucket":
            before = before | (others < mine)
        chunk = before.sum(-1) // m
        back = chunk - 1
        if self.config.chunking != "bucket":
            chunks = ((buckets_BHRN < b).sum(-1, keepdim=True) + m - 1) // m
            back = back % chunks.clamp(min=1)
        near = (chunk[..., None, :] == chunk[..., :, None]) | (chunk[..., None, :] == back[..., :, None])
        if self.config.chunking != "across":
            near = near & same
        return (near & (mine < b) & (others < b)).sum(2)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        self._check_length(q.shape[2])
        real_B1N1 = None if key_padding_mask is None else ~key_padding_mask[:, None, :, None]
        idle = widen(k)[..., :0].sum()  # zero, and a gradient of zero for k
        q, k = self._queries_and_keys(widen(q))
        order_BHRN, codes_BHR3N, last_BHR = self._chunks(self._buckets(q, real_B1N1))
        slots_BHRGM, windows_BHRGL, inside_BHRGL = self._windows(order_BHRN, last_BHR)
        with torch.no_grad():
            found = inside_BHRGL[..., None, :] & _match(codes_BHR3N, slots_BHRGM, windows_BHRGL)
            mine, theirs = slots_BHRGM.int()[..., None], windows_BHRGL.int()[..., None, :]
            own = mine == theirs
            if self.config.causal:
                found &= theirs <= mine
            empty = ~found.any(-1, keepdim=True)
            # What a score is replaced by where it does not count: exp of the smallest number is 0.
            fill = torch.full_like(found, torch.finfo(q.dtype).min, dtype=q.dtype).masked_fill_(found, SELF_SCORE)
            counts = found & ~own
        # One more token, of zeros, fills the last window.
        q, k, v = (F.pad(x, (0, 0, 0, 1)) for x in (q, k, widen(v)))
        s = _at(q, slots_BHRGM) @ _at(k, windows_BHRGL).mT
        if self.config.duplicates == "once" and self.config.hashes > 1:
            s = s - self._times_found(codes_BHR3N, slots_BHRGM, windows_BHRGL).to(s.dtype).log()
        s = torch.where(counts, s, fill)
        p = s.softmax(-1)
        # log Σ exp(s), by way of the largest entry: where exp underflows, as for most s here, logsumexp is far slower.
        largest, at = s.max(-1, keepdim=True)
        z_BHRS = (largest - p.gather(-1, at).log())[..., 0].flatten(3, 4)
        o_BHRSD = (self.dropout(p) @ _at(v, windows_BHRGL)).masked_fill(empty, 0.0).flatten(3, 4)
        slot_BHRN = order_BHRN.argsort(dim=-1)  # back from the order of the buckets to that of the positions
        o_BHRND = _at(o_BHRSD.flatten(1, 2), slot_BHRN.flatten(1, 2)[:, :, None, None]).view(*slot_BHRN.shape, -1)
        rounds_BHRN = z_BHRS.gather(3, slot_BHRN).softmax(dim=2)
        return (rounds_BHRN[..., None] * o_BHRND).sum(2) + idle

    @torch.no_grad()
    def _chunks(self, buckets_BHRN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(the tokens by bucket and position [B, H, R, N], three codes per token [B, H, R, 3, N + 1], the last chunk).

        The codes are a key's chunk, a query's own, and the one before it: a query finds the keys whose chunk is one of
        its two. Codes differ between buckets if a query must not cross them. The extra token is padding.
        """
        n, m, b = buckets_BHRN.shape[-1], self.config.chunk_size, self.config.bucket_count
        ordered, order = buckets_BHRN.sort(dim=-1, stable=True)
        slot = torch.arange(n, device=order.device).expand_as(order)
        last = ((ordered < b).sum(-1) - 1).clamp(min=0) // m
        if self.config.chunking == "bucket":
            first = torch.ones_like(ordered, dtype=torch.bool)
            first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
            chunk = (slot - torch.where(first, slot, 0).cummax(-1).values) // m
            back = chunk - 1
        else:
            chunk = slot // m
            back = (chunk - 1) % (last + 1)[..., None]
        if self.config.chunking != "across":  # one more chunk than a bucket can have keeps −1 apart
            chunk, back = (x + 1 + ordered * (n // m + 3) for x in (chunk, back))
        padding = ordered == b
        codes = [
            chunk.masked_fill(padding, _PADDED_KEY),
            *(x.masked_fill(padding, _PADDED_QUERY) for x in (chunk, back)),
        ]
        placed = [torch.empty_like(x).scatter_(-1, order, x) for x in codes]
        fill = (_PADDED_KEY, _PADDED_QUERY, _PADDED_QUERY)
        # All pairs of a window are compared: in half the bytes that is much faster.
        codes = [F.pad(x.int(), (0, 1), value=y) for x, y in zip(placed, fill, strict=True)]
        return order, torch.stack(codes, dim=3), last

    @torch.no_grad()
    def _windows(self, order_BHRN: Tensor, last_BHR: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(the tokens of each window [B, H, R, G, M], those of its neighbours [..., W·M], which of these count).

        A bucket's chunk can begin anywhere in a window, so two chunks reach two windows back, and one ahead.
        """
        m, n = self.config.chunk_size, order_BHRN.shape[-1]
        slots = F.pad(order_BHRN, (0, -n % m), value=n).unflatten(-1, (-1, m))
        window = torch.arange(slots.shape[3], device=order_BHRN.device)
        if self.config.chunking == "bucket":
            reach = torch.arange(-2, 1 if self.config.causal else 2, device=order_BHRN.device)
            near = (window[:, None] + reach).expand(*last_BHR.shape, -1, -1)
            inside = (near >= 0) & (near < len(window))
        else:
            back = (window - 1) % (last_BHR[..., None] + 1)
            near = torch.stack([back, window.expand_as(back)], dim=-1)
            inside = torch.stack([back != window, torch.ones_like(back, dtype=torch.bool)], dim=-1)
        index = near.clamp(0, len(window) - 1).flatten(-2)[..., None].expand(*near.shape[:3], -1, m)
        neighbours = slots.gather(3, index).unflatten(3, near.shape[3:]).flatten(-2)
        return slots, neighbours, inside.repeat_interleave(m, dim=-1)

    @torch.no_grad()
    def _times_found(self, codes_BHR3N: Tensor, slots_BHRGM: Tensor, windows_BHRGL: Tensor) -> Tensor:
        """N_ij for the pairs of each round, at least 1: [B, H, R, G, M, W·M]."""
        matches = (
            _match(codes_BHx3N.expand_as(codes_BHR3N), slots_BHRGM, windows_BHRGL)
            for codes_BHx3N in codes_BHR3N.split(1, dim=2)
        )
        count = next(matches).to(torch.int16)
        for match in matches:
            count += match
        return count.clamp_(min=1)

    def head_flops(self, length: int) -> int:
        m, reach = self.config.chunk_size, 2
        if self.config.chunking == "bucket":
            reach = 3 if self.config.causal else 4
        slots = -(-length // m) * m
        per_round = length * self.config.bucket_count // 2 + 2 * slots * reach * m
        return 2 * self.config.hashes * self.config.head_dim * per_round


def _nearest(rotated: Tensor) -> Tensor:
    """The number of the vertex nearest to a rotated vector [..., b/2], the opposite ones counted after."""
    return torch.cat([rotated, -rotated], dim=-1).argmax(-1)


def _at(x_BHND: Tensor, token_BHRGL: Tensor) -> Tensor:
    """The rows of x at the tokens given: [B, H, R, G, L, D]."""
    b, h, n, d = x_BHND.shape
    # Whole rows, many times faster on a CPU than a gather of single numbers.
    rows = token_BHRGL + n * torch.arange(b * h, device=x_BHND.device).view(b, h, 1, 1, 1)
    return x_BHND.reshape(-1, d).index_select(0, rows.flatten()).view(*token_BHRGL.shape, d)


def _match(codes_BHR3N: Tensor, queries_BHRGM: Tensor, keys_BHRGL: Tensor) -> Tensor:
    """Whether the query's two chunks are the key's, for all pairs within a window: [B, H, R, G, M, L]."""

    def code(which: int, tokens: Tensor) -> Tensor:
        return codes_BHR3N[:, :, :, which].gather(3, tokens.flatten(3)).view_as(tokens)

    key = code(0, keys_BHRGL)[..., None, :]
    return (key == code(1, queries_BHRGM)[..., None]) | (key == code(2, queries_BHRGM)[..., None])
