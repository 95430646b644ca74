"""Longformer: a sliding window, and a few global tokens that see all tokens and are seen by all.

Beltagy et al., 2020 (arXiv:2004.05150), Section 3.1. A token sees window/2 tokens on either side. The first
``global_tokens`` of a sequence attend everywhere, with their own projections Q_g, K_g, V_g, which start as copies of
the others ("Linear Projections for Global Attention"). Here those projections act on q, k and v and start as the
identity: composed with the layer's own they are the published ones. The dilated windows of that section, which the
paper uses in some heads of its character models, are left out.

The causal form is that of Section 4, autoregressive language models: the last ``window`` tokens, the token itself among
them, and by default no global token. Configured global tokens are seen by all later tokens and see only their own past,
so that no output depends on later tokens.

Shapes: B batch, H heads, N length, D head_dim, G blocks, C tokens per block, S keys of a block, T global tokens.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention import windows
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.norms import over_embedding, widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax


@dataclass(frozen=True)
class LongformerConfig(AttentionConfig):
    window: int = 512  # w: half of it on either side, or causally the last w tokens; published: 512
    global_tokens: int | None = field(default=None, metadata={"least": 0})  # T; None: one, or causally none
    global_projections: bool = True  # Q_g, K_g, V_g for the rows of the global tokens
    dropout: float = 0.0  # of the attention matrix, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.causal and self.window % 2:
            raise ValueError(f"window={self.window}: must be even, half of it is on either side")

    @property
    def first_tokens(self) -> int:
        return self.global_tokens if self.global_tokens is not None else 0 if self.causal else 1

    @property
    def reach(self) -> tuple[int, int]:
        """How many tokens a token sees before and after itself."""
        return (self.window - 1, 0) if self.causal else (self.window // 2, self.window // 2)


@register("longformer", LongformerConfig)
class LongformerAttention(Attention):
    """p_ij = softmax_j(q_i·k_j / √D) over i's window and the global tokens; of q_g and k_g over all for a global i.

    Windows and global tokens are counted over each sequence's real tokens. The recurrent state is the last ``window``
    keys and values, and those of the global tokens.
    """

    config: LongformerConfig

    def __init__(self, config: LongformerConfig) -> None:
        super().__init__(config)
        self.global_weight: nn.Parameter | None = None
        self.global_bias: nn.Parameter | None = None
        if config.first_tokens and config.global_projections:
            # Bare parameters: a model's scheme for linear layers would overwrite the identity.
            dim = config.heads * config.head_dim
            self.global_weight = nn.Parameter(torch.empty(3, dim, dim))
            self.global_bias = nn.Parameter(torch.empty(3, dim))
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the global projections to the identity, which makes them copies of the local ones."""
        if self.global_weight is not None and self.global_bias is not None:
            self.global_weight.zero_()
            self.global_weight.diagonal(dim1=1, dim2=2).fill_(1.0)
            self.global_bias.zero_()

    def global_inputs(self, q: Tensor, k: Tensor, v: Tensor, start: int = 0) -> tuple[Tensor, ...]:
        """Q_g, K_g, V_g of Section 3.1, as ``inputs``; q may have fewer tokens than k and v."""
        tensors = [widen(q), widen(k), widen(v)]
        if self.global_weight is not None and self.global_bias is not None:
            layers = zip(self.global_weight.to(tensors[0].dtype), self.global_bias.to(tensors[0].dtype), strict=True)
            projections = [partial(F.linear, weight=weight, bias=bias) for weight, bias in layers]
            tensors = [over_embedding(project, x) for project, x in zip(projections, tensors, strict=True)]
        return *(self.rotated(x, start=start)[0] for x in tensors[:2]), tensors[2]

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
        """[B, 1, N, N]: the window, the columns and the rows of the global tokens."""
        rank_BN = windows.ranks(n, key_padding_mask, device)
        query, key = rank_BN[:, None, :, None], rank_BN[:, None, None, :]
        before, after = self.config.reach
        near = (query - key <= before) & (key - query <= after)
        seen = near | (query < self.config.first_tokens) | (key < self.config.first_tokens)
        if self.config.causal:
            seen &= key <= query
        return seen & windows.real_pairs(n, key_padding_mask, device)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        return masked_softmax(q @ k.mT / self.config.head_dim**0.5, allowed)

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rows of global tokens multiply other values than the rest, so each row has one of two matrices."""
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        q_g, k_g, v_g = self.global_inputs(q, k, v) if self.config.first_tokens else (q, k, v)
        q, k, v = self.inputs(q, k, v)
        matrix = self.attention_matrix(q, k, allowed)
        if not self.config.first_tokens:
            return self.finish(self.dropout(matrix) @ v), matrix
        is_global = (windows.ranks(q.shape[2], key_padding_mask, q.device) < self.config.first_tokens)[:, None, :, None]
        matrix = torch.where(is_global, self.attention_matrix(q_g, k_g, allowed), matrix)
        dropped = self.dropout(matrix)
        return self.finish(torch.where(is_global, dropped @ v_g, dropped @ v)), matrix

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        t = min(self.config.first_tokens, q.shape[2])
        tensors: tuple[Tensor, ...] = self.inputs(q, k, v)
        if t:
            if key_padding_mask is None:  # the global tokens are in front: others need no global query
                keys = slice(t if self.config.causal else None)  # causal, a global token sees only such
                q, k, v = q[:, :, :t], k[:, :, keys], v[:, :, keys]
            tensors = (*tensors, *self.global_inputs(q, k, v))
        return self.finish(windows.on_real_tokens(self._attend, tensors, key_padding_mask))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        """The output for real tokens at the front; ``rest`` ends with their number."""
        *of_global, count_B = rest
        t = min(self.config.first_tokens, q.shape[2])
        o = self._local(q, k, v, count_B, t)
        if not t:
            return o
        q_g, k_g, v_g = of_global
        key_N = torch.arange(k_g.shape[2], device=q.device)
        allowed = (key_N < count_B[:, None])[:, None, None]
        if self.config.causal:
            allowed = allowed & (key_N <= torch.arange(t, device=q.device)[:, None])
        p = self.dropout(self.attention_matrix(q_g[:, :, :t], k_g, allowed))
        return torch.cat([p @ v_g, o[:, :, t:]], dim=2)

    def _block(self, n: int) -> int:
        """C: about a quarter of the window, so that few keys outside it are scored; equal blocks fill n."""
        size = max(1, self.config.window // 4)
        return -(-n // -(-n // size))

    def _local(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor, t: int) -> Tensor:
        """Windows and the first t keys in one softmax, [B, H, N, D]."""
        n, device = q.shape[2], q.device
        size = self._block(n)
        before, after = (min(side, n) for side in self.config.reach)
        q_BHGCD = windows.blocks(q * self.config.head_dim**-0.5, size)
        rank_GS = windows.key_ranks(q_BHGCD.shape[2], size, before, after, device)
        distance_CS = windows.distances(size, before, after, device)
        near_CS = (distance_CS <= before) & (distance_CS >= -after)
        there_BGS = (rank_GS >= t) & (rank_GS < count_B[:, None, None])  # a global key has a column of its own
        allowed = there_BGS[:, None, :, None, :] & near_CS
        scores = q_BHGCD @ windows.neighbourhoods(k, size, before, after).mT
        if t:
            first_BT = torch.arange(t, device=device) < count_B[:, None]
            first = first_BT[:, None, None, None, :].expand(-1, -1, *allowed.shape[2:4], -1)
            scores = torch.cat([q_BHGCD @ k[:, :, None, :t].mT, scores], dim=-1)
            allowed = torch.cat([first, allowed], dim=-1)
        p = self.dropout(masked_softmax(scores, allowed))
        o = p[..., t:] @ windows.neighbourhoods(v, size, before, after)
        if t:
            o = o + p[..., :t] @ v[:, :, None, :t]
        return o.flatten(2, 3)[:, :, :n]

    def head_flops(self, length: int) -> int:
        """Without a mask; with one, the global projections are those of all tokens."""
        d, t = self.config.head_dim, min(self.config.first_tokens, length)
        size = self._block(length)
        padded = -(-length // size) * size
        keys = size + sum(min(side, length) for side in self.config.reach)
        global_keys = t if self.config.causal else length
        projected = 0 if self.global_weight is None else t + 2 * global_keys
        return 4 * d * (padded * (keys + t) + t * global_keys) + 2 * self.config.heads * d * d * projected

    def state_shapes(self) -> StateShapes:
        d, t = self.config.head_dim, self.config.first_tokens
        names = ("first_keys", "first_values", "global_keys", "global_values") if t else ()
        return {"keys": (self.config.window, d), "values": (self.config.window, d)} | dict.fromkeys(names, (t, d))

    def state_after(self, k: Tensor, v: Tensor) -> State:
        w, t = self.config.window, self.config.first_tokens
        of_global = self.global_inputs(k[:, :, :t], k[:, :, :t], v[:, :, :t]) if t else ()
        _, k, v = self.inputs(k, k, v)
        last = {"keys": k[:, :, -w:], "values": v[:, :, -w:]}
        state = {name: F.pad(x, (0, 0, w - x.shape[2], 0)).contiguous() for name, x in last.items()}
        if t:
            first = {"first_keys": k, "first_values": v, "global_keys": of_global[1], "global_values": of_global[2]}
            for name, x in first.items():
                state[name] = F.pad(x[:, :, :t], (0, 0, 0, max(t - x.shape[2], 0))).contiguous()
        return state

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        w, t = self.config.window, self.config.first_tokens
        of_global = self.global_inputs(q, k, v, start=position) if position < t else ()
        q, k, v = self.inputs(q, k, v, start=position)
        keys, values = (torch.cat([state[x][:, :, 1:], new], 2) for x, new in (("keys", k), ("values", v)))
        after = {**state, "keys": keys, "values": values}
        if position < t:
            q_g, k_g, v_g = of_global
            new = {"first_keys": k, "first_values": v, "global_keys": k_g, "global_values": v_g}
            for name, x in new.items():
                after[name][:, :, position] = x[:, :, 0]
            seen = slice(position + 1)
            o = self._one(q_g, after["global_keys"][:, :, seen], after["global_values"][:, :, seen])
            return self.finish(o), after
        seen = slice(max(0, w - 1 - position + t), None)  # the cache ends with this token; global ones are added below
        keys, values = keys[:, :, seen], values[:, :, seen]
        if t:
            keys = torch.cat([after["first_keys"], keys], 2)
            values = torch.cat([after["first_values"], values], 2)
        return self.finish(self._one(q, keys, values)), after

    def _one(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self.dropout(self.attention_matrix(q, keys, None)) @ values
