"""What the recurrent forms share: the state, its checks, and the cache that doubles.

A causal mechanism is also a recurrence: o_i follows from q_i, k_i, v_i and a state that sums up all earlier tokens. For
linear attention that is the sum of k_j v_j^T, whose size does not depend on the length; for DiagAttention the current
block; for softmax attention every key and value.

Shapes: B batch, H heads, D head_dim, L room in a cache.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

# What a mechanism remembers between two tokens, as contiguous tensors, so that it can be saved and restored. "position"
# holds the number of tokens read, an int64 scalar on the CPU, so that reading it waits for no other device.
State = dict[str, Tensor]

# The shapes of a state's tensors beyond [B, H], by name; GROWS marks room that grows with the position.
StateShapes = Mapping[str, tuple[int, ...]]
GROWS = -1

_SMALLEST_CACHE = 16  # tokens


def at_position(state: State, position: int) -> State:
    """``state`` with the number of tokens it has read."""
    return {**state, "position": torch.tensor(position, dtype=torch.int64)}


def empty_state(shapes: StateShapes, leading: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> State:
    """The state of zeros before the first token; ``leading`` are the dimensions in front of ``shapes``."""
    rooms = {name: [_SMALLEST_CACHE if size == GROWS else size for size in shape] for name, shape in shapes.items()}
    tensors = {name: torch.zeros(*leading, *room, dtype=dtype, device=device) for name, room in rooms.items()}
    return at_position(tensors, 0)


def with_room(cache_BHLD: Tensor) -> Tensor:
    """A copy of a full cache with at least as much room again, so that appending n tokens costs O(n) copies in all."""
    return F.pad(cache_BHLD, (0, 0, 0, max(cache_BHLD.shape[2], _SMALLEST_CACHE)))


def cache_shapes(keys: int, values: int) -> StateShapes:
    """The shapes of a cache of all keys and values."""
    return {"keys": (GROWS, keys), "values": (GROWS, values)}


def cache_of(k_BHND: Tensor, v_BHNE: Tensor) -> State:
    """A cache that holds the given tokens, with room for as many again."""
    return {"keys": with_room(k_BHND), "values": with_room(v_BHNE)}


def append(state: State, k_BH1D: Tensor, v_BH1E: Tensor, position: int) -> tuple[State, Tensor, Tensor]:
    """(the cache with one more token, all keys [B, H, position + 1, D], all values)."""
    keys, values = state["keys"], state["values"]
    if position == keys.shape[2]:
        keys, values = with_room(keys), with_room(values)
    keys[:, :, position], values[:, :, position] = k_BH1D[:, :, 0], v_BH1E[:, :, 0]
    seen = slice(position + 1)
    return {"keys": keys, "values": values}, keys[:, :, seen], values[:, :, seen]


def check_step(heads: int, head_dim: int, q_BHD: Tensor, k_BHD: Tensor, v_BHD: Tensor) -> None:
    """Refuse q, k, v of one token that do not fit the config or each other: ValueError in one line."""
    for name, x in (("q", q_BHD), ("k", k_BHD), ("v", v_BHD)):
        shape = tuple(x.shape)
        if len(shape) != 3 or shape[1:] != (heads, head_dim) or shape != q_BHD.shape:
            expected = f"[B, {heads}, {head_dim}]" if x is q_BHD else f"q's [B, H, D] = {tuple(q_BHD.shape)}"
            raise ValueError(f"{name}.shape={shape}: must be {expected}, one token per sequence")
        if not x.is_floating_point() or x.dtype != q_BHD.dtype:
            raise ValueError(f"{name}.dtype={x.dtype}: must be a floating-point dtype, the same for q, k and v")


def check_state(state: State, shapes: StateShapes, dtype: torch.dtype, name_of_x: str, x: Tensor) -> None:
    """Refuse a state made for other tokens than x [..., D], or by another mechanism: ValueError in one line."""
    if set(state) != {*shapes, "position"}:
        raise ValueError(f"state={sorted(state)}: must hold {', '.join(sorted({*shapes, 'position'}))}")
    position = state["position"]
    if position.dtype != torch.int64 or position.ndim or position < 0:
        raise ValueError(f"state['position']={position}: must be the number of tokens read, an int64 scalar")
    for name, shape in shapes.items():
        held, expected = state[name], (*x.shape[:-1], *shape)
        what = f"state[{name!r}].shape={tuple(held.shape)}: "
        sizes = [there if size == GROWS else size for there, size in zip(held.shape, expected, strict=False)]
        if tuple(held.shape) != tuple(sizes) or len(sizes) != len(expected):
            wanted = ", ".join("any" if size == GROWS else str(size) for size in expected)
            raise ValueError(f"{what}must be ({wanted}) for {name_of_x}.shape={tuple(x.shape)}")
        if GROWS in shape and held.shape[2] < position:
            raise ValueError(f"{what}has no room for state['position']={position} tokens")
        if held.dtype != dtype or held.device != x.device:
            raise ValueError(f"state[{name!r}] is {held.dtype} on {held.device}: must be {dtype} on {x.device}")
