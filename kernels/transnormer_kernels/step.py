"""The next token of linear attention as a recurrence, with the state updated in place.

For one head, with the float32 sums S = Σ ψ_j v_j^T [D, D] and z = Σ ψ_j [D] over all earlier tokens:

    S ← S + ψ(k) v^T      t = φ(q)^T S        and with DENOMINATOR    z ← z + ψ(k)      o = t / max(φ(q)·z, floor)

A program does this for ``E`` columns of S, which it reads and writes once: 8·D² bytes per head; q, k and v are
negligible. RMSNorm over the embedding or a head needs all columns, so a second, tiny kernel computes o from t.
"""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from transnormer_kernels.checks import (
    check_choice,
    check_device,
    check_positive,
    check_qkv,
    check_rotation,
)
from transnormer_kernels.configurations import sum_dtype
from transnormer_kernels.linear_ops import NORMS
from transnormer_kernels.norm_attention import Norm, Phi, State, check_count, check_state
from transnormer_kernels.tiles import DENOMINATOR, PHI, feature, reflect, turn


@triton.jit(do_not_specialize=["POSITION"])
def step(
    q, k, v, kv, z, t, u_table, theta, position, POSITION,
    x_b, x_h, H,
    FLOOR: tl.constexpr, NORM: tl.constexpr, D_TRUE: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    MAP: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, COUNTED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """E columns of S and of t [B, H, D] for one head; with COUNTED the position is read from ``position``."""
    pair = tl.program_id(0).to(tl.int64)
    features = tl.arange(0, D)[None, :]
    values = tl.program_id(1) * E + tl.arange(0, E)
    inside = features < D_TRUE
    start = (pair // H) * x_b + (pair % H) * x_h
    phi = feature(tl.load(q + start + features, mask=inside, other=0.0).to(ACC), MAP)
    psi = feature(tl.load(k + start + features, mask=inside, other=0.0).to(ACC), MAP)
    if D_TRUE < D:  # 1+elu is 1 where there is padding
        phi, psi = tl.where(inside, phi, 0.0), tl.where(inside, psi, 0.0)
    x = tl.load(v + start + values, mask=values < D_TRUE, other=0.0).to(ACC)
    if NORM == DENOMINATOR:
        sums = tl.load(z + pair * D_TRUE + features, mask=inside, other=0.0) + psi
        tl.store(z + pair * D_TRUE + features, sums, mask=inside)
        delta = tl.sum(tl.sum(phi * sums, axis=1), axis=0)
    if REFLECTED:
        u = tl.load(u_table + tl.arange(0, D), mask=tl.arange(0, D) < D_TRUE, other=0.0).to(ACC)
        phi, psi = reflect(phi, u), reflect(psi, u)
    if TURNED:
        n = tl.load(position) if COUNTED else POSITION
        pairs = tl.arange(0, D // 2)[None, :]
        angles = tl.load(theta + pairs, mask=pairs < D_TRUE // 2, other=0.0).to(tl.float64) * n
        whole = tl.full([1, 1], 6.283185307179586, tl.float64)
        angles = (angles - tl.floor(angles / whole + 0.5) * whole).to(ACC)
        phi = turn(phi, tl.cos(angles), tl.sin(angles), 1, D)
        psi = turn(psi, tl.cos(angles), tl.sin(angles), 1, D)
    place = kv + pair * D_TRUE * D_TRUE + tl.arange(0, D)[:, None] * D_TRUE + values[None, :]
    seen = (tl.arange(0, D) < D_TRUE)[:, None] & (values < D_TRUE)[None, :]
    S = tl.load(place, mask=seen, other=0.0)
    S += tl.trans(psi) * x[None, :]
    tl.store(place, S, mask=seen)
    out = tl.sum(tl.trans(phi) * S, axis=0)
    if NORM == DENOMINATOR:
        out /= tl.maximum(delta, FLOOR)
    tl.store(t + pair * D_TRUE + values, out.to(t.dtype.element_ty), mask=values < D_TRUE)


@triton.jit
def normalise_token(
    t, o, EPS: tl.constexpr, EPS_OUTSIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr
):
    """o = XNorm(t) of one row of ``WIDTH`` numbers."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    squares = tl.zeros([BLOCK], ACC)
    for first in range(0, WIDTH, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(t + row + columns, mask=columns < WIDTH, other=0.0)
        squares += x * x
    mean = tl.sum(squares, axis=0) / WIDTH
    r = 1.0 / (tl.sqrt(mean) + EPS) if EPS_OUTSIDE else 1.0 / tl.sqrt(mean + EPS)
    for first in range(0, WIDTH, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(t + row + columns, mask=columns < WIDTH, other=0.0)
        tl.store(o + row + columns, (x * r).to(o.dtype.element_ty), mask=columns < WIDTH)


@torch.library.custom_op("transnormer::linear_attention_step", mutates_args=("kv", "z"))
def linear_attention_step(
    q: Tensor, k: Tensor, v: Tensor, kv: Tensor, z: Tensor, phi: str, norm: str, eps: float, eps_placement: str,
    floor: float, theta: Tensor | None, reflection: Tensor | None, position: int, position_tensor: Tensor | None,
) -> Tensor:  # fmt: skip
    """o [B, H, D] of one token; updates ``kv`` and ``z`` (empty without a denominator) in place."""
    batch, heads, d = q.shape
    alike = q.stride() == k.stride() == v.stride() and q.stride(-1) == 1
    q, k, v = (q, k, v) if alike else (x.contiguous() for x in (q, k, v))
    acc = sum_dtype(q.dtype)
    normed = norm in ("embedding", "head")
    o = q.new_empty(batch, heads, d)
    t = q.new_empty(batch, heads, d, dtype=acc) if normed else o
    # With few heads, narrower blocks give more programs. The sums of a head need one program with all columns.
    width = max(16, triton.next_power_of_2(d))
    columns = width if norm == "denominator" else min(width, 64 if batch * heads >= 256 else 16)
    types = {torch.float32: tl.float32, torch.float64: tl.float64}
    nothing = z if reflection is None else reflection
    step[(batch * heads, triton.cdiv(d, columns))](
        q, k, v, kv, z, t, nothing, q if theta is None else theta.contiguous(),
        q if position_tensor is None else position_tensor, position, q.stride(0), q.stride(1), heads, FLOOR=floor,
        NORM=NORMS[norm], D_TRUE=d, D=width, E=columns, MAP=PHI[phi], TURNED=theta is not None,
        REFLECTED=reflection is not None, COUNTED=position_tensor is not None, ACC=types[acc],
    )  # fmt: skip
    if normed:
        row = heads * d if norm == "embedding" else d
        normalise_token[(batch * heads * d // row,)](
            t, o, EPS=eps, EPS_OUTSIDE=eps_placement == "outside", WIDTH=row,
            BLOCK=min(triton.next_power_of_2(row), 1024), ACC=types[acc],
        )  # fmt: skip
    return o


@linear_attention_step.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, kv: Tensor, z: Tensor, phi: str, norm: str, eps: float, eps_placement: str,
    floor: float, theta: Tensor | None, reflection: Tensor | None, position: int, position_tensor: Tensor | None,
) -> Tensor:  # fmt: skip
    return q.new_empty(q.shape)


def norm_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: State,
    *,
    position: int | Tensor = 0,
    phi: Phi = "1+elu",
    norm: Norm = "embedding",
    eps: float = 1e-8,
    eps_placement: Literal["inside", "outside"] = "inside",
    denominator_floor: float = 1e-6,
    theta: Tensor | None = None,
    reflection: Tensor | None = None,
) -> Tensor:
    """o [B, H, D] of the next token's q, k, v [B, H, D]; updates ``state``, which ``norm_attention`` returns, in place.

    Only a rotation uses ``position``, the token's number. As an int64 scalar tensor on q's device it may change between
    replays of a CUDA graph. For the other arguments see ``norm_attention``. No gradient is recorded.
    Raises ValueError or TypeError in one line for arguments that do not fit.
    """
    check_qkv(q, k, v, "[B, H, D]")
    check_device(q, step)
    check_choice("phi", phi, tuple(PHI))
    check_choice("norm", norm, tuple(NORMS))
    check_choice("eps_placement", eps_placement, ("inside", "outside"))
    check_positive("eps", eps)
    check_positive("denominator_floor", denominator_floor)
    check_rotation(theta, reflection, q)
    kv, z = check_state("state", state, q.shape[0], q, norm)
    if not kv.is_contiguous() or (z is not None and not z.is_contiguous()):
        raise ValueError("state: its tensors must be contiguous, because they are updated in place")
    if isinstance(position, Tensor):
        if position.dtype != torch.int64 or position.ndim or position.device != q.device:
            raise ValueError(
                f"position is {position.dtype} on {position.device}: must be an int64 scalar on {q.device}"
            )
    else:
        check_count("position", position, 0)
    with torch.no_grad():
        return linear_attention_step(
            q, k, v, kv, kv.new_empty(0) if z is None else z, phi, norm, eps, eps_placement, denominator_floor, theta,
            reflection, 0 if isinstance(position, Tensor) else position,
            position if isinstance(position, Tensor) else None,
        )  # fmt: skip
