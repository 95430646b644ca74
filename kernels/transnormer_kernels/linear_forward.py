"""Forward kernels of linear attention, tile by tile.

Eq. 13 of "The Devil in Linear Transformer" with φ, for one head; i and j count tokens, φ_i = φ(q_i), ψ_j = φ(k_j):

    t_i = Σ_{j ≤ i} (φ_i·ψ_j) v_j  =  Σ_{j in i's tile, j ≤ i} (φ_i·ψ_j) v_j  +  φ_i S        S = Σ_{j before} ψ_j v_j^T

A tile has C tokens: Φ, Ψ, V [C, D]. With M the lower triangle, diagonal included,

    T = (M ⊙ Φ Ψ^T) V + Φ S            then          S ← S + Ψ^T V

so a sequence is a loop over tiles that carries S [D, D] in registers. To fill a GPU with few sequences and heads, a
sequence is cut into segments: ``segment_states`` sums Ψ^T V of each, ``scan`` turns the sums into what stands before
each segment, ``outputs`` starts there. Where attention is not causal S is the sum over all tokens, and T = Φ S.

With a rotation (LRPE) Φ and Ψ are turned after φ; padding's ψ is zero, whatever its content. What becomes of T:

    NO_NORM         o = t
    HEAD_NORM       o = t r,  r = 1/sqrt(σ² + ε)  or  1/(σ + ε),  σ² the mean of squares of the head's D numbers
    EMBEDDING_NORM  o = t, and Σ t² to ``squares``: r needs all heads (``rows.normalise_rows``)
    DENOMINATOR     o = t / max(δ, floor),  δ_i = Σ_{j ≤ i} φ_i·ψ_j of features that are not turned (Eq. 3)

With ``PRESCALE`` t is divided by its head's root mean square, so that a float16 o never overflows; r makes up for it.
"""

import triton
import triton.language as tl

from transnormer_kernels.programs import sequence_of
from transnormer_kernels.rows import head_size
from transnormer_kernels.tiles import (
    DENOMINATOR,
    EMBEDDING_NORM,
    HEAD_NORM,
    feature,
    load_tile,
    load_state,
    load_tile_turns,
    product,
    reflect,
    store_tile,
    store_state,
    turn,
)


@triton.jit
def key_features(
    k, real, start, stride, seen, u, cos, sin,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(ψ(k), ψ(k) turned, as an operand), each [C, D], and which rows hold a token. ψ is zero on padding."""
    if MASKED:
        seen = seen & (tl.load(real + start + tl.arange(0, C), mask=seen, other=0) != 0)
    x = load_tile(k, start, stride, seen, D_TRUE, C, D).to(ACC)
    psi = feature(x, seen[:, None] & (tl.arange(0, D) < D_TRUE)[None, :], MAP)
    turned = psi
    if REFLECTED:
        turned = reflect(turned, u)
    if TURNED:
        turned = turn(turned, cos, sin, C, D)
    return psi, turned.to(OPERAND), seen


@triton.jit
def query_features(
    q, start, stride, seen, u, cos, sin,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(φ(q), φ(q) turned, as an operand), each [C, D]."""
    x = load_tile(q, start, stride, seen, D_TRUE, C, D).to(ACC)
    phi = feature(x, seen[:, None] & (tl.arange(0, D) < D_TRUE)[None, :], MAP)
    turned = phi
    if REFLECTED:
        turned = reflect(turned, u)
    if TURNED:
        turned = turn(turned, cos, sin, C, D)
    return phi, turned.to(OPERAND)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS", "real_b"])
def segment_states(
    k, v, real, u_table, cos_table, sin_table, cu_seqlens, states, sums,
    x_b, x_n, x_h, real_b, N, H, SEGMENT, SEGMENTS,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, SUMS: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Ψ^T V of each segment to ``states`` [pairs, SEGMENTS, D, D], and with SUMS Σψ to ``sums`` [pairs, SEGMENTS, D]."""
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    real += b * real_b + first
    columns = tl.arange(0, D)
    u = columns.to(ACC)
    if REFLECTED:
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    S = tl.zeros([D, D], ACC)
    z = tl.zeros([D], ACC)
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        cos, sin = u, u
        if TURNED:
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        psi, turned, seen = key_features(
            k, real, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC
        )
        values = load_tile(v, start, x_n, seen, D_TRUE, C, D)
        S += product(tl.trans(turned), values, OPERAND, ACC, PRECISION)
        if SUMS:
            z += tl.sum(psi, axis=0)
    place = tl.program_id(0).to(tl.int64)
    store_state(states + place * D_TRUE * D_TRUE, S, D_TRUE, D)
    if SUMS:
        tl.store(sums + place * D_TRUE + columns, z, mask=columns < D_TRUE)


@triton.jit(do_not_specialize=["SEGMENTS"])
def scan(
    states, initial, total, SEGMENTS, WIDTH,
    FROM_END: tl.constexpr, HAS_INITIAL: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """``states`` [pairs, SEGMENTS, WIDTH] to what stands before each segment (after it, FROM_END); sums to ``total``.

    In place and in a fixed order. ``initial`` [pairs, WIDTH] stands before the first segment (after the last).
    """
    pair = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    carried = tl.zeros([BLOCK], ACC)
    if HAS_INITIAL:
        carried += tl.load(initial + pair * WIDTH + columns, mask=inside, other=0.0)
    for step in range(0, SEGMENTS):
        segment = SEGMENTS - 1 - step if FROM_END else step
        place = states + (pair * SEGMENTS + segment) * WIDTH + columns
        own = tl.load(place, mask=inside, other=0.0)
        tl.store(place, carried, mask=inside)
        carried += own
    tl.store(total + pair * WIDTH + columns, carried, mask=inside)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS", "SAVED_SEGMENTS", "real_b"])
def outputs(
    q, k, v, real, u_table, cos_table, sin_table, cu_seqlens, states, sums, o, scale, saved_states, saved_sums,
    final_state, final_sum,
    x_b, x_n, x_h, real_b, N, H, SEGMENT, SEGMENTS, SAVED_SEGMENTS,
    FLOOR: tl.constexpr, EPS: tl.constexpr, EPS_OUTSIDE: tl.constexpr, NORM: tl.constexpr, PRESCALE: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_STATE: tl.constexpr, SAVE_EVERY: tl.constexpr, FINAL: tl.constexpr,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o of one segment, and ``scale`` [B, N, H]: Σ t² (embedding), r (head) or δ (denominator).

    ``states`` and ``sums`` hold S and Σψ before each segment, or over all tokens. SAVE_EVERY > 0 writes the carried
    ones at multiples of so many rows to ``saved_states``, for the backward pass; FINAL those after the last row.
    """
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    o += ((b * N + first) * H + h) * D_TRUE
    scale += (b * N + first) * H + h
    real += b * real_b + first
    columns = tl.arange(0, D)
    u = columns.to(ACC)
    if REFLECTED:
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)

    S = tl.zeros([D, D], ACC)
    z = tl.zeros([D], ACC)
    if HAS_STATE:
        place = tl.program_id(0).to(tl.int64) if CAUSAL else pair.to(tl.int64)
        S += load_state(states + place * D_TRUE * D_TRUE, D_TRUE, D, False)
        if NORM == DENOMINATOR:
            z += tl.load(sums + place * D_TRUE + columns, mask=columns < D_TRUE, other=0.0)

    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        cos, sin = u, u
        if TURNED:
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        if SAVE_EVERY > 0:
            if start % SAVE_EVERY == 0:
                place = pair.to(tl.int64) * SAVED_SEGMENTS + start // SAVE_EVERY
                store_state(saved_states + place * D_TRUE * D_TRUE, S, D_TRUE, D)
                if NORM == DENOMINATOR:
                    tl.store(saved_sums + place * D_TRUE + columns, z, mask=columns < D_TRUE)

        if CAUSAL:
            psi, psi_turned, real_rows = key_features(
                k, real, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC
            )
            values = load_tile(v, start, x_n, real_rows, D_TRUE, C, D)
        phi, phi_turned = query_features(
            q, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, TURNED, REFLECTED, OPERAND, ACC
        )
        t = product(phi_turned, S, OPERAND, ACC, PRECISION)
        if NORM == DENOMINATOR:
            delta = tl.sum(phi * z[None, :], axis=1)
        if CAUSAL:
            past = rows[:, None] >= rows[None, :]
            s = tl.where(past, product(phi_turned, tl.trans(psi_turned), OPERAND, ACC, PRECISION), 0.0)
            t += product(s, values, OPERAND, ACC, PRECISION)
            S += product(tl.trans(psi_turned), values, OPERAND, ACC, PRECISION)
            if NORM == DENOMINATOR:
                if TURNED or REFLECTED:
                    s = tl.where(past, product(phi, tl.trans(psi), OPERAND, ACC, PRECISION), 0.0)
                delta += tl.sum(s, axis=1)
                z += tl.sum(psi, axis=0)

        per_row = scale + rows.to(tl.int64) * H
        if NORM == HEAD_NORM:
            mean = tl.sum(t * t, axis=1) / D_TRUE
            r = 1.0 / (tl.sqrt(mean) + EPS) if EPS_OUTSIDE else 1.0 / tl.sqrt(mean + EPS)
            t *= r[:, None]
            tl.store(per_row, r, mask=seen)
        elif NORM == EMBEDDING_NORM:
            squares = tl.sum(t * t, axis=1)
            tl.store(per_row, squares, mask=seen)
            if PRESCALE:
                t *= (1.0 / head_size(squares, D_TRUE))[:, None]
        elif NORM == DENOMINATOR:
            t *= (1.0 / tl.maximum(delta, FLOOR))[:, None]
            tl.store(per_row, delta, mask=seen)
        store_tile(o, t, start, H * D_TRUE, seen, D_TRUE, C, D)

    if FINAL:
        if segment == SEGMENTS - 1:
            store_state(final_state + pair.to(tl.int64) * D_TRUE * D_TRUE, S, D_TRUE, D)
            if NORM == DENOMINATOR:
                tl.store(final_sum + pair.to(tl.int64) * D_TRUE + columns, z, mask=columns < D_TRUE)
