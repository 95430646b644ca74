"""What the gated blocks share: one dense layer, a gate, a narrow z, its affine images, the loop over tokens.

    u, v, z = silu(x W)                        one dense layer dim → 2e + s
    q = R (γ_q ⊙ z + β_q), k alike             per-feature scale and offset of z, then RoPE
    y = (u ⊙ A v) W_o                          A from q and k: what the mechanisms differ in

This is the gated attention unit of Hua et al. (2022, arXiv:2202.10447), Section 3: one head, whose gate does the work
of a feed-forward part. A mechanism writes ``attention_matrix`` (A as published), ``mix`` (A v, fast), ``mix_flops``
and, for decoding, ``cache``, ``remember`` and ``mix_one``.

Shapes: B batch, N length, D width of the model, e width of u and v, s width of z.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.block import AttentionBlock, BlockConfig
from transnormer_lib.attention.interface import without_autocast
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes, cache_of, cache_shapes
from transnormer_lib.attention.rotary import Rotary

Images = tuple[Tensor, ...]  # the affine images of z, each [B, N, s]


@dataclass(frozen=True)
class GatedConfig(BlockConfig):
    s: int = 128  # width of z, of queries and of keys
    expansion: int = 2  # e / dim
    rope: bool = True  # rotate queries and keys by their positions
    token_shift: bool = False  # the first half of x comes from the token before: FLASH-pytorch's option, not published

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope and self.s % 2:
            raise ValueError(f"s={self.s}: must be even with rope=True, which rotates pairs of features")

    @property
    def e(self) -> int:
        return self.expansion * self.dim


def uniform_linear(parent: nn.Module, generator: torch.Generator | None) -> None:
    """Draw the weights and biases of linear layers uniformly in ±1/√fan_in, torch's default."""
    for linear in parent.modules():
        if isinstance(linear, nn.Linear):
            bound = linear.in_features**-0.5
            nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
            if linear.bias is not None:
                nn.init.uniform_(linear.bias, -bound, bound, generator=generator)


class GatedBlock(AttentionBlock):
    """Base of the gated blocks. A subclass calls ``reset_parameters`` as the last thing its constructor does."""

    config: GatedConfig
    images: ClassVar[int] = 2  # how many affine images of z it takes

    def __init__(self, config: GatedConfig, bias: bool, offset: bool, dropout: float = 0.0, gated: bool = True) -> None:
        super().__init__(config)
        self.gated = gated  # False: no u, for comparison
        self.in_proj = nn.Linear(config.dim, (1 + gated) * config.e + config.s, bias)
        self.out_proj = nn.Linear(config.e, config.dim, bias)
        self.gamma = nn.Parameter(torch.empty(self.images, config.s))
        self.beta = nn.Parameter(torch.empty(self.images, config.s)) if offset else None
        self.rotary = Rotary(config.s, learned=False) if config.rope else None
        self.dropout = nn.Dropout(dropout)  # of the attention matrix
        self.shifted_width = (config.dim + 1) // 2  # features of a token that a token shift moves

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Linear layers uniform in ±1/√fan_in, torch's default; γ ones, β zeros."""
        uniform_linear(self, generator)
        nn.init.ones_(self.gamma)
        if self.beta is not None:
            nn.init.zeros_(self.beta)

    def attention_matrix(self, images: Images, allowed: Tensor) -> Tensor:
        """A as published, [B, N, N], zero where ``allowed`` [B or 1, N, N] is False."""
        raise NotImplementedError

    def mix(self, images: Images, v_BNE: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """A v [B, N, e], the fast form; v is zero on padding."""
        raise NotImplementedError

    def finish(self, u: Tensor | None, o_BNE: Tensor) -> Tensor:
        """u ⊙ o [B, N, e], what the output projection reads."""
        return o_BNE if u is None else u * o_BNE

    def cache(self) -> StateShapes:
        """The names and the shapes beyond [B] of what is remembered between tokens."""
        raise NotImplementedError

    def remember(self, images: Images, v_BNE: Tensor) -> State:
        raise NotImplementedError

    def mix_one(self, images: Images, v_B1E: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """(A v [B, 1, e] of the next token, the state after it)."""
        raise NotImplementedError

    def check_length(self, length: int) -> None:
        """Refuse a sequence that is too long. Nothing unless overridden."""

    def project(
        self, x_BND: Tensor, key_padding_mask: Tensor | None, start: int = 0, before_B1H: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor, Images]:
        """(u, v [B, N, e], the rotated images of z) in the wide dtype; v is zero on padding, u None without a gate.

        ``before`` is the half that a token shift moves in from the token before the first; None if there is none.
        """
        if self.config.token_shift:
            moved, kept = x_BND[..., : self.shifted_width], x_BND[..., self.shifted_width :]
            first = torch.zeros_like(moved[:, :1]) if before_B1H is None else before_B1H
            x_BND = torch.cat([torch.cat([first, moved[:, :-1]], dim=1), kept], dim=-1)
        t = self.in_proj(x_BND)
        with without_autocast(t.device.type):
            e, s = self.config.e, self.config.s
            *gate, v, z = F.silu(widen(t)).split([e] * (1 + self.gated) + [s], dim=-1)
            if key_padding_mask is not None:
                v = v.masked_fill(key_padding_mask[..., None], 0.0)
            images = z * widen(self.gamma)[:, None, None]
            if self.beta is not None:
                images = images + widen(self.beta)[:, None, None]
            if self.rotary is not None:
                (images,) = self.rotary(images, start=start)
            return gate[0] if gate else None, v, images.unbind(0)

    def branch(self, x_BND: Tensor, key_padding_mask: Tensor | None, reference: bool) -> tuple[Tensor, Tensor | None]:
        n, matrix = x_BND.shape[1], None
        self.check_length(n)
        u, v, images = self.project(x_BND, key_padding_mask)
        with without_autocast(x_BND.device.type):
            if reference:
                matrix = self.attention_matrix(images, self.allowed(n, key_padding_mask, x_BND.device))
                o = self.dropout(matrix) @ v
            else:
                o = self.mix(images, v, key_padding_mask)
            gated = self.finish(u, o).to(x_BND.dtype)
        return self.out_proj(gated), None if matrix is None else matrix[:, None]

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
        """Which key each query may see: bool [B or 1, N, N]."""
        allowed = torch.ones(1, n, n, dtype=torch.bool, device=device)
        if self.config.causal:
            allowed = allowed.tril()
        return allowed if key_padding_mask is None else allowed & ~key_padding_mask[:, None, :]

    @staticmethod
    def real(v_BNE: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """1 on real tokens and 0 on padding, in v's dtype: [B or 1, N]."""
        if key_padding_mask is None:
            return torch.ones(1, v_BNE.shape[1], dtype=v_BNE.dtype, device=v_BNE.device)
        return (~key_padding_mask).to(v_BNE.dtype)

    def state_shapes(self) -> StateShapes:
        return {**self.cache(), **({"before": (1, self.shifted_width)} if self.config.token_shift else {})}

    def state_after(self, x_BND: Tensor) -> State:
        _, v, images = self.project(x_BND, None)
        with without_autocast(x_BND.device.type):
            return self._with_last(self.remember(images, v), x_BND)

    def recurrence(self, x_BD: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        self.check_length(position + 1)
        before = state["before"].to(x_BD.dtype) if self.config.token_shift else None
        u, v, images = self.project(x_BD[:, None], None, position, before)
        with without_autocast(x_BD.device.type):
            o, after = self.mix_one(images, v, state, position)
            gated = self.finish(u, o).to(x_BD.dtype)
        return self.out_proj(gated)[:, 0], self._with_last(after, x_BD[:, None])

    def _with_last(self, state: State, x_BND: Tensor) -> State:
        """``state`` with the part of the last token that a token shift moves."""
        if not self.config.token_shift:
            return state
        return {**state, "before": widen(x_BND[:, -1:, : self.shifted_width]).clone()}


class CachedBlock(GatedBlock):
    """Base of the gated blocks whose tokens see all earlier ones: the state is a cache of all keys and values."""

    def cache(self) -> StateShapes:
        return cache_shapes(self.config.s, self.config.e)

    def remember(self, images: Images, v_BNE: Tensor) -> State:
        return cache_of(images[1], v_BNE)

    def mix_flops(self, length: int) -> int:
        return 2 * length * length * (self.config.s + self.config.e)
