"""Kernels on whole rows: RMSNorm over the embedding, and the two numbers per row of its gradient.

RMSNorm is Definition D.1 of "The Devil in Linear Transformer". A token's norm needs all heads, but a program of an
attention kernel sees only one. So that kernel writes t and Σ t² of its head, and with W = H·D and σ² = Σ_h Σ t² / W
``normalise_rows`` computes in place

    y = t r            r = 1/sqrt(σ² + ε)   (inside)    or   1/(σ + ε)   (outside, as released)

With g = ∂L/∂y the gradient is ∂L/∂t = r (g − y · mean(g ⊙ y) / κ), κ = 1 or σ r. ``row_gradients`` computes two numbers
per token, α = r and β = −r · mean(g ⊙ y) / κ, from which the attention's backward kernel forms α g + β y. With
``PRESCALE`` (float16) t was written divided by its own head's root mean square.
"""

import triton
import triton.language as tl

TINY = tl.constexpr(1e-30)  # its root divides a head of zeros


@triton.jit
def part_size(squares, PART: tl.constexpr):
    """The root mean square by which PRESCALE divides a part of a head, never zero, from its Σ t²."""
    return tl.sqrt(squares / PART + TINY)


@triton.jit(do_not_specialize=["N", "SEQUENCES"])
def normalise_rows(
    o, squares, scale, N, SEQUENCES,
    EPS: tl.constexpr, EPS_OUTSIDE: tl.constexpr, PRESCALE: tl.constexpr, H: tl.constexpr,
    D_TRUE: tl.constexpr, PART: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Replace t by y in the contiguous o [SEQUENCES, N, H, D_TRUE], and write r [SEQUENCES, N]; squares are
    [SEQUENCES, N, H, parts].

    From the last rows of all sequences to the first: those that were written last are still in the L2 cache.
    """
    PARTS: tl.constexpr = (D_TRUE + PART - 1) // PART
    local = N - (tl.program_id(0) // SEQUENCES + 1) * R + tl.arange(0, R)
    rows = (tl.program_id(0) % SEQUENCES).to(tl.int64) * N + local
    seen = local >= 0
    total = tl.load(squares + rows * H * PARTS, mask=seen, other=0.0)
    for part in range(1, H * PARTS):
        total += tl.load(squares + rows * H * PARTS + part, mask=seen, other=0.0)
    mean = total / (H * D_TRUE)
    r = 1.0 / (tl.sqrt(mean) + EPS) if EPS_OUTSIDE else 1.0 / tl.sqrt(mean + EPS)
    tl.store(scale + rows, r, mask=seen)
    for part in range(H * PARTS):
        factor = r
        if PRESCALE:
            factor *= part_size(tl.load(squares + rows * H * PARTS + part, mask=seen, other=0.0), PART)
        columns = part % PARTS * PART + tl.arange(0, PART)
        address = o + (rows * H + part // PARTS)[:, None] * D_TRUE + columns[None, :]
        inside = seen[:, None] & (columns < D_TRUE)[None, :]
        t = tl.load(address, mask=inside, other=0.0).to(r.dtype)
        tl.store(address, (t * factor[:, None]).to(o.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["ROWS", "N"])
def row_gradients(
    g, y, scale, alpha, beta, g_b, g_n, g_h, ROWS, N,
    EPS: tl.constexpr, EPS_OUTSIDE: tl.constexpr, H: tl.constexpr,
    D_TRUE: tl.constexpr, D: tl.constexpr, R: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """α and β [ROWS] from g [B, N, H, D], with any strides but the last, and y [ROWS, H, D], contiguous."""
    rows = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    columns = tl.arange(0, D)
    seen = rows < ROWS
    inside = seen[:, None] & (columns < D_TRUE)[None, :]
    start = (rows // N) * g_b + (rows % N) * g_n
    total = tl.zeros([R], ACC)
    for h in range(H):
        own = tl.load(g + start[:, None] + h * g_h + columns[None, :], mask=inside, other=0.0).to(ACC)
        out = tl.load(y + (rows * H + h)[:, None] * D_TRUE + columns[None, :], mask=inside, other=0.0).to(ACC)
        total += tl.sum(own * out, axis=1)
    r = tl.load(scale + rows, mask=seen, other=0.0)
    mean = total / (H * D_TRUE)
    if EPS_OUTSIDE:
        kappa = 1.0 - EPS * r  # σ r; zero for a row of zeros, whose y is zero too
        mean = tl.where(kappa > 0, mean / kappa, 0.0)
    tl.store(alpha + rows, r, mask=seen)
    tl.store(beta + rows, -r * mean, mask=seen)


@triton.jit(do_not_specialize=["ROWS"])
def denominator_gradients(
    g, o, delta, alpha, d_delta, ROWS,
    FLOOR: tl.constexpr, D_TRUE: tl.constexpr, D: tl.constexpr, R: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """For rows of o = t / max(δ, floor): α = 1 / max(δ, floor), and dδ = −(g·o) α if δ > floor, else 0."""
    rows = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    columns = tl.arange(0, D)
    seen = rows < ROWS
    inside = seen[:, None] & (columns < D_TRUE)[None, :]
    offset = rows[:, None] * D_TRUE + columns[None, :]
    own = tl.load(g + offset, mask=inside, other=0.0).to(ACC) * tl.load(o + offset, mask=inside, other=0.0).to(ACC)
    size = tl.load(delta + rows, mask=seen, other=1.0)
    inverse = 1.0 / tl.maximum(size, FLOOR)
    tl.store(alpha + rows, inverse, mask=seen)
    tl.store(d_delta + rows, tl.where(size > FLOOR, -tl.sum(own, axis=1) * inverse, 0.0), mask=seen)
