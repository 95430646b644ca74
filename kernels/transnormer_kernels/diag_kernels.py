"""Kernels of DiagAttention, forward and backward, tile by tile.

Section 4.3 of "The Devil in Linear Transformer", for one head: a query sees the keys of its own block of W tokens. i
numbers queries and j keys. A_ij is 1 if i and j share a block, j is not padding and, if causal, j ≤ i; else 0. With
c = D^{-1/2}

    s_ij = c q_i·k_j        softmax (T2):  p_ij = A_ij e^{s_ij} / Σ_l A_il e^{s_il}
    t_i = Σ_j p_ij v_j      rela (T1):     p_ij = A_ij max(s_ij, 0)

A tile has T = 64 or 128 rows, of which the first R = ⌊T/W⌋·W hold whole blocks: Q, K, V [T, D], rows beyond R or N
zero. Each program computes one tile of one head independently, since A is zero between tiles:

    S = c Q K^T [T, T]        P = softmax(S) or relu(S) where A, else 0        T = P V

q, k, v are read once and o is written once: 4·D numbers per token and head. If a row of A is all zero, p = 0 and t = 0.
The kernel writes o = t. With RMSNorm over the embedding it also writes Σ t² to ``squares``, and ``rows`` applies the
norm over all heads; ``PRESCALE`` (float16) divides t by its head's root mean square, so that it does not overflow.

The backward pass also runs one program per tile. It recomputes only S, transposed as K Q^T (rows are keys, columns
queries), because dk and dv are sums over queries: so no product takes the transpose of another product's result, which
Triton from 3.4.0 up to 3.7.0 miscompiles on Hopper. With g = ∂L/∂o

    no norm      dt_i = g_i                      α_i = 1
    embedding    dt_i = g_i + (β_i/α_i) o_i      since ∂L/∂t_i = α_i g_i + β_i o_i = α_i dt_i, ``rows.row_gradients``

α_i may be 1e8 (a row of zeros, ε outside the root), so it multiplies P and dP, not dt, which may have a half dtype:

    dv_j = Σ_i p_ij α_i dt_i                                       dV   = (P ⊙ α)^T dT
    dp_ij = α_i dt_i·v_j                                           dP^T = (V dT^T) ⊙ α
    softmax:  ds_ij = p_ij (dp_ij − Σ_l p_il dp_il)                dS^T = P^T ⊙ (dP^T − column sums of P^T ⊙ dP^T)
    rela:     ds_ij = dp_ij where A_ij s_ij > 0, else 0
    dq_i = c Σ_j ds_ij k_j                                         dQ^T = c K^T dS^T      [D, T]
    dk_j = c Σ_i ds_ij q_i                                         dK   = c dS^T Q

The forward pass saves nothing for softmax; its sums are recomputed. q, k, v, g are read once and dq, dk, dv written
once, 7·D numbers; with the norm o is read as well.

LRPE rotates q and k by their position in the block, i mod W, before S: q' = turn(reflect(q)). Then dq = reflect(turn
back(dq')), and with ∂L/∂angle of each row and pair of features, the gradient of θ_m is Σ (i mod W) ∂L/∂angle_im.

The blocks of a tile share products, in which a weight of 0 does not remove a NaN. Keys and values of padding are set to
zero, but a NaN or an infinity in a real token may spread to the other blocks of its tile.
"""

import triton
import triton.language as tl

from transnormer_kernels.rows import part_size
from transnormer_kernels.tiles import angle_gradient, load_tile, load_tile_turns, product, reflect, store_tile, turn

LARGEST_BLOCK = 128
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def place(TILES, H, R: tl.constexpr, T: tl.constexpr, N):
    """(batch index, head, first row, which of the T rows hold a token [T]) of this program; heads vary fastest."""
    program = tl.program_id(0)
    tile = program // H
    first = tile % TILES * R
    local = tl.arange(0, T)
    seen = (local < R) & (local < N - first)
    return (tile // TILES).to(tl.int64), (program % H).to(tl.int64), first.to(tl.int64), seen


@triton.jit
def visible(queries, keys, real_keys, W: tl.constexpr, T: tl.constexpr, CAUSAL: tl.constexpr):
    """A, for positions in the tile and flags that broadcast to [T, T]."""
    allowed = real_keys & (queries >= 0)
    if W <= T // 2:
        allowed = allowed & (queries // W == keys // W)
    if CAUSAL:
        allowed = allowed & (keys <= queries)
    return allowed


@triton.jit
def turned_rows(
    x, u, cos, sin, T: tl.constexpr, D: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Rows of q or k, reflected and rotated for the scores, in their dtype."""
    y = x
    if REFLECTED:
        y = reflect(y.to(ACC), u)
    if TURNED:
        y = turn(y.to(ACC), cos, sin, T, D)
    return y.to(x.dtype)


@triton.jit
def unturned_gradient(
    d, x_pointer, stride, first, kept, u_table, cos_table, sin_table, angle,
    W: tl.constexpr, T: tl.constexpr, D_TRUE: tl.constexpr, D: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, LEARNED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(dx, ``angle`` + x's share of dθ [D/2]) from d [T, D], the gradient of the rotated x.

    Rotating x and its gradient by the same angle does not change y_even g_odd − y_odd g_even, so dθ uses the x before
    the rotation. Tables and x are reloaded from the cache, which saves registers during the products.
    """
    local = tl.arange(0, T)
    columns = tl.arange(0, D)
    u = columns.to(ACC)
    if REFLECTED:
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    if TURNED:
        cos, sin = load_tile_turns(cos_table, sin_table, first * 0, kept, D_TRUE, T, D, ACC)
        d = turn(d, cos, -sin, T, D)
    if LEARNED:
        tl.debug_barrier()
        x = load_tile(x_pointer, first, stride, kept, D_TRUE, T, D).to(ACC)
        if REFLECTED:
            x = reflect(x, u)
        angle += tl.sum(angle_gradient(x, d, T, D) * (local % W).to(ACC)[:, None], axis=0)
    if REFLECTED:
        d = reflect(d, u)
    return d, angle


@triton.jit
def matrix(s, allowed, SCALE: tl.constexpr, SOFTMAX: tl.constexpr, KEYS: tl.constexpr):
    """P from products of queries and keys [T, T] whose keys lie along axis ``KEYS``."""
    if SOFTMAX:
        # Base 2, with log2 e in the scale. The largest exponent is 0; a query without a key has no finite one.
        s = tl.where(allowed, s * (SCALE * _LOG2_E), float("-inf"))
        largest = tl.max(s, axis=KEYS)
        p = tl.exp2(s - tl.expand_dims(tl.where(largest == float("-inf"), 0.0, largest), KEYS))
        total = tl.sum(p, axis=KEYS)
        p *= tl.expand_dims(1.0 / tl.where(total == 0.0, 1.0, total), KEYS)
    else:
        # where instead of maximum, which would drop a NaN that the reference keeps.
        p = tl.where(allowed, tl.where(s < 0, 0.0, s * SCALE), 0.0)
    return p


@triton.jit(do_not_specialize=["N", "TILES"])
def diag_outputs(
    q, k, v, real, u_table, cos_table, sin_table, o, squares,
    q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, o_b, o_n, o_h, N, H, TILES,
    SCALE: tl.constexpr, SOFTMAX: tl.constexpr, CAUSAL: tl.constexpr, NORMED: tl.constexpr, PRESCALE: tl.constexpr,
    W: tl.constexpr, R: tl.constexpr, T: tl.constexpr, D_TRUE: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write t of one tile of one head to ``o``, and with NORMED Σ t² to ``squares`` [B, N, H]."""
    b, h, first, seen = place(TILES, H, R, T, N)
    q += b * q_b + h * q_h
    k += b * k_b + h * k_h
    v += b * v_b + h * v_h
    o += b * o_b + h * o_h
    local = tl.arange(0, T)
    real_rows = seen
    if MASKED:
        real_rows = seen & (tl.load(real + b * N + first + local, mask=seen, other=0) != 0)
    queries = load_tile(q, first, q_n, seen, D_TRUE, T, D)
    keys = load_tile(k, first, k_n, real_rows, D_TRUE, T, D)
    values = load_tile(v, first, v_n, real_rows, D_TRUE, T, D)
    u, cos, sin = seen, seen, seen
    if REFLECTED:
        columns = tl.arange(0, D)
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    if TURNED:
        cos, sin = load_tile_turns(cos_table, sin_table, first * 0, seen, D_TRUE, T, D, ACC)
    queries = turned_rows(queries, u, cos, sin, T, D, TURNED, REFLECTED, ACC)
    keys = turned_rows(keys, u, cos, sin, T, D, TURNED, REFLECTED, ACC)

    s = product(queries, tl.trans(keys), OPERAND, ACC, PRECISION)
    allowed = visible(local[:, None], local[None, :], real_rows[None, :], W, T, CAUSAL)
    t = product(matrix(s, allowed, SCALE, SOFTMAX, 1), values, OPERAND, ACC, PRECISION)
    if NORMED:
        total = tl.sum(t * t, axis=1)
        tl.store(squares + (b * N + first + local) * H + h, total, mask=seen)
        if PRESCALE:
            t *= (1.0 / part_size(total, D))[:, None]
    store_tile(o, t, first, o_n, seen, D_TRUE, T, D)


@triton.jit(do_not_specialize=["N", "TILES"])
def diag_gradients(
    q, k, v, real, u_table, cos_table, sin_table, g, o, alpha, beta, dq, dk, dv, turns,
    q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, g_b, g_n, g_h, d_b, d_n, d_h, N, H, TILES,
    SCALE: tl.constexpr, SOFTMAX: tl.constexpr, CAUSAL: tl.constexpr, NORMED: tl.constexpr, LEARNED: tl.constexpr,
    W: tl.constexpr, R: tl.constexpr, T: tl.constexpr, D_TRUE: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write dq, dk, dv of one tile of one head (with o's strides), and with LEARNED dθ to ``turns`` [programs, D/2]."""
    # Barriers stop the compiler from loading early where registers are scarce.
    HEAVY: tl.constexpr = TURNED or (NORMED and T * D > 8192)
    b, h, first, seen = place(TILES, H, R, T, N)
    q += b * q_b + h * q_h
    k += b * k_b + h * k_h
    v += b * v_b + h * v_h
    g += b * g_b + h * g_h
    own = b * d_b + h * d_h
    local = tl.arange(0, T)
    real_rows = seen
    if MASKED:
        real_rows = seen & (tl.load(real + b * N + first + local, mask=seen, other=0) != 0)
    u, cos, sin = seen, seen, seen
    if REFLECTED:
        columns = tl.arange(0, D)
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    queries = load_tile(q, first, q_n, seen, D_TRUE, T, D)
    if TURNED:
        cos, sin = load_tile_turns(cos_table, sin_table, first * 0, seen, D_TRUE, T, D, ACC)
    queries = turned_rows(queries, u, cos, sin, T, D, TURNED, REFLECTED, ACC)
    if TURNED:
        tl.debug_barrier()
        cos, sin = load_tile_turns(cos_table, sin_table, first * 0, seen, D_TRUE, T, D, ACC)
    keys = load_tile(k, first, k_n, real_rows, D_TRUE, T, D)
    keys = turned_rows(keys, u, cos, sin, T, D, TURNED, REFLECTED, ACC)

    # Rows are keys j, columns queries i.
    s = product(keys, tl.trans(queries), OPERAND, ACC, PRECISION)
    if HEAVY:
        tl.debug_barrier()
    dt = load_tile(g, first, g_n, seen, D_TRUE, T, D)
    if NORMED:
        a = tl.load(alpha + b * N + first + local, mask=seen, other=1.0).to(ACC)
        share = tl.load(beta + b * N + first + local, mask=seen, other=0.0).to(ACC) / a
        dt = (dt.to(ACC) + share[:, None] * load_tile(o + own, first, d_n, seen, D_TRUE, T, D).to(ACC)).to(OPERAND)
        if HEAVY:
            tl.debug_barrier()
    values = load_tile(v, first, v_n, real_rows, D_TRUE, T, D)
    dp = product(values, tl.trans(dt), OPERAND, ACC, PRECISION)
    allowed = visible(local[None, :], local[:, None], real_rows[:, None], W, T, CAUSAL)
    p = matrix(s, allowed, SCALE, SOFTMAX, 0)
    if NORMED:
        dp *= a[None, :]
    if SOFTMAX:
        ds = p * (dp - tl.sum(p * dp, axis=0)[None, :])
    else:
        ds = tl.where(p > 0, dp, 0.0)
    ds = ds.to(OPERAND)
    if NORMED:
        p *= a[None, :]
    d_values = product(p, dt, OPERAND, ACC, PRECISION)
    store_tile(dv + own, tl.where(real_rows[:, None], d_values, 0.0), first, d_n, seen, D_TRUE, T, D)
    if HEAVY:
        tl.debug_barrier()
    angle = tl.zeros([D // 2], ACC)
    d_keys = product(ds, queries, OPERAND, ACC, PRECISION) * SCALE
    d_keys, angle = unturned_gradient(
        d_keys, k, k_n, first, real_rows, u_table, cos_table, sin_table, angle, W, T, D_TRUE, D, TURNED, REFLECTED,
        LEARNED, ACC,
    )  # fmt: skip
    store_tile(dk + own, tl.where(real_rows[:, None], d_keys, 0.0), first, d_n, seen, D_TRUE, T, D)
    if HEAVY:
        tl.debug_barrier()
    d_queries = tl.trans(product(tl.trans(keys), ds, OPERAND, ACC, PRECISION)) * SCALE
    d_queries, angle = unturned_gradient(
        d_queries, q, q_n, first, seen, u_table, cos_table, sin_table, angle, W, T, D_TRUE, D, TURNED, REFLECTED,
        LEARNED, ACC,
    )  # fmt: skip
    store_tile(dq + own, d_queries, first, d_n, seen, D_TRUE, T, D)
    if LEARNED:
        pairs = tl.arange(0, D // 2)
        address = turns + tl.program_id(0).to(tl.int64) * (D_TRUE // 2) + pairs
        tl.store(address, angle, mask=pairs < D_TRUE // 2)
