"""The angle tables of a rotation: cosine and sine of position · θ_m for every position and pair of features.

LRPE, which the released TransNormer applies after φ (OpenNLPLab/fairseq-evo@38fa81f), turns pair m of the token at
position n by n·θ_m. The kernels read the tables once per head; made here, they cost 4·N·D bytes to write.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64


@triton.jit(do_not_specialize=["N", "FIRST", "PERIOD"])
def angle_tables(theta, cos, sin, N, FIRST, PERIOD, PAIRS: tl.constexpr, P: tl.constexpr, C: tl.constexpr):
    """cos and sin [N, PAIRS] of the positions FIRST, FIRST + 1, …, taken modulo PERIOD where that is positive."""
    rows = tl.program_id(0) * C + tl.arange(0, C)
    pairs = tl.arange(0, P)
    inside = (rows < N)[:, None] & (pairs < PAIRS)[None, :]
    positions = rows + FIRST
    positions = tl.where(PERIOD > 0, positions % tl.maximum(PERIOD, 1), positions)
    # In float64, and reduced to one turn there: an angle of 65,536 radians is 0.004 off in float32.
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
