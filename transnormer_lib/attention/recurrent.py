"""What the recurrent forms share: the state, the checks of a step's inputs, and the cache of keys and values.

A causal mechanism is a recurrence as well: o_i follows from q_i, k_i, v_i and a state that holds what it needs to know
of all earlier tokens. For linear attention that is the sum of k_j v_j^T, whose size does not depend on the length; for
DiagAttention the current block; for softmax attention every key and value.

Shapes: B batch, H heads, D head_dim, L room in a cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Everything a step needs besides its token; "position" is the number of tokens read, an int64 scalar on the CPU, so
# that reading it waits for no other device. Can be saved with torch.save and safetensors and restored.
State = dict[str, Tensor]

_FIRST_ROOM = 64  # tokens that a new cache has room for


def with_position(state: State, position: int) -> State:
    """``state`` and the number of tokens it has seen."""
    return {**state, "position": torch.tensor(position, dtype=torch.int64)}


def check_causal(causal: bool) -> None:
    """Refuse a recurrent form where a token sees later ones."""
    if not causal:
        raise ValueError("causal=False: only causal attention has a recurrent form, since no token may see later ones")


def check_step(heads: int, head_dim: int, tokens: dict[str, Tensor]) -> None:
    """Refuse q, k, v of one token that do not fit the config or each other, in one line."""
    q_BHD = tokens["q"]
    for name, x in tokens.items():
        shape = tuple(x.shape)
        if len(shape) != 3 or shape[1:] != (heads, head_dim):
            raise ValueError(f"{name}.shape={shape}: must be [B, {heads}, {head_dim}], one token per sequence")
        if x.shape != q_BHD.shape:
            raise ValueError(f"{name}.shape={shape}: must equal q.shape={tuple(q_BHD.shape)}")
        if not x.is_floating_point() or x.dtype != q_BHD.dtype:
            raise ValueError(f"{name}.dtype={x.dtype}: must be a floating-point dtype, the same for q, k and v")


def check_state(state: State, like: State, q_BHD: Tensor, grows: bool) -> None:
    """Refuse a state that was not made for such tokens, in one line.

    ``like`` is an empty state of the mechanism for one sequence, on any device: its names, dtypes and all sizes but the
    batch, and the room in a cache that ``grows``, must be those of ``state``.
    """
    if set(state) != {*like, "position"}:
        raise ValueError(f"state={sorted(state)}: must hold {', '.join(sorted({*like, 'position'}))}")
    for name, expected in like.items():
        x = state[name]
        shape = [q_BHD.shape[0], *expected.shape[1:]]
        if grows and x.ndim == len(shape):
            shape[2] = x.shape[2]
        if list(x.shape) != shape:
            raise ValueError(
                f"state[{name!r}].shape={tuple(x.shape)}: must be {tuple(shape)}, as q.shape={tuple(q_BHD.shape)} and "
                "the config say"
            )
        if x.dtype != expected.dtype or x.device != q_BHD.device:
            raise ValueError(
                f"state[{name!r}] is {x.dtype} on {x.device}: must be {expected.dtype} on {q_BHD.device}, "
                f"as q.dtype={q_BHD.dtype} says"
            )


def room_for(n: int) -> int:
    """The room [tokens] of a cache that holds n tokens and will get one more: at most 2n, or the smallest cache."""
    return max(_FIRST_ROOM, 1 << n.bit_length())


def grown(cache_BHLD: Tensor, room: int) -> Tensor:
    """A copy of the cache with zeros behind it up to ``room`` tokens."""
    b, h, n, d = cache_BHLD.shape
    larger = cache_BHLD.new_zeros(b, h, room, d)
    larger[:, :, :n] = cache_BHLD
    return larger
