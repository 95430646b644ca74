"""The causal product of linear attention in time and memory linear in the length.

    t_i = Σ_{j ≤ i} (q_i · k_j) v_j          z_i = Σ_{j ≤ i} q_i · k_j

Shapes: B batch, H heads, N length, D dimension of q and k, E dimension of v, C tokens per chunk, G chunks,
M = B·H.

Inside a chunk the product is formed as a masked C × C matrix; all earlier chunks enter through the exclusive
prefix sum of their states K^T V [D, E]. Memory is N·C + (N/C)·D·E per head. It is plain PyTorch on purpose: a
hand-written backward that recomputes instead of saving was measured to be no faster on a CPU, and this form
keeps second derivatives.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_product(q: Tensor, k: Tensor, v: Tensor, chunk_size: int = 64) -> Tensor:
    """t [B, H, N, E] of the formula above, for q, k [B, H, N, D] (any sign) and v [B, H, N, E].

    Any length is served, and one of at most ``chunk_size`` costs a single masked product. The result at i
    depends on nothing after i.
    """
    b, h, n, d = q.shape
    e = v.shape[-1]
    if n <= chunk_size:
        return (q @ k.mT).tril() @ v
    ragged = -n % chunk_size
    if ragged:  # zero keys at the end: they come after every query that is kept
        q, k, v = (F.pad(x, (0, 0, 0, ragged)) for x in (q, k, v))
    # One leading dimension of M·G chunks: a single batched product instead of a loop over chunks.
    q_c, k_c, v_c = (x.reshape(-1, chunk_size, x.shape[-1]) for x in (q, k, v))
    inside = torch.bmm(torch.bmm(q_c, k_c.mT).tril(), v_c)
    states_MGDE = torch.bmm(k_c.mT, v_c).view(b * h, -1, d, e)
    # Shifted before it is summed. "Sum minus own chunk" would be the same on paper, and let tokens after i
    # into t_i by way of rounding.
    prefix_MGDE = F.pad(states_MGDE[:, :-1].cumsum(1), (0, 0, 0, 0, 1, 0))
    t = torch.baddbmm(inside, q_c, prefix_MGDE.view(-1, d, e))
    return t.view(b, h, n + ragged, e)[:, :, :n]


def full_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same sum over all j, Q (K^T V) as in Eq. 13: linear in the length as it stands."""
    return q @ (k.mT @ v)


def product_flops(length: int, d: int, e: int, chunk_size: int | None) -> int:
    """Floating-point operations of one head's product, a multiply-add as two; no chunk: ``full_product``."""
    if chunk_size is None:
        return 4 * length * d * e
    if length <= chunk_size:
        return 2 * length * length * (d + e)
    chunks = -(-length // chunk_size)
    return chunks * (2 * chunk_size * chunk_size * (d + e) + 4 * chunk_size * d * e)


def product_and_normaliser(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, chunk_size: int = 64
) -> tuple[Tensor, Tensor]:
    """(t [B, H, N, E], z [B, H, N, 1]) in one pass: z is the product with a value that is one everywhere."""
    v_one = F.pad(v, (0, 1), value=1.0)
    t = causal_product(q, k, v_one, chunk_size) if causal else full_product(q, k, v_one)
    return t[..., :-1], t[..., -1:]
