"""Arithmetic on tiles that the kernels share: products, feature maps, the rotation, the norm's gradient.

Triton functions, inlined into the kernels that call them. Shapes: C rows (tokens) of a tile, D head dimension padded to
a power of two (columns beyond the true one hold zeros).

``ACC`` is the dtype of all sums: float32, or float64 for float64 inputs. ``OPERAND`` is the dtype of the factors of
matrix products: that of the inputs.
"""

import triton
import triton.language as tl
from triton.language import target_info

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

PHI = {"elu": 0, "1+elu": 1, "relu": 2, "identity": 3}

# How t_i = Σ_j s_ij v_j is normalised; see ``linear_forward``.
NO_NORM = tl.constexpr(0)
HEAD_NORM = tl.constexpr(1)
EMBEDDING_NORM = tl.constexpr(2)
DENOMINATOR = tl.constexpr(3)

ELU = tl.constexpr(PHI["elu"])
ONE_PLUS_ELU = tl.constexpr(PHI["1+elu"])
RELU = tl.constexpr(PHI["relu"])


@triton.jit
def product(a, b, OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr):
    """a @ b, summed in ``ACC``."""
    return tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision=PRECISION, out_dtype=ACC)


@triton.jit
def state_product(x, S, count, FIRST: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr):
    """x @ S, or with FIRST S @ x, for a state S of ``count`` tokens; in float16 by their mean, since sums overflow."""
    if OPERAND == tl.float16:
        S = S / count
    t = product(S, x, OPERAND, ACC, PRECISION) if FIRST else product(x, S, OPERAND, ACC, PRECISION)
    return t * count if OPERAND == tl.float16 else t


@triton.jit
def load_part(pointer, start, stride, seen, column, D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    """C rows from ``start`` on, W columns from ``column`` on: zeros where not ``seen`` and beyond ``D_TRUE``.

    Only a scalar depends on ``start``, so tensors with the same stride share the registers of their addresses.
    """
    columns = column + tl.arange(0, W)
    inside = seen[:, None] & (columns < D_TRUE)[None, :]
    address = (pointer + tl.cast(start, tl.int64) * stride) + (tl.arange(0, C)[:, None] * stride + columns[None, :])
    return tl.load(address, mask=inside, other=0.0)


@triton.jit
def store_part(pointer, tile, start, stride, seen, column, D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    """The inverse of ``load_part``."""
    columns = column + tl.arange(0, W)
    inside = seen[:, None] & (columns < D_TRUE)[None, :]
    address = (pointer + tl.cast(start, tl.int64) * stride) + (tl.arange(0, C)[:, None] * stride + columns[None, :])
    tl.store(address, tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def load_tile(pointer, start, stride, seen, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """``load_part`` of whole rows."""
    return load_part(pointer, start, stride, seen, 0, D_TRUE, C, D)


@triton.jit
def store_tile(pointer, tile, start, stride, seen, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """``store_part`` of whole rows."""
    store_part(pointer, tile, start, stride, seen, 0, D_TRUE, C, D)


@triton.jit
def load_state(
    pointer, row, column, D_TRUE: tl.constexpr, ROWS: tl.constexpr, W: tl.constexpr, TRANSPOSED: tl.constexpr
):
    """A tile [ROWS, W] from (row, column) on, of a contiguous state [D_TRUE, D_TRUE] or of its transpose."""
    i, j = row + tl.arange(0, ROWS)[:, None], column + tl.arange(0, W)[None, :]
    inside = (i < D_TRUE) & (j < D_TRUE)
    offset = j * D_TRUE + i if TRANSPOSED else i * D_TRUE + j
    return tl.load(pointer + offset, mask=inside, other=0.0)


@triton.jit
def store_state(pointer, tile, column, D_TRUE: tl.constexpr, ROWS: tl.constexpr, W: tl.constexpr):
    """Write a tile [ROWS, W] to the columns from ``column`` on of a contiguous state [D_TRUE, D_TRUE]."""
    i, j = tl.arange(0, ROWS)[:, None], column + tl.arange(0, W)[None, :]
    tl.store(pointer + i * D_TRUE + j, tile, mask=(i < D_TRUE) & (j < D_TRUE))


@triton.jit
def exponential(x):
    """e^x. On an NVIDIA GPU in float32 two instructions instead of five: a result below 2^-126 becomes zero."""
    if INTERPRETED or x.dtype == tl.float64 or not target_info.is_cuda():
        return tl.exp(x)
    # Not pure, or else it is computed again for each layout in which its result is needed.
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def feature(x, MAP: tl.constexpr):
    """φ(x)."""
    if MAP == ELU:
        return tl.where(x > 0, x, exponential(x) - 1.0)
    elif MAP == ONE_PLUS_ELU:
        return tl.where(x > 0, x + 1.0, exponential(x))
    elif MAP == RELU:
        return tl.maximum(x, 0.0)
    else:
        return x


@triton.jit
def feature_gradient(x, g, MAP: tl.constexpr):
    """g ⊙ φ′(x)."""
    if (MAP == ELU) or (MAP == ONE_PLUS_ELU):
        return tl.where(x > 0, g, g * exponential(x))
    elif MAP == RELU:
        return tl.where(x > 0, g, 0.0)
    else:
        return g


@triton.jit
def reflect(x, u):
    """x − 2u(u·x)/(u·u) for the rows of x [C, D]; its own inverse and its own transpose."""
    return x - tl.sum(x * u[None, :], axis=1)[:, None] * (2.0 * u / tl.sum(u * u))[None, :]


@triton.jit
def turn(x, cos, sin, C: tl.constexpr, D: tl.constexpr):
    """Neighbouring pairs of x [C, D] rotated by the angles with these cosines and sines [C, D/2]; −sin rotates back."""
    even, odd = tl.split(tl.reshape(x, [C, D // 2, 2]))
    return tl.reshape(tl.join(even * cos - odd * sin, even * sin + odd * cos), [C, D])


@triton.jit
def angle_gradient(y, g, C: tl.constexpr, D: tl.constexpr):
    """∂L/∂angle [C, D/2] of a ``turn`` with result y and gradient g: dy/dangle = (−y_odd, y_even)."""
    y_even, y_odd = tl.split(tl.reshape(y, [C, D // 2, 2]))
    g_even, g_odd = tl.split(tl.reshape(g, [C, D // 2, 2]))
    return g_odd * y_even - g_even * y_odd


@triton.jit
def load_angles(
    cos, sin, start, seen, column, D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr, ACC: tl.constexpr
):
    """Cosines and sines [C, W/2] of the rows' positions, for the pairs from ``column`` on; tables are [N, D_TRUE/2]."""
    pairs = column // 2 + tl.arange(0, W // 2)
    inside = seen[:, None] & (pairs < D_TRUE // 2)[None, :]
    address = tl.cast(start, tl.int64) * (D_TRUE // 2) + (tl.arange(0, C)[:, None] * (D_TRUE // 2) + pairs[None, :])
    c = tl.load(cos + address, mask=inside, other=1.0).to(ACC)
    s = tl.load(sin + address, mask=inside, other=0.0).to(ACC)
    return c, s


@triton.jit
def angles(
    cos, sin, start, seen, column, D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr, TURNED: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """``load_angles`` if TURNED, else two numbers that nobody reads."""
    if TURNED:
        return load_angles(cos, sin, start, seen, column, D_TRUE, C, W, ACC)
    else:
        return start, start


@triton.jit
def load_tile_turns(cos, sin, start, seen, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, ACC: tl.constexpr):
    """``load_angles`` of whole rows."""
    return load_angles(cos, sin, start, seen, 0, D_TRUE, C, D, ACC)
