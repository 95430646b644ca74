"""Backward kernels of linear attention, tile by tile; symbols as in ``linear_forward``.

With g = ∂L/∂o the norm's own gradient is one number or two per row, so it costs no pass over memory of its own:

    NO_NORM         dt = g
    HEAD_NORM       dt = r (g − o · mean(g ⊙ o) / κ)                 κ = 1, or σ r where ε stands outside the root
    EMBEDDING_NORM  dt = α g + β o, with α and β [B, N] from ``rows.row_gradients``, which sums over the heads
    DENOMINATOR     dt = g / max(δ, floor),   dδ = −(g·o) / δ  where δ > floor, else 0

Then, with R = Σ_{i after} φ_i dt_i^T [D, D] and all sums within a head,

    dφ_i = Σ_{j ≤ i} (dt_i·v_j) ψ_j   + S dt_i                   dΦ = (M ⊙ dT V^T) Ψ + dT S^T
    dψ_j = Σ_{i ≥ j} (dt_i·v_j) φ_i   + R v_j                    dΨ = (M ⊙ dT V^T)^T Φ + V R^T
    dv_j = Σ_{i ≥ j} (φ_i·ψ_j) dt_i   + R^T ψ_j                  dV = (M ⊙ Φ Ψ^T)^T dT + Ψ R

dΦ is a loop from the front that carries S^T, dΨ and dV one from the end that carries R ← R + Φ^T dT. Both run over one
segment, short enough that what the first has read is still in the L2 cache for the second; S stands in
``saved_states`` since the forward pass, and ``segment_gradients`` with ``linear_forward.scan`` makes R. Where attention
is not causal S and R are sums over all tokens and the tiles' own terms vanish. DENOMINATOR adds the gradient of δ:
dφ_i += dδ_i Σ_{j ≤ i} ψ_j and dψ_j += Σ_{i ≥ j} dδ_i φ_i, of features that are not turned. Last, dq = φ′(q) ⊙ dφ and
dk = φ′(k) ⊙ dψ, turned back first, and ∂L/∂angle of each row and pair times its position is summed to ``turns``.

No accumulator is transposed on its way into another product (dΨ^T is formed instead): Triton from 3.4.0 up to 3.7.0
miscompiles that on Hopper.
"""

import triton
import triton.language as tl

from transnormer_kernels.linear_forward import key_features, query_features
from transnormer_kernels.programs import sequence_of
from transnormer_kernels.tiles import (
    DENOMINATOR,
    EMBEDDING_NORM,
    HEAD_NORM,
    angle_gradient,
    feature_gradient,
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
def product_gradient(
    g, o, scale, alpha, beta, start, H, seen, EPS, FLOOR,
    NORM: tl.constexpr, EPS_OUTSIDE: tl.constexpr, D_TRUE: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, OPERAND: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(dt [C, D], as an operand, dδ [C]) of rows of one head: the table of this file's docstring."""
    dt = load_tile(g, start, H * D_TRUE, seen, D_TRUE, C, D).to(ACC)
    d_delta = tl.sum(dt, axis=1) * 0.0
    if NORM == EMBEDDING_NORM:
        a = tl.load(alpha + start + tl.arange(0, C), mask=seen, other=0.0).to(ACC)
        b = tl.load(beta + start + tl.arange(0, C), mask=seen, other=0.0).to(ACC)
        dt = a[:, None] * dt + b[:, None] * load_tile(o, start, H * D_TRUE, seen, D_TRUE, C, D).to(ACC)
    if NORM == HEAD_NORM:
        r = tl.load(scale + (tl.cast(start, tl.int64) + tl.arange(0, C)) * H, mask=seen, other=0.0).to(ACC)
        y = load_tile(o, start, H * D_TRUE, seen, D_TRUE, C, D).to(ACC)
        mean = tl.sum(dt * y, axis=1) / D_TRUE
        if EPS_OUTSIDE:
            kappa = 1.0 - EPS * r
            mean = tl.where(kappa > 0, mean / kappa, 0.0)
        dt = r[:, None] * (dt - y * mean[:, None])
    if NORM == DENOMINATOR:
        delta = tl.load(scale + (tl.cast(start, tl.int64) + tl.arange(0, C)) * H, mask=seen, other=1.0).to(ACC)
        inverse = 1.0 / tl.maximum(delta, FLOOR)
        y = load_tile(o, start, H * D_TRUE, seen, D_TRUE, C, D).to(ACC)
        d_delta = tl.where(delta > FLOOR, -tl.sum(dt * y, axis=1) * inverse, 0.0)
        dt = inverse[:, None] * dt
    return dt.to(OPERAND), d_delta


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS"])
def segment_gradients(
    q, g, o, scale, alpha, beta, u_table, cos_table, sin_table, cu_seqlens, states, sums,
    x_b, x_n, x_h, N, H, SEGMENT, SEGMENTS,
    EPS: tl.constexpr, FLOOR: tl.constexpr, NORM: tl.constexpr, EPS_OUTSIDE: tl.constexpr,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Φ^T dT of each segment to ``states`` [pairs, SEGMENTS, D, D], and Σ dδ φ to ``sums`` [pairs, SEGMENTS, D]."""
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    g += ((b * N + first) * H + h) * D_TRUE
    o += ((b * N + first) * H + h) * D_TRUE
    scale += (b * N + first) * H + h
    alpha += b * N + first
    beta += b * N + first
    columns = tl.arange(0, D)
    u = columns.to(ACC)
    if REFLECTED:
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    R = tl.zeros([D, D], ACC)
    rz = tl.zeros([D], ACC)
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length), C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        cos, sin = u, u
        if TURNED:
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        phi, turned = query_features(
            q, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, TURNED, REFLECTED, OPERAND, ACC
        )
        dt, d_delta = product_gradient(
            g, o, scale, alpha, beta, start, H, seen, EPS, FLOOR, NORM, EPS_OUTSIDE, D_TRUE, C, D, OPERAND, ACC
        )
        R += product(tl.trans(turned), dt, OPERAND, ACC, PRECISION)
        if NORM == DENOMINATOR:
            rz += tl.sum(phi * d_delta[:, None], axis=0)
    place = tl.program_id(0).to(tl.int64)
    store_state(states + place * D_TRUE * D_TRUE, R, D_TRUE, D)
    if NORM == DENOMINATOR:
        tl.store(sums + place * D_TRUE + columns, rz, mask=columns < D_TRUE)


@triton.jit(do_not_specialize=["N", "SEGMENT", "SEGMENTS", "POSITION", "real_b"])
def gradients(
    q, k, v, real, g, o, scale, alpha, beta, u_table, cos_table, sin_table, cu_seqlens,
    states, sums, reverse_states, reverse_sums, dq, dk, dv, turns,
    x_b, x_n, x_h, real_b,
    N, H, SEGMENT, SEGMENTS, POSITION,
    EPS: tl.constexpr, FLOOR: tl.constexpr, NORM: tl.constexpr, EPS_OUTSIDE: tl.constexpr, CAUSAL: tl.constexpr,
    D_TRUE: tl.constexpr, C: tl.constexpr, D: tl.constexpr, MAP: tl.constexpr, MASKED: tl.constexpr,
    PACKED: tl.constexpr, TURNED: tl.constexpr, REFLECTED: tl.constexpr, LEARNED: tl.constexpr,
    OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq, dk and dv of one segment, and with LEARNED Σ position · ∂L/∂angle to ``turns`` [programs, D/2]."""
    pair, segment = tl.program_id(0) // SEGMENTS, tl.program_id(0) % SEGMENTS
    b, h, first, length = sequence_of(pair, cu_seqlens, N, H, PACKED)
    q += b * x_b + h * x_h + first * x_n
    k += b * x_b + h * x_h + first * x_n
    v += b * x_b + h * x_h + first * x_n
    g += ((b * N + first) * H + h) * D_TRUE
    o += ((b * N + first) * H + h) * D_TRUE
    dq += ((b * N + first) * H + h) * D_TRUE
    dk += ((b * N + first) * H + h) * D_TRUE
    dv += ((b * N + first) * H + h) * D_TRUE
    scale += (b * N + first) * H + h
    alpha += b * N + first
    beta += b * N + first
    real += b * real_b + first
    columns = tl.arange(0, D)
    u = columns.to(ACC)
    if REFLECTED:
        u = tl.load(u_table + columns, mask=columns < D_TRUE, other=0.0).to(ACC)
    d_angle = tl.zeros([D // 2], ACC)
    place = tl.program_id(0).to(tl.int64) if CAUSAL else pair.to(tl.int64)
    begin, end = segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, length)

    # From the front: dΦ = (M ⊙ dT V^T) Ψ + dT S^T.
    S_transposed = load_state(states + place * D_TRUE * D_TRUE, D_TRUE, D, True).to(ACC)
    z = tl.zeros([D], ACC)
    if NORM == DENOMINATOR:
        z += tl.load(sums + place * D_TRUE + columns, mask=columns < D_TRUE, other=0.0)
    for start in range(begin, end, C):
        rows = start + tl.arange(0, C)
        seen = rows < length
        cos, sin = u, u
        if TURNED:
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        dt, d_delta = product_gradient(
            g, o, scale, alpha, beta, start, H, seen, EPS, FLOOR, NORM, EPS_OUTSIDE, D_TRUE, C, D, OPERAND, ACC
        )
        d_phi = product(dt, S_transposed, OPERAND, ACC, PRECISION)
        d_plain = d_delta[:, None] * z[None, :]
        if CAUSAL:
            psi, psi_turned, real_rows = key_features(
                k, real, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC
            )
            values = load_tile(v, start, x_n, real_rows, D_TRUE, C, D)
            past = rows[:, None] >= rows[None, :]
            ds = tl.where(past, product(dt, tl.trans(values), OPERAND, ACC, PRECISION), 0.0)
            d_phi += product(ds, psi_turned, OPERAND, ACC, PRECISION)
            S_transposed += product(tl.trans(values), psi_turned, OPERAND, ACC, PRECISION)
            if NORM == DENOMINATOR:
                d_plain += product(tl.where(past, d_delta[:, None], 0.0), psi, OPERAND, ACC, PRECISION)
                z += tl.sum(psi, axis=0)
        if LEARNED:
            _, turned = query_features(
                q, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, TURNED, REFLECTED, OPERAND, ACC
            )
            d_angle += tl.sum(angle_gradient(turned.to(ACC), d_phi, C, D) * (rows + POSITION).to(ACC)[:, None], axis=0)
        if TURNED:
            d_phi = turn(d_phi, cos, -sin, C, D)
        if REFLECTED:
            d_phi = reflect(d_phi, u)
        if NORM == DENOMINATOR:
            d_phi += d_plain
        x = load_tile(q, start, x_n, seen, D_TRUE, C, D).to(ACC)  # again: kept until here it would cost registers
        store_tile(dq, feature_gradient(x, d_phi, MAP), start, H * D_TRUE, seen, D_TRUE, C, D)

    # From the end: dΨ^T = Φ^T (M ⊙ dT V^T) + R V^T and dV = (M ⊙ Φ Ψ^T)^T dT + Ψ R.
    R = load_state(reverse_states + place * D_TRUE * D_TRUE, D_TRUE, D, False).to(ACC)
    rz = tl.zeros([D], ACC)
    if NORM == DENOMINATOR:
        rz += tl.load(reverse_sums + place * D_TRUE + columns, mask=columns < D_TRUE, other=0.0)
    tiles = (tl.maximum(end - begin, 0) + C - 1) // C
    for step in range(tiles):
        start = begin + (tiles - 1 - step) * C
        rows = start + tl.arange(0, C)
        seen = rows < length
        cos, sin = u, u
        if TURNED:
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        psi, psi_turned, real_rows = key_features(
            k, real, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC
        )
        kept = real_rows[:, None]
        d_values = product(psi_turned, R, OPERAND, ACC, PRECISION)
        if CAUSAL:
            phi, phi_turned = query_features(
                q, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, TURNED, REFLECTED, OPERAND, ACC
            )
            dt, d_delta = product_gradient(
                g, o, scale, alpha, beta, start, H, seen, EPS, FLOOR, NORM, EPS_OUTSIDE, D_TRUE, C, D, OPERAND, ACC
            )  # fmt: skip
            # Rows are keys j, columns are queries i.
            s_transposed = tl.where(
                rows[:, None] <= rows[None, :], product(psi_turned, tl.trans(phi_turned), OPERAND, ACC, PRECISION), 0.0
            )
            d_values += product(s_transposed, dt, OPERAND, ACC, PRECISION)
        # Written before dΨ is begun: the two at once do not fit into the registers.
        store_tile(dv, tl.where(kept, d_values, 0.0), start, H * D_TRUE, seen, D_TRUE, C, D)

        values = load_tile(v, start, x_n, real_rows, D_TRUE, C, D)
        d_psi_transposed = product(R, tl.trans(values), OPERAND, ACC, PRECISION)
        if CAUSAL:
            past = rows[:, None] >= rows[None, :]
            ds = tl.where(past, product(dt, tl.trans(values), OPERAND, ACC, PRECISION), 0.0)
            d_psi_transposed += product(tl.trans(phi_turned), ds, OPERAND, ACC, PRECISION)
            R += product(tl.trans(phi_turned), dt, OPERAND, ACC, PRECISION)
        d_psi = tl.trans(d_psi_transposed)
        if TURNED:  # loaded once more, for the same reason
            cos, sin = load_tile_turns(cos_table, sin_table, start, seen, D_TRUE, C, D, ACC)
        if LEARNED:
            _, psi_turned, _ = key_features(
                k, real, start, x_n, seen, u, cos, sin, D_TRUE, C, D, MAP, MASKED, TURNED, REFLECTED, OPERAND, ACC
            )
            d_angle += tl.sum(
                angle_gradient(psi_turned.to(ACC), d_psi, C, D) * (rows + POSITION).to(ACC)[:, None], axis=0
            )
        if TURNED:
            d_psi = turn(d_psi, cos, -sin, C, D)
        if REFLECTED:
            d_psi = reflect(d_psi, u)
        if NORM == DENOMINATOR:
            d_psi += rz[None, :]
            if CAUSAL:
                weighted = phi * d_delta[:, None]
                later = rows[:, None] <= rows[None, :]
                d_psi += product(tl.where(later, 1.0, 0.0), weighted, OPERAND, ACC, PRECISION)
                rz += tl.sum(weighted, axis=0)
        x = load_tile(k, start, x_n, real_rows, D_TRUE, C, D).to(ACC)
        store_tile(dk, tl.where(kept, feature_gradient(x, d_psi, MAP), 0.0), start, H * D_TRUE, seen, D_TRUE, C, D)
    if LEARNED:
        pairs = tl.arange(0, D // 2)
        address = turns + tl.program_id(0).to(tl.int64) * (D_TRUE // 2) + pairs
        tl.store(address, d_angle, mask=pairs < D_TRUE // 2)
