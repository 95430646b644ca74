"""The angle tables of a rotation: cosine and sine of position · θ_m for every position and pair of features.

LRPE, which the released TransNormer applies after φ (OpenNLPLab/fairseq-evo@38fa81f), rotates pair m of the token at
position n by n·θ_m. The tables take 4·N·D bytes, and the kernels read them once per head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64


@triton.jit(do_not_specialize=["N", "FIRST", "PERIOD"])
def angle_tables(theta, cos, sin, N, FIRST, PERIOD, PAIRS: tl.constexpr, P: tl.constexpr, C: tl.constexpr):
    """cos and sin [N, PAIRS] of the positions FIRST, FIRST + 1, …, modulo PERIOD if it is positive."""
    rows = tl.program_id(0) * C + tl.arange(0, C)
    pairs = tl.arange(0, P)
    inside = (rows < N)[:, None] & (pairs < PAIRS)[None, :]
    positions = rows + FIRST
    positions = tl.where(PERIOD > 0, positions % tl.maximum(PERIOD, 1), positions)
    # Reduced to one turn in float64: in float32 an angle of 65,536 radians is off by 0.004.
    angles = positions.to(tl.float64)[:, None] * tl.load(theta + pairs, mask=pairs < PAIRS, other=0.0).to(tl.float64)
    turn = tl.full([1, 1], 6.283185307179586, tl.float64)  # a literal would be rounded to float32
    angles -= tl.floor(angles / turn + 0.5) * turn
    angles = angles.to(cos.dtype.element_ty)
    address = rows.to(tl.int64)[:, None] * PAIRS + pairs[None, :]
    tl.store(cos + address, tl.cos(angles), mask=inside)
    tl.store(sin + address, tl.sin(angles), mask=inside)


def tables(theta: Tensor, length: int, first: int, dtype: torch.dtype, period: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin [length, D/2] of ``dtype`` for θ [D/2] in radians per token, on θ's device."""
    pairs = theta.shape[0]
    cos = theta.new_empty(length, pairs, dtype=dtype)
    sin = torch.empty_like(cos)
    grid = (triton.cdiv(length, _ROWS),)
    angle_tables[grid](
        theta.contiguous(), cos, sin, length, first, period, PAIRS=pairs, P=triton.next_power_of_2(pairs), C=_ROWS
    )
    return cos, sin


def rotated_features(
    x: Tensor, phi: str, theta: Tensor, reflection: Tensor | None, position: int, cu_seqlens: Tensor | None
) -> Tensor:
    """φ(x), reflected and rotated, for x [B, N, H, D]: the kernels' own arithmetic as PyTorch operations.

    For head dimensions whose rows the backward kernel splits. Every operation costs a pass over memory.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide = x.to(dtype)
    if phi == "elu":
        wide = torch.nn.functional.elu(wide)
    elif phi == "1+elu":
        wide = wide.clamp(max=0.0).exp() + wide.clamp(min=0.0)
    elif phi == "relu":
        wide = wide.relu()
    if reflection is not None:
        u = reflection.to(dtype)
        wide = wide - (wide @ u)[..., None] * (2 * u / u.square().sum())
    positions = torch.arange(x.shape[1], device=x.device)
    if cu_seqlens is not None:  # each packed sequence starts at position 0
        starts = cu_seqlens.to(torch.int64)
        positions = positions - starts[torch.searchsorted(starts, positions, right=True) - 1]
    angles = (positions + position).double()[:, None] * theta.double()
    cos, sin = angles.cos().to(dtype)[:, None], angles.sin().to(dtype)[:, None]
    even, odd = wide[..., 0::2], wide[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)
