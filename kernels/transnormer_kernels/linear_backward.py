"""Backward kernels of linear attention, tile by tile; symbols as in ``linear_forward``.

The norm's gradient needs two numbers per row, α and β, which ``rows`` computes from g = ∂L/∂o and o:

    NO_NORM                     dt = g
    HEAD_NORM, EMBEDDING_NORM   dt = α g + β o
    DENOMINATOR                 dt = α g,   and ``beta`` holds dδ

Then, with S as in the forward pass, R = Σ_{i after} φ_i dt_i^T [D, D] and all sums within a head,

    dφ_i = Σ_{j ≤ i} (dt_i·v_j) ψ_j   + S dt_i                   dΦ = (M ⊙ dT V^T) Ψ + dT S^T
    dψ_j = Σ_{i ≥ j} (dt_i·v_j) φ_i   + R v_j                    dΨ = (M ⊙ dT V^T)^T Φ + V R^T
    dv_j = Σ_{i ≥ j} (φ_i·ψ_j) dt_i   + R^T ψ_j                  dV = (M ⊙ Φ Ψ^T)^T dT + Ψ R

dΦ is a forward loop that carries S^T; dΨ and dV are backward loops that carry R ← R + Φ^T dT. The forward pass saved S
before every segment (``saved_states``); ``segment_gradients`` and ``linear_forward.scan`` compute R. Without causality
S and R are sums over all tokens, and the terms of a tile's own tokens vanish.

Each program of ``gradients`` computes ``PART`` columns of one of dq, dk, dv: for dΦ and dΨ columns of the features, for
dV of the values. So it carries only [D, PART], which fits in registers. The programs of one segment have neighbouring
numbers, so all but the first read their common inputs from the L2 cache.

DENOMINATOR adds the gradient of δ, on unrotated features: dφ_i += dδ_i Σ_{j ≤ i} ψ_j and dψ_j += Σ_{i ≥ j} dδ_i φ_i.
Finally dφ and dψ are rotated back, dq = φ′(q) ⊙ dφ and dk = φ′(k) ⊙ dψ. With a learned θ, Σ position · ∂L/∂angle of
each pair goes to ``turns``.

No accumulator is transposed before another product (dΨ^T is computed instead), because Triton from 3.4.0 up to 3.7.0
miscompiles that on Hopper.
"""

import triton
import triton.language as tl

from transnormer_kernels.linear_forward import features
from transnormer_kernels.programs import sequence_of
from transnormer_kernels.tiles import (
    DENOMINATOR,
    EMBEDDING_NORM,
    HEAD_NORM,
    angle_gradient,
    angles,
    feature_gradient,
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
def product_gradient(
    g, o, alpha, beta, start, stride, row, seen, column,
    NORM: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, W: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dt [C, W] as an operand, W columns from ``column`` on; ``row`` is the stride of α and β from token to token."""
    dt = load_part(g, start, stride, seen, column, D_TRUE, C, W)
    if NORM > 0:
        place = (tl.cast(start, tl.int64) + tl.arange(0, C)) * row
        dt = dt.to(ACC) * tl.load(alpha + place, mask=seen, other=0.0).to(ACC)[:, None]
        if (NORM == EMBEDDING_NORM) or (NORM == HEAD_NORM):
            b = tl.load(beta + place, mask=seen, other=0.0).to(ACC)
            dt += b[:, None] * load_part(o, start, stride, seen, column, D_TRUE, C, W).to(ACC)
    return dt.to(OPERAND)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS"])
def segment_gradients(
    q, g, o, alpha, beta, u_table, cos_table, sin_table, cu_seqlens, states, sums,
    x_b, x_n, x_h, N, H, SEGMENT, SEGMENTS,
    NORM: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write Φ^T dT of a segment to ``states`` [pairs, SEGMENTS, D, D], and Σ dδ φ to ``sums`` [pairs, SEGMENTS, D]."""
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    own = (b * N + first) * H + h
    g += own * D_TRUE
    o += own * D_TRUE
    row = 1 if NORM == EMBEDDING_NORM else H
    alpha += b * N + first if NORM == EMBEDDING_NORM else own
    beta += b * N + first if NORM == EMBEDDING_NORM else own
    R = tl.zeros([D, D], ACC)
    rz = tl.zeros([D], ACC)
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        seen = start + tl.arange(0, C) < length
        cos, sin = angles(cos_table, sin_table, start, seen, 0, D_TRUE, C, D, TURNED, ACC)
        phi, turned = features(
            q, u_table, cos, sin, start, x_n, seen, 0, D_TRUE, C, D, MAP, NORM == DENOMINATOR, TURNED,
            REFLECTED, OPERAND, ACC,
        )  # fmt: skip
        dt = product_gradient(g, o, alpha, beta, start, H * D_TRUE, row, seen, 0, NORM, D_TRUE, C, D, OPERAND, ACC)
        R += product(tl.trans(turned), dt, OPERAND, ACC, PRECISION)
        if NORM == DENOMINATOR:
            place = (tl.cast(start, tl.int64) + tl.arange(0, C)) * row
            rz += tl.sum(phi * tl.load(beta + place, mask=seen, other=0.0)[:, None], axis=0)
    place = tl.program_id(0).to(tl.int64)
    store_state(states + place * D_TRUE * D_TRUE, R, 0, D_TRUE, D, D)
    if NORM == DENOMINATOR:
        tl.store(sums + place * D_TRUE + tl.arange(0, D), rz, mask=tl.arange(0, D) < D_TRUE)


@triton.jit
def query_gradients(
    q, k, v, real, g, o, alpha, beta, u_table, cos_table, sin_table, states, sums, dq, turns,
    x_n, H, begin, end, length, row, column, POSITION,
    NORM: tl.constexpr, CAUSAL: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, W: tl.constexpr,
    MAP: tl.constexpr, MASKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, LEARNED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W columns of dΦ = (M ⊙ dT V^T) Ψ + dT S^T, in a forward loop, and of dq."""
    S_transposed = load_state(states, 0, column, D_TRUE, D, W, True).to(ACC)
    z = tl.zeros([W], ACC)
    columns = column + tl.arange(0, W)
    if NORM == DENOMINATOR:
        z += tl.load(sums + columns, mask=columns < D_TRUE, other=0.0)
    d_angle = tl.zeros([W // 2], ACC)
    for start in range(begin, end, C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        dt = product_gradient(g, o, alpha, beta, start, H * D_TRUE, row, seen, 0, NORM, D_TRUE, C, D, OPERAND, ACC)
        cos, sin = angles(cos_table, sin_table, start, seen, column, D_TRUE, C, W, TURNED, ACC)
        count = tl.cast(start + 1 if CAUSAL else length, ACC)
        d_phi = state_product(dt, S_transposed, count, False, OPERAND, ACC, PRECISION)
        d_delta = tl.zeros([C], ACC)
        if NORM == DENOMINATOR:
            place = (tl.cast(start, tl.int64) + tl.arange(0, C)) * row
            d_delta = tl.load(beta + place, mask=seen, other=0.0)
        d_plain = d_delta[:, None] * z[None, :]
        if CAUSAL:
            real_rows = seen
            if MASKED:
                real_rows = seen & (tl.load(real + rows, mask=seen, other=0) != 0)
            values = load_part(v, start, x_n, real_rows, 0, D_TRUE, C, D)
            past = tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :]
            ds = tl.where(past, product(dt, tl.trans(values), OPERAND, ACC, PRECISION), 0.0).to(OPERAND)
            psi, psi_turned = features(
                k, u_table, cos, sin, start, x_n, real_rows, column, D_TRUE, C, W, MAP, NORM == DENOMINATOR,
                TURNED, REFLECTED, OPERAND, ACC,
            )  # fmt: skip
            d_phi += product(ds, psi_turned, OPERAND, ACC, PRECISION)
            S_transposed += product(tl.trans(values), psi_turned, OPERAND, ACC, PRECISION)
            if NORM == DENOMINATOR:
                d_plain += product(tl.where(past, d_delta[:, None], 0.0), psi, OPERAND, ACC, PRECISION)
                z += tl.sum(psi, axis=0)
        if LEARNED:
            _, turned = features(
                q, u_table, cos, sin, start, x_n, seen, column, D_TRUE, C, W, MAP, False, TURNED,
                REFLECTED, OPERAND, ACC,
            )  # fmt: skip
            turning = angle_gradient(turned.to(ACC), d_phi, C, W)
            d_angle += tl.sum(turning * (rows + POSITION).to(ACC)[:, None], axis=0)
        if TURNED:
            d_phi = turn(d_phi, cos, -sin, C, W)
        if REFLECTED:
            d_phi = reflect(d_phi, tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC))
        if NORM == DENOMINATOR:
            d_phi += d_plain
        x = load_part(q, start, x_n, seen, column, D_TRUE, C, W).to(ACC)
        store_part(dq, feature_gradient(x, d_phi, MAP), start, H * D_TRUE, seen, column, D_TRUE, C, W)
    if LEARNED:
        pairs = column // 2 + tl.arange(0, W // 2)
        tl.store(turns + pairs, d_angle, mask=pairs < D_TRUE // 2)


@triton.jit
def value_gradients(
    q, k, real, g, o, alpha, beta, u_table, cos_table, sin_table, reverse_states, dv,
    x_n, H, begin, end, length, row, column,
    NORM: tl.constexpr, CAUSAL: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, W: tl.constexpr,
    MAP: tl.constexpr, MASKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W columns of dV = (M ⊙ Φ Ψ^T)^T dT + Ψ R, in a backward loop."""
    R = load_state(reverse_states, 0, column, D_TRUE, D, W, False).to(ACC)
    tiles = (tl.maximum(end - begin, 0) + C - 1) // C
    for step in range(tiles):
        start = begin + (tiles - 1 - step) * C
        rows = start + tl.arange(0, C)
        seen = rows < length
        real_rows = seen
        if MASKED:
            real_rows = seen & (tl.load(real + rows, mask=seen, other=0) != 0)
        cos, sin = angles(cos_table, sin_table, start, seen, 0, D_TRUE, C, D, TURNED, ACC)
        _, psi = features(
            k, u_table, cos, sin, start, x_n, real_rows, 0, D_TRUE, C, D, MAP, False, TURNED, REFLECTED,
            OPERAND, ACC,
        )  # fmt: skip
        count = tl.cast(length - start if CAUSAL else length, ACC)
        d_values = state_product(psi, R, count, False, OPERAND, ACC, PRECISION)
        if CAUSAL:
            _, phi = features(
                q, u_table, cos, sin, start, x_n, seen, 0, D_TRUE, C, D, MAP, False, TURNED, REFLECTED,
                OPERAND, ACC,
            )  # fmt: skip
            dt = product_gradient(
                g, o, alpha, beta, start, H * D_TRUE, row, seen, column, NORM, D_TRUE, C, W, OPERAND, ACC
            )
            later = tl.arange(0, C)[:, None] <= tl.arange(0, C)[None, :]  # rows are keys j, columns queries i
            s_transposed = tl.where(later, product(psi, tl.trans(phi), OPERAND, ACC, PRECISION), 0.0)
            d_values += product(s_transposed, dt, OPERAND, ACC, PRECISION)
            R += product(tl.trans(phi), dt, OPERAND, ACC, PRECISION)
        d_values = tl.where(real_rows[:, None], d_values, 0.0)
        store_part(dv, d_values, start, H * D_TRUE, seen, column, D_TRUE, C, W)


@triton.jit
def key_gradients(
    q, k, v, real, g, o, alpha, beta, u_table, cos_table, sin_table, reverse_states, reverse_sums, dk, turns,
    x_n, H, begin, end, length, row, column, POSITION,
    NORM: tl.constexpr, CAUSAL: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, W: tl.constexpr,
    MAP: tl.constexpr, MASKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, LEARNED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W columns of dΨ, as dΨ^T = Φ^T (M ⊙ dT V^T) + R V^T, in a backward loop, and of dk."""
    R = load_state(reverse_states, column, 0, D_TRUE, W, D, False).to(ACC)
    rz = tl.zeros([W], ACC)
    columns = column + tl.arange(0, W)
    if NORM == DENOMINATOR:
        rz += tl.load(reverse_sums + columns, mask=columns < D_TRUE, other=0.0)
    d_angle = tl.zeros([W // 2], ACC)
    tiles = (tl.maximum(end - begin, 0) + C - 1) // C
    for step in range(tiles):
        start = begin + (tiles - 1 - step) * C
        rows = start + tl.arange(0, C)
        seen = rows < length
        real_rows = seen
        if MASKED:
            real_rows = seen & (tl.load(real + rows, mask=seen, other=0) != 0)
        values = load_part(v, start, x_n, real_rows, 0, D_TRUE, C, D)
        cos, sin = angles(cos_table, sin_table, start, seen, column, D_TRUE, C, W, TURNED, ACC)
        count = tl.cast(length - start if CAUSAL else length, ACC)
        d_psi_transposed = state_product(tl.trans(values), R, count, True, OPERAND, ACC, PRECISION)
        d_plain = tl.zeros([C, W], ACC) + rz[None, :]
        if CAUSAL:
            dt = product_gradient(g, o, alpha, beta, start, H * D_TRUE, row, seen, 0, NORM, D_TRUE, C, D, OPERAND, ACC)
            past = tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :]
            ds = tl.where(past, product(dt, tl.trans(values), OPERAND, ACC, PRECISION), 0.0).to(OPERAND)
            phi, phi_turned = features(
                q, u_table, cos, sin, start, x_n, seen, column, D_TRUE, C, W, MAP, NORM == DENOMINATOR,
                TURNED, REFLECTED, OPERAND, ACC,
            )  # fmt: skip
            d_psi_transposed += product(tl.trans(phi_turned), ds, OPERAND, ACC, PRECISION)
            R += product(tl.trans(phi_turned), dt, OPERAND, ACC, PRECISION)
            if NORM == DENOMINATOR:
                place = (tl.cast(start, tl.int64) + tl.arange(0, C)) * row
                weighted = phi * tl.load(beta + place, mask=seen, other=0.0)[:, None]
                later = tl.arange(0, C)[:, None] <= tl.arange(0, C)[None, :]
                d_plain += product(tl.where(later, 1.0, 0.0), weighted, OPERAND, ACC, PRECISION)
                rz += tl.sum(weighted, axis=0)
        d_psi = tl.trans(d_psi_transposed)
        if LEARNED:
            _, turned = features(
                k, u_table, cos, sin, start, x_n, real_rows, column, D_TRUE, C, W, MAP, False, TURNED,
                REFLECTED, OPERAND, ACC,
            )  # fmt: skip
            turning = angle_gradient(turned.to(ACC), d_psi, C, W)
            d_angle += tl.sum(turning * (rows + POSITION).to(ACC)[:, None], axis=0)
        if TURNED:
            d_psi = turn(d_psi, cos, -sin, C, W)
        if REFLECTED:
            d_psi = reflect(d_psi, tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC))
        if NORM == DENOMINATOR:
            d_psi += d_plain
        x = load_part(k, start, x_n, real_rows, column, D_TRUE, C, W).to(ACC)
        d_keys = tl.where(real_rows[:, None], feature_gradient(x, d_psi, MAP), 0.0)
        store_part(dk, d_keys, start, H * D_TRUE, seen, column, D_TRUE, C, W)
    if LEARNED:
        pairs = column // 2 + tl.arange(0, W // 2)
        tl.store(turns + pairs, d_angle, mask=pairs < D_TRUE // 2)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS", "POSITION", "real_b"])
def gradients(
    q, k, v, real, g, o, alpha, beta, u_table, cos_table, sin_table, cu_seqlens,
    states, sums, reverse_states, reverse_sums, dq, dk, dv, turns,
    x_b, x_n, x_h, real_b, N, H, SEGMENT, SEGMENTS, POSITION,
    NORM: tl.constexpr, CAUSAL: tl.constexpr, D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
    PART: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr, TURNED: tl.constexpr,
    REFLECTED: tl.constexpr, LEARNED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """PART columns of one of dq, dk, dv of a segment; Σ position · ∂L/∂angle goes to ``turns`` [segments, 2, D/2]."""
    PARTS: tl.constexpr = D // PART
    role, column = tl.program_id(0) % (3 * PARTS) // PARTS, tl.program_id(0) % PARTS * PART
    place = tl.program_id(0) // (3 * PARTS)
    pair, segment = place // SEGMENTS, place % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    real += b * real_b + first
    own = (b * N + first) * H + h
    g += own * D_TRUE
    o += own * D_TRUE
    row = 1 if NORM == EMBEDDING_NORM else H
    alpha += b * N + first if NORM == EMBEDDING_NORM else own
    beta += b * N + first if NORM == EMBEDDING_NORM else own
    begin, end = segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length)
    turns += place.to(tl.int64) * D_TRUE
    state = (place if CAUSAL else pair).to(tl.int64)
    if role == 0:
        query_gradients(
            q, k, v, real, g, o, alpha, beta, u_table, cos_table, sin_table, states + state * D_TRUE * D_TRUE,
            sums + state * D_TRUE, dq + own * D_TRUE, turns, x_n, H, begin, end, length, row, column, POSITION,
            NORM, CAUSAL, D_TRUE, C, D, PART, MAP, MASKED, TURNED, REFLECTED, LEARNED, OPERAND, ACC, PRECISION,
        )  # fmt: skip
    elif role == 1:
        key_gradients(
            q, k, v, real, g, o, alpha, beta, u_table, cos_table, sin_table,
            reverse_states + state * D_TRUE * D_TRUE, reverse_sums + state * D_TRUE, dk + own * D_TRUE,
            turns + D_TRUE // 2, x_n, H, begin, end, length, row, column, POSITION,
            NORM, CAUSAL, D_TRUE, C, D, PART, MAP, MASKED, TURNED, REFLECTED, LEARNED, OPERAND, ACC, PRECISION,
        )  # fmt: skip
    else:
        value_gradients(
            q, k, real, g, o, alpha, beta, u_table, cos_table, sin_table,
            reverse_states + state * D_TRUE * D_TRUE, dv + own * D_TRUE, x_n, H, begin, end, length, row, column,
            NORM, CAUSAL, D_TRUE, C, D, PART, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC, PRECISION,
        )  # fmt: skip
