"""The recurrent form of what has to see every earlier token: a cache of keys and values whose room doubles.

Shapes: B batch, H heads, N length, D head_dim, L tokens read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.recurrent import State, StateShapes, append, cache_of, cache_shapes


class CachedAttention(Attention):
    """Base of such mechanisms: a subclass writes ``over_cache``."""

    def over_cache(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The output [B, H, 1, D] of the last of L tokens; its turned query, all turned keys and values."""
        raise NotImplementedError

    def state_shapes(self) -> StateShapes:
        return cache_shapes(self.config.head_dim, self.config.head_dim)

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype  # nothing is summed in it

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (k,) = self.turned(k)
        return cache_of(k, v)

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k = self.turned(q, k, start=position)
        after, keys, values = append(state, k, v, position)
        return self.over_cache(q, keys, values), after
