"""Transformer-LS: one softmax over a window of tokens and a few tokens that compress the rest.

Zhu et al., 2021 (arXiv:2107.02192). Long-range attention (Section 3.2): the projection P = softmax(X W^P) over the
tokens, ``rank`` columns per head, makes compressed keys P^T K and values P^T V. Short-range attention: segments of
``window`` tokens see themselves and half a window on either side. DualLN (Section 3.4, Eq. 6) normalises compressed and
plain keys by two LayerNorms over the concatenated heads; one softmax covers both.

The causal form (Sections 3.2 and 3.3, and the released autoregressive code): a token sees the last ``window`` tokens,
and the compressed keys of complete earlier segments of ``segment_size`` tokens, up to ``memory`` tokens back, which
bounds time and state. The release counts this reach from the start of a batch's block of text; here it counts from the
query's segment, so that outputs do not depend on where a block starts. The release adds Transformer-XL's relative
positions: (q_i + u)·k_j + (q_i + w)·r_{i-j} in the window and q_i·r'_m for the m-th last compressed token. It also
attends to the zeros of an empty memory; here nothing precedes the first token.

W^P acts on the concatenated heads of k instead of the layer's input: k_proj is square, so the family is the same. Its
bias cancels in the softmax over tokens; the release has it and counts it. Sizes are those of the released TransNormer
comparison (OpenNLPLab/fairseq-evo) and reproduce its parameters: 128.28 M for the encoder of Table 5, 159.46 M for the
decoder of Table 4, of which 267,744 are an output bias, not part of a mechanism.

Shapes: B batch, H heads, N length, D head_dim, G segments, C tokens and S keys of one, R rank, L compressed keys that a
query may see, E = H·D.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention import windows
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import LayerNorm, over_embedding, widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax


@dataclass(frozen=True)
class TransformerLSConfig(AttentionConfig):
    """Long- and short-range attention. None means the released value of the causal or the bidirectional form."""

    window: int | None = None  # w: tokens per segment, causally the last tokens; released: 8, causal 64
    rank: int | None = None  # r: compressed keys per head, causally per segment; released: 32, causal 1
    reach: int | None = field(default=None, metadata={"least": 0})  # bidirectional: seen on either side; published: w/2
    segment_size: int = 32  # l, causal: tokens compressed together; released: 32
    memory: int | None = None  # causal: how far back compressed tokens are seen; None, released: 512, in whole segments
    relative_positions: bool | None = None  # None, as released: in the causal form, unless ``rotary``
    normalise_first: bool = False  # normalise before compressing: released bidirectional code, not Eq. 6
    dropout: float = 0.0  # of the attention matrix, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reach is not None and self.causal:
            raise ValueError(f"reach={self.reach}: is of the bidirectional form, the causal one has its window")
        if self.memory is not None and self.memory % self.segment_size:
            raise ValueError(f"memory={self.memory}: must be a multiple of segment_size={self.segment_size}")
        if self.relative_positions and not self.causal:
            raise ValueError("relative_positions=True: only the causal form has published ones")
        if self.positions_inside and self.heads * self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim}: heads × head_dim must be even with relative_positions")
        if self.normalise_first and self.causal:
            raise ValueError("normalise_first=True: is of the bidirectional form, the released causal one has Eq. 6")

    @property
    def near(self) -> int:
        return self.window or (64 if self.causal else 8)  # w

    @property
    def columns(self) -> int:
        return self.rank or (1 if self.causal else 32)  # r

    @property
    def sides(self) -> tuple[int, int]:
        """How many tokens are seen before and after: the token if causal, else its segment."""
        if self.causal:
            return self.near - 1, 0
        side = max(self.near // 2, 1) if self.reach is None else self.reach
        return side, side

    @property
    def far(self) -> int:
        return self.memory or max(512 // self.segment_size, 1) * self.segment_size

    @property
    def positions_inside(self) -> bool:
        return self.causal and self.rotary == "none" if self.relative_positions is None else self.relative_positions


class RelativePositions(nn.Module):
    """Transformer-XL's r and r' (Dai et al., 2019), sines and cosines of a distance through a matrix each, and u, w.

    The matrices start as N(0, 0.02), the rest at zero. They act on distances, so they are no ``nn.Linear``, which would
    be counted once per token.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, dim = heads, heads * head_dim
        self.near_weight = nn.Parameter(torch.empty(dim, dim))
        self.far_weight = nn.Parameter(torch.empty(dim, dim))
        self.far_bias = nn.Parameter(torch.empty(dim))
        self.content_bias = nn.Parameter(torch.empty(heads, head_dim))  # u
        self.position_bias = nn.Parameter(torch.empty(heads, head_dim))  # w

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(self.near_weight, std=0.02, generator=generator)
        nn.init.normal_(self.far_weight, std=0.02, generator=generator)
        for bias in (self.far_bias, self.content_bias, self.position_bias):
            bias.zero_()

    def near(self, count: int, like: Tensor) -> Tensor:
        """r_0 … r_{count-1}: [H, count, D] in the dtype of ``like``."""
        return self._through(self.near_weight, None, count, like)

    def far(self, count: int, like: Tensor) -> Tensor:
        """r'_0 … r'_{count-1}: [H, count, D]."""
        return self._through(self.far_weight, self.far_bias, count, like)

    def _through(self, weight: Tensor, bias: Tensor | None, count: int, like: Tensor) -> Tensor:
        dim = weight.shape[0]
        distance = torch.arange(count, dtype=torch.float64, device=like.device)
        angles = distance[:, None] * 10_000.0 ** (-torch.arange(0, dim, 2, device=like.device).double() / dim)
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1).to(like.dtype)
        through = F.linear(waves, weight.to(like.dtype), None if bias is None else bias.to(like.dtype))
        return through.unflatten(-1, (self.heads, -1)).transpose(0, 1)


@register("transformer-ls", TransformerLSConfig)
class TransformerLSAttention(Attention):
    """o_i = softmax(q_i [LN_G(P^T K), LN_L(K)]^T / √D) [LN_G(P^T V); LN_L(V)], Eq. 6.

    Segments are counted over each sequence's real tokens. The weights give each token its own share and that of the
    compressed tokens it is part of. The recurrent state, of bounded size, is the window, the current segment and the
    compressed tokens in reach.
    """

    config: TransformerLSConfig

    def __init__(self, config: TransformerLSConfig) -> None:
        super().__init__(config)
        dim = config.heads * config.head_dim
        self.to_columns = nn.Linear(dim, config.heads * config.columns)  # W^P
        self.far_count = config.far // config.segment_size * config.columns  # L, causal
        self.local_norm = LayerNorm(dim, affine=True)  # LN_L
        self.global_norm = LayerNorm(dim, affine=True)  # LN_G
        self.relative = RelativePositions(config.heads, config.head_dim) if config.positions_inside else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """W^P uniform in ±1/√E, norms as the identity, relative positions as documented there."""
        bound = self.to_columns.in_features**-0.5
        nn.init.uniform_(self.to_columns.weight, -bound, bound, generator=generator)
        nn.init.zeros_(self.to_columns.bias)
        for norm in (self.local_norm, self.global_norm):
            norm.reset_parameters()
        if self.relative is not None:
            self.relative.reset_parameters(generator)

    def column_scores(self, k: Tensor) -> Tensor:
        """K W^P before the softmax: [B, H, N, R] of k [B, H, N, D]."""
        together = k.transpose(1, 2).flatten(2)
        scores = F.linear(together, self.to_columns.weight.to(k.dtype), self.to_columns.bias.to(k.dtype))
        return scores.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)

    def content(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """(the queries for the window's keys, those for their distances) from scaled queries [B, H, …, D]."""
        if self.relative is None:
            return q, q
        shape = (q.shape[1], *[1] * (q.ndim - 3), q.shape[-1])
        u, w = self.relative.content_bias.view(shape), self.relative.position_bias.view(shape)
        return q + u.to(q.dtype), q + w.to(q.dtype)

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """One softmax over two matrices: because of the norms no single matrix times the values is the output."""
        q, k, v = self.inputs(q, k, v)
        n, segment, causal = q.shape[2], self.config.segment_size, self.config.causal
        rank_BN = windows.ranks(n, key_padding_mask, q.device)
        real_B1NN = windows.real_pairs(n, key_padding_mask, q.device)
        query, key = rank_BN[:, None, :, None], rank_BN[:, None, None, :]
        before, after = self.config.sides
        start = query if causal else query // self.config.near * self.config.near
        end = query if causal else start + self.config.near - 1
        near_B1NN = (key >= start - before) & (key <= end + after) & real_B1NN

        # P^T, a row per compressed token: of the whole sequence, or causally of each segment, one after the other.
        segments = -(-n // segment) if causal else 1
        token = real_B1NN.any(2)[:, :, None, None]  # [B, 1, 1, 1, N]
        if causal:
            token = token & (key[:, :, None] // segment == torch.arange(segments, device=q.device)[:, None, None])
        projection = masked_softmax(self.column_scores(k).mT[:, :, None], token).flatten(2, 3)  # [B, H, GR, N]
        far_B1NL = real_B1NN.any(-1, keepdim=True)
        if causal:
            own = query // segment
            of = torch.arange(segments, device=q.device).repeat_interleave(self.config.columns)
            far_B1NL = far_B1NL & (of < own) & (of >= own - self.config.far // segment)

        local_k, local_v = over_embedding(self.local_norm, k), over_embedding(self.local_norm, v)
        if self.config.normalise_first:
            k, v = local_k, local_v
        far_k, far_v = (over_embedding(self.global_norm, projection @ x) for x in (k, v))
        q = q / self.config.head_dim**0.5
        to_keys, to_distances = self.content(q)
        near, far = to_keys @ local_k.mT, q @ far_k.mT
        if self.relative is not None:
            table = to_distances @ self.relative.near(n, q).mT
            near = near + table.gather(-1, (query - key).clamp(0, n - 1).expand_as(near))
            last = query // segment * self.config.columns - 1  # the compressed token nearest to the query's segment
            back = last - torch.arange(far.shape[-1], device=q.device)
            table = q @ self.relative.far(far.shape[-1], q).mT
            far = far + table.gather(-1, back.clamp(0, far.shape[-1] - 1).expand_as(far))
        allowed = torch.cat([far_B1NL.expand(-1, -1, -1, far.shape[-1]), near_B1NN], -1)
        p = masked_softmax(torch.cat([far, near], -1), allowed)
        o = self.dropout(p) @ torch.cat([far_v, local_v], 2)
        return self.finish(o), p[..., :-n] @ projection + p[..., -n:]

    def _compressed(self, k: Tensor, *tensors: Tensor) -> list[Tensor]:
        """LN_G of the compressed tokens [B, H, G·R, D] of each segment of k and the ``tensors`` [B, H, N, D]."""
        projection = windows.blocks(self.column_scores(k), self.config.segment_size).softmax(-2).mT  # [B, H, G, R, C]
        return [
            over_embedding(self.global_norm, (projection @ windows.blocks(x, projection.shape[-1])).flatten(2, 3))
            for x in tensors
        ]

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.inputs(q, k, v)
        q = q * self.config.head_dim**-0.5
        attend = self._causal if self.config.causal else self._bidirectional
        return self.finish(windows.on_real_tokens(attend, (q, k, v), key_padding_mask))

    def _bidirectional(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor) -> Tensor:
        n, size = q.shape[2], self.config.near
        real_BN = torch.arange(n, device=q.device) < count_B[:, None]
        projection = masked_softmax(self.column_scores(k).mT, real_BN[:, None, None])  # [B, H, R, N]
        local_k, local_v = over_embedding(self.local_norm, k), over_embedding(self.local_norm, v)
        if self.config.normalise_first:
            k, v = local_k, local_v
        far_k, far_v = (over_embedding(self.global_norm, projection @ x)[:, :, None] for x in (k, v))
        q_BHGCD = windows.blocks(q, size)
        rank_GS = windows.key_ranks(q_BHGCD.shape[2], size, *self.config.sides, q.device)
        there_BGS = (rank_GS >= 0) & (rank_GS < count_B[:, None, None])
        near = there_BGS[:, None, :, None, :].expand(-1, -1, -1, size, -1)
        far = (count_B > 0)[:, None, None, None, None].expand(-1, -1, *near.shape[2:4], far_k.shape[-2])
        o = self._joint(q_BHGCD, far_k, far_v, far, local_k, local_v, near, size)
        return o.flatten(2, 3)[:, :, :n]

    def _causal(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor) -> Tensor:
        n, size, r, device = q.shape[2], self.config.segment_size, self.config.columns, q.device
        local_k, local_v = over_embedding(self.local_norm, k), over_embedding(self.local_norm, v)
        q_BHGCD = windows.blocks(q, size)
        count = q_BHGCD.shape[2]
        reach = min(self.config.far // size, count)
        # The compressed tokens of the segments before each one; no query sees a last, ragged segment.
        far_k, far_v = (windows.neighbourhoods(x, r, reach * r, 0)[..., :-r, :] for x in self._compressed(k, k, v))
        segment_GM = torch.arange(count, device=device)[:, None] - reach + torch.arange(reach, device=device)
        far = (segment_GM >= 0).repeat_interleave(r, -1)[None, None, :, None].expand(-1, -1, -1, size, -1)
        before, _ = self.config.sides
        before = min(before, n)
        rank_GS = windows.key_ranks(count, size, before, 0, device)
        distance_CS = windows.distances(size, before, 0, device)
        there_BGS = (rank_GS >= 0) & (rank_GS < count_B[:, None, None])
        near = there_BGS[:, None, :, None, :] & ((distance_CS >= 0) & (distance_CS <= before))
        o = self._joint(q_BHGCD, far_k, far_v, far, local_k, local_v, near, size)
        return o.flatten(2, 3)[:, :, :n]

    def _joint(
        self, q_BHGCD: Tensor, far_k: Tensor, far_v: Tensor, far: Tensor, k: Tensor, v: Tensor, near: Tensor, size: int
    ) -> Tensor:
        """One softmax over compressed keys [B, H, G or 1, L, D] and windows of k, among ``far`` and ``near``."""
        causal = self.config.causal
        before, after = self.config.sides
        before = min(before, k.shape[2]) if causal else before
        to_keys, to_distances = self.content(q_BHGCD)
        near_scores = to_keys @ windows.neighbourhoods(k, size, before, after).mT
        far_scores = q_BHGCD @ far_k.mT
        if self.relative is not None:
            table = to_distances @ self.relative.near(before + 1, k)[:, None].mT
            place = windows.distances(size, before, after, k.device).clamp(0, before)
            near_scores = near_scores + table.gather(-1, place.expand_as(near_scores))
            far_scores = far_scores + q_BHGCD @ self.relative.far(far_k.shape[-2], k).flip(1)[:, None].mT
        allowed = torch.cat([far.expand(near.shape[0], -1, -1, -1, -1), near], -1)
        p = self.dropout(masked_softmax(torch.cat([far_scores, near_scores], -1), allowed))
        p_far, p_near = p.split([far_k.shape[-2], near_scores.shape[-1]], -1)
        return p_far @ far_v + p_near @ windows.neighbourhoods(v, size, before, after)

    def head_flops(self, length: int) -> int:
        """Without W^P, a linear layer, which models count."""
        d, r, (before, after) = self.config.head_dim, self.config.columns, self.config.sides
        size = self.config.segment_size if self.config.causal else self.config.near
        padded = -(-length // size) * size
        if not self.config.causal:
            return 4 * d * (r * length + (r + size + before + after) * padded)
        reach = min(self.config.far // size, padded // size) * r
        before = min(before, length)
        products = 4 * d * padded * (r + reach + before + size)
        if self.relative is None:
            return products
        return products + 2 * d * (before + 1 + reach) * (padded + self.config.heads * d)

    def state_shapes(self) -> StateShapes:
        d = self.config.head_dim
        sizes = {"near": self.config.near, "segment": self.config.segment_size, "far": self.far_count}
        return {f"{name}_{x}": (size, d) for name, size in sizes.items() for x in ("keys", "values")}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        k, v = widen(k), widen(v)
        (k,) = self.rotated(k)
        n, size, w = k.shape[2], self.config.segment_size, self.config.near
        local_k, local_v = over_embedding(self.local_norm, k), over_embedding(self.local_norm, v)
        whole = n - n % size
        state: State = {}
        for name, local, x in (("keys", local_k, k), ("values", local_v, v)):
            recent = local[:, :, -w:]
            state[f"near_{name}"] = F.pad(recent, (0, 0, w - recent.shape[2], 0)).contiguous()
            state[f"segment_{name}"] = F.pad(x[:, :, whole:], (0, 0, 0, size - (n - whole))).contiguous()
            state[f"far_{name}"] = k.new_zeros(*k.shape[:2], self.far_count, k.shape[3])
        start = max(0, whole - self.config.far)  # of the segments in reach
        if start < whole:
            self._remember(state, k[:, :, start:whole], v[:, :, start:whole])
        return state

    def _remember(self, state: State, k: Tensor, v: Tensor) -> None:
        """Append the compressed tokens of whole segments k, v [B, H, G·C, D] to those in ``state``."""
        for name, new in zip(("far_keys", "far_values"), self._compressed(k, k, v), strict=True):
            state[name] = torch.cat([state[name], new], 2)[:, :, -self.far_count :].contiguous()

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k, v = self.inputs(q, k, v, start=position)
        size, w, after = self.config.segment_size, self.config.near, dict(state)
        local_k, local_v = over_embedding(self.local_norm, k), over_embedding(self.local_norm, v)
        slot = position % size
        for name, local, x in (("keys", local_k, k), ("values", local_v, v)):
            after[f"near_{name}"] = torch.cat([state[f"near_{name}"][:, :, 1:], local], 2)
            after[f"segment_{name}"][:, :, slot] = x[:, :, 0]

        seen = min(w, position + 1)
        known = min(position // size * self.config.columns, self.far_count)
        near = (after[f"near_{name}"][:, :, w - seen :] for name in ("keys", "values"))
        far = (state[f"far_{name}"][:, :, self.far_count - known :] for name in ("keys", "values"))
        (near_k, near_v), (far_k, far_v) = near, far
        q = q * self.config.head_dim**-0.5
        to_keys, to_distances = self.content(q)
        near_scores, far_scores = to_keys @ near_k.mT, q @ far_k.mT
        if self.relative is not None:
            near_scores = near_scores + to_distances @ self.relative.near(seen, q).flip(1).mT
            far_scores = far_scores + q @ self.relative.far(known, q).flip(1).mT
        p = self.dropout(torch.cat([far_scores, near_scores], -1).softmax(-1))
        o = p[..., :known] @ far_v + p[..., known:] @ near_v
        if slot == size - 1:
            self._remember(after, after["segment_keys"], after["segment_values"])
        return self.finish(o), after
