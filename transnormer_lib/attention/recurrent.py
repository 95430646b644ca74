"""What the recurrent forms share: the state, its checks, and the cache that doubles.

A causal mechanism is also a recurrence: o_i follows from q_i, k_i, v_i and a state that sums up all earlier tokens. For
linear attention that is the sum of k_j v_j^T, whose size does not depend on the length; for DiagAttention the current
block; for softmax attention every key and value.

Shapes: B batch, H heads, D head_dim, L room in a cache, … the leading dimensions: B and H, or a block's B.
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
    return {**state, "position": torch.tensor(position, dtype=torch.int64)}


def empty_state(shapes: StateShapes, leading: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> State:
    """The state of zeros before the first token; ``leading`` are the dimensions in front of ``shapes``."""
    rooms = {name: [_SMALLEST_CACHE if size == GROWS else size for size in shape] for name, shape in shapes.items()}
    tensors = {name: torch.zeros(*leading, *room, dtype=dtype, device=device) for name, room in rooms.items()}
    return at_position(tensors, 0)


def repeated(state: State, batch: int) -> State:
    """The state of ``batch`` equal sequences, from that of one."""
    return {name: x.repeat(batch, *[1] * (x.ndim - 1)) if x.ndim else x for name, x in state.items()}


def with_room(cache: Tensor) -> Tensor:
    """A full cache […, L, D] with at least as much room again: appending n tokens costs O(n) copies in all."""
    return F.pad(cache, (0, 0, 0, max(cache.shape[-2], _SMALLEST_CACHE)))


def cache_shapes(keys: int, values: int) -> StateShapes:
    return {"keys": (GROWS, keys), "values": (GROWS, values)}


def cache_of(k: Tensor, v: Tensor) -> State:
    """A cache that holds the tokens k, v […, N, D], with room for as many again."""
    return {"keys": with_room(k), "values": with_room(v)}


def append(state: State, k: Tensor, v: Tensor, position: int) -> tuple[State, Tensor, Tensor]:
    """(the cache with one more token k, v […, 1, D], all keys […, position + 1, D], all values)."""
    keys, values = state["keys"], state["values"]
    if position == keys.shape[-2]:
        keys, values = with_room(keys), with_room(values)
    keys[..., position, :], values[..., position, :] = k[..., 0, :], v[..., 0, :]
    return {"keys": keys, "values": values}, keys[..., : position + 1, :], values[..., : position + 1, :]


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
        if GROWS in shape and held.shape[-2] < position:
            raise ValueError(f"{what}has no room for state['position']={position} tokens")
        if held.dtype != dtype or held.device != x.device:
            raise ValueError(f"state[{name!r}] is {held.dtype} on {held.device}: must be {dtype} on {x.device}")
