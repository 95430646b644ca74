"""Forward kernels of linear attention, tile by tile.

Eq. 13 of "The Devil in Linear Transformer" with φ, for one head; i and j count tokens, φ_i = φ(q_i), ψ_j = φ(k_j):

    t_i = Σ_{j ≤ i} (φ_i·ψ_j) v_j  =  Σ_{j in i's tile, j ≤ i} (φ_i·ψ_j) v_j  +  φ_i S        S = Σ_{j before} ψ_j v_j^T

A tile has C tokens: Φ, Ψ, V [C, D]. With M the lower triangle, diagonal included,

    T = (M ⊙ Φ Ψ^T) V + Φ S            then          S ← S + Ψ^T V

so a program loops over the tiles and carries S [D, D] in registers. To fill a GPU with few sequences and heads, a
sequence is cut into segments: ``segment_states`` sums Ψ^T V of each, ``scan`` turns these sums into the state before
each segment, from which ``outputs`` starts. If attention is not causal, S is the sum over all tokens, and T = Φ S.

LRPE rotates Φ and Ψ after φ. The ψ of padding is zero, whatever its content. T is then normalised:

    NO_NORM                     o = t
    HEAD_NORM, EMBEDDING_NORM   o = t, and Σ t² goes to ``scale``: r needs the whole row (``rows.normalise_rows``)
    DENOMINATOR                 o = t / max(δ, floor),  δ_i = Σ_{j ≤ i} φ_i·ψ_j of unrotated features (Eq. 3)

With ``PRESCALE`` t is divided by its own root mean square, so that a float16 o never overflows; r corrects for it. A
program of ``outputs`` computes ``PART`` columns of o, for which it needs only those of V and S, so S fits in registers.
"""

import triton
import triton.language as tl

from transnormer_kernels.programs import sequence_of
from transnormer_kernels.rows import part_size
from transnormer_kernels.tiles import (
    DENOMINATOR,
    ONE_PLUS_ELU,
    angles,
    feature,
    load_part,
    load_state,
    product,
    reflect,
    state_product,
    store_part,
    store_state,
    turn,
)


@triton.jit
def features(
    x, u_table, cos, sin, start, stride, seen, column,
    D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr, MAP: tl.constexpr, SUMMED: tl.constexpr,
    TURNED: tl.constexpr, REFLECTED: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(φ(x), φ(x) rotated, as an operand), each [C, W]; ``cos``, ``sin`` are the tile's, if TURNED. A reflection needs
    whole rows.

    1+elu is 1 where x is padding. Columns of padding are set to zero. Rows that are not ``seen`` meet rows of zeros in
    every product, those of v or of ∂L/∂t, so they are set to zero only if φ(x) enters a sum of its own (``SUMMED``), or
    in float16, where a score of such a row may be infinite.
    """
    columns = column + tl.arange(0, W)
    phi = feature(load_part(x, start, stride, seen, column, D_TRUE, C, W).to(ACC), MAP)
    if MAP == ONE_PLUS_ELU:
        if SUMMED or OPERAND == tl.float16:
            phi = tl.where(seen[:, None] & (columns < D_TRUE)[None, :], phi, 0.0)
        elif D_TRUE % W > 0:
            phi = tl.where((columns < D_TRUE)[None, :], phi, 0.0)
    turned = phi
    if REFLECTED:
        turned = reflect(turned, tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC))
    if TURNED:
        turned = turn(turned, cos, sin, C, W)
    return phi, turned.to(OPERAND)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS", "real_b"])
def segment_states(
    k, v, real, u_table, cos_table, sin_table, cu_seqlens, states, sums,
    x_b, x_n, x_h, real_b, N, H, SEGMENT, SEGMENTS,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, SUMS: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Ψ^T V of a segment to ``states`` [pairs, SEGMENTS, D, D], and with SUMS Σψ to ``sums`` [pairs, SEGMENTS, D]."""
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    real += b * real_b + first
    S = tl.zeros([D, D], ACC)
    z = tl.zeros([D], ACC)
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        if MASKED:
            seen = seen & (tl.load(real + rows, mask=seen, other=0) != 0)
        cos, sin = angles(cos_table, sin_table, start, seen, 0, D_TRUE, C, D, TURNED, ACC)
        psi, turned = features(
            k, u_table, cos, sin, start, x_n, seen, 0, D_TRUE, C, D, MAP, SUMS, TURNED, REFLECTED,
            OPERAND, ACC,
        )  # fmt: skip
        values = load_part(v, start, x_n, seen, 0, D_TRUE, C, D)
        S += product(tl.trans(turned), values, OPERAND, ACC, PRECISION)
        if SUMS:
            z += tl.sum(psi, axis=0)
    place = tl.program_id(0).to(tl.int64)
    store_state(states + place * D_TRUE * D_TRUE, S, 0, D_TRUE, D, D)
    if SUMS:
        columns = tl.arange(0, D)
        tl.store(sums + place * D_TRUE + columns, z, mask=columns < D_TRUE)


@triton.jit(do_not_specialize=["SEGMENTS"])
def scan(
    states, initial, total, SEGMENTS, WIDTH,
    FROM_END: tl.constexpr, HAS_INITIAL: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Replace ``states`` [pairs, SEGMENTS, WIDTH] by their sums before each segment (FROM_END: after it).

    In place, in a fixed order; the sum of all goes to ``total``. The sums start from ``initial`` [pairs, WIDTH].
    """
    pair = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    carried = tl.zeros([BLOCK], ACC)
    if HAS_INITIAL:
        carried += tl.load(initial + pair * WIDTH + columns, mask=inside, other=0.0)
    for step in tl.range(SEGMENTS, num_stages=4):  # loads ahead: nothing else hides their latency
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
    FLOOR: tl.constexpr, NORM: tl.constexpr, PRESCALE: tl.constexpr, PART: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_STATE: tl.constexpr, SAVE_EVERY: tl.constexpr, FINAL: tl.constexpr,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write PART columns of o of one segment, and to ``scale`` their Σ t² [B, N, H, parts] or δ [B, N, H].

    ``states`` and ``sums`` hold S and Σψ before each segment, or over all tokens. With SAVE_EVERY > 0 the carried S is
    saved every so many rows to ``saved_states``, for the backward pass; with FINAL it is written after the last row.
    """
    PARTS: tl.constexpr = (D_TRUE + PART - 1) // PART
    SUMMED: tl.constexpr = NORM == DENOMINATOR
    part, place = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    pair, segment = place // SEGMENTS, place % SEGMENTS
    column = part * PART
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    own = (b * N + first) * H + h
    real += b * real_b + first
    columns = tl.arange(0, D)
    pair = pair.to(tl.int64)

    S = tl.zeros([D, PART], ACC)
    z = tl.zeros([D], ACC)
    if HAS_STATE:
        before = place.to(tl.int64) if CAUSAL else pair
        S += load_state(states + before * D_TRUE * D_TRUE, 0, column, D_TRUE, D, PART, False)
        if NORM == DENOMINATOR:
            z += tl.load(sums + before * D_TRUE + columns, mask=columns < D_TRUE, other=0.0)

    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        if SAVE_EVERY > 0:
            if start % SAVE_EVERY == 0:
                saved = pair * SAVED_SEGMENTS + start // SAVE_EVERY
                store_state(saved_states + saved * D_TRUE * D_TRUE, S, column, D_TRUE, D, PART)
                if NORM == DENOMINATOR:
                    tl.store(
                        saved_sums + saved * D_TRUE + columns, z, mask=(columns < D_TRUE) & (columns * 0 + part == 0)
                    )

        # Once for q and k: their tables take more room in shared memory than q and k do.
        cos, sin = angles(cos_table, sin_table, start, seen, 0, D_TRUE, C, D, TURNED, ACC)
        if CAUSAL:
            real_rows = seen
            if MASKED:
                real_rows = seen & (tl.load(real + rows, mask=seen, other=0) != 0)
            psi, psi_turned = features(
                k, u_table, cos, sin, start, x_n, real_rows, 0, D_TRUE, C, D, MAP, SUMMED, TURNED,
                REFLECTED, OPERAND, ACC,
            )  # fmt: skip
            values = load_part(v, start, x_n, real_rows, column, D_TRUE, C, PART)
        phi, phi_turned = features(
            q, u_table, cos, sin, start, x_n, seen, 0, D_TRUE, C, D, MAP, SUMMED, TURNED, REFLECTED,
            OPERAND, ACC,
        )  # fmt: skip
        count = tl.cast(start + 1 if CAUSAL else length, ACC)
        t = state_product(phi_turned, S, count, False, OPERAND, ACC, PRECISION)
        if NORM == DENOMINATOR:
            delta = tl.sum(phi * z[None, :], axis=1)
        if CAUSAL:
            past = tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :]
            s = tl.where(past, product(phi_turned, tl.trans(psi_turned), OPERAND, ACC, PRECISION), 0.0)
            t += product(s, values, OPERAND, ACC, PRECISION)
            S += product(tl.trans(psi_turned), values, OPERAND, ACC, PRECISION)
            if NORM == DENOMINATOR:
                if TURNED or REFLECTED:
                    s = tl.where(past, product(phi, tl.trans(psi), OPERAND, ACC, PRECISION), 0.0)
                delta += tl.sum(s, axis=1)
                z += tl.sum(psi, axis=0)

        row = own + tl.cast(start, tl.int64) * H + tl.arange(0, C) * H
        if NORM == DENOMINATOR:
            t *= (1.0 / tl.maximum(delta, FLOOR))[:, None]
            tl.store(scale + row, delta, mask=seen & (rows * 0 + part == 0))
        elif NORM > 0:
            squares = tl.sum(t * t, axis=1)
            tl.store(scale + row * PARTS + part, squares, mask=seen)
            if PRESCALE:
                t *= (1.0 / part_size(squares, PART))[:, None]
        store_part(o + own * D_TRUE, t, start, H * D_TRUE, seen, column, D_TRUE, C, PART)

    if FINAL:
        if segment == SEGMENTS - 1:
            store_state(final_state + pair * D_TRUE * D_TRUE, S, column, D_TRUE, D, PART)
            if NORM == DENOMINATOR:
                tl.store(final_sum + pair * D_TRUE + columns, z, mask=(columns < D_TRUE) & (columns * 0 + part == 0))
