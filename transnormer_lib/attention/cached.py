"""The recurrent form of mechanisms whose tokens see every earlier one: a cache of keys and values that doubles.

Shapes: B batch, H heads, N length, D head_dim, L tokens read.
"""

import torch
from torch import Tensor

from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.recurrent import State, StateShapes, append, cache_of, cache_shapes


class CachedAttention(Attention):
    """Base of such mechanisms; a subclass writes ``over_cache``."""

    def over_cache(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The output [B, H, 1, D] of the last of L tokens, for its rotated query, all rotated keys and all values."""
        raise NotImplementedError

    def state_shapes(self) -> StateShapes:
        return cache_shapes(self.config.head_dim, self.config.head_dim)

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype  # nothing is summed in it

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (k,) = self.rotated(k)
        return cache_of(k, v)

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k = self.rotated(q, k, start=position)
        after, keys, values = append(state, k, v, position)
        return self.over_cache(q, keys, values), after
