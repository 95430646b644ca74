"""The causal product of linear attention in time and memory linear in the length.

    t_i = Σ_{j ≤ i} (q_i · k_j) v_j          z_i = Σ_{j ≤ i} q_i · k_j

Inside a chunk the product is a masked C × C matrix; all earlier chunks enter through the exclusive prefix sum of their
states K^T V [D, E]. Memory is N·C + (N/C)·D·E per head.

On a CPU the product runs block by block, with its own backward pass (``blockwise``). This file's plain composition of
PyTorch operations serves other devices, torch.func, torch.compile and second derivatives.

Shapes: B batch, H heads, N length, D of q and k, E of v, C tokens per chunk, G chunks, M = B·H.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention.blockwise import Product, blockwise, serves
from transnormer_lib.attention.feature_maps import feature_map
from transnormer_lib.attention.norms import rms_norm, widen
from transnormer_lib.choices import EpsPlacement


def causal_attention(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, product: Product) -> Tensor:
    """φ, the causal product and its normalisation, as ``product`` says: [B, H, N, E] for q, k [B, H, N, D].

    Keys where ``key_padding_mask`` [B, N] is True contribute nothing, nor does anything after i to the result at i.
    Sums are in float32 for the half dtypes; a normalised result has q's dtype, any other the sums' dtype.
    """
    if serves(q, k, v):
        return blockwise(q, k, v, key_padding_mask, product, _plain)
    return _plain(q, k, v, key_padding_mask, product)


def _plain(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, product: Product) -> Tensor:
    phi = feature_map(product.phi)
    phi_q, phi_k, wide_v = phi(widen(q)), phi(widen(k)), widen(v)
    if key_padding_mask is not None:
        phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
    if product.finish == "denominator":
        t = _plain_product(phi_q, phi_k, F.pad(wide_v, (0, 1), value=1.0), product.chunk_size)
        return (t[..., :-1] / t[..., -1:].clamp(min=product.floor)).to(q.dtype)
    t = _plain_product(phi_q, phi_k, wide_v, product.chunk_size)
    if product.finish == "none":
        return t
    placement: EpsPlacement = "inside" if product.eps_inside else "outside"
    if 1 not in product.dims:
        return rms_norm(t, product.eps, placement).to(q.dtype)
    together = rms_norm(t.transpose(1, 2).flatten(2), product.eps, placement)
    return together.unflatten(-1, (t.shape[1], t.shape[3])).transpose(1, 2).to(q.dtype)


def _plain_product(q: Tensor, k: Tensor, v: Tensor, chunk_size: int) -> Tensor:
    b, h, n, d = q.shape
    e = v.shape[-1]
    if n <= chunk_size:
        return (q @ k.mT).tril() @ v
    ragged = -n % chunk_size
    if ragged:  # zero keys at the end, after every query that is kept
        q, k, v = (F.pad(x, (0, 0, 0, ragged)) for x in (q, k, v))
    # One leading dimension of M·G chunks: a single batched product instead of a loop over chunks.
    q_c, k_c, v_c = (x.reshape(-1, chunk_size, x.shape[-1]) for x in (q, k, v))
    inside = torch.bmm(torch.bmm(q_c, k_c.mT).tril(), v_c)
    states_MGDE = torch.bmm(k_c.mT, v_c).view(b * h, -1, d, e)
    # Shifted before it is summed. "Sum minus own chunk" would let the rounding of later tokens into t_i.
    prefix_MGDE = F.pad(states_MGDE[:, :-1].cumsum(1), (0, 0, 0, 0, 1, 0))
    t = torch.baddbmm(inside, q_c, prefix_MGDE.view(-1, d, e))
    return t.view(b, h, n + ragged, e)[:, :, :n]


def product_flops(length: int, d: int, e: int, chunk_size: int | None) -> int:
    """Floating-point operations of one head's product, a multiply-add as two; no chunk: Q (K^T V)."""
    if chunk_size is None:
        return 4 * length * d * e
    if length <= chunk_size:
        return 2 * length * length * (d + e)
    last = length % chunk_size  # a chunk of its own
    squares = (length - last) * chunk_size + last * last
    return 2 * squares * (d + e) + 4 * length * d * e


def product_and_normaliser(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """(t [B, H, N, E], z [B, H, N, 1]) of Q (K^T V), Eq. 13, in one pass: z is the product with a value of ones."""
    t = q @ (k.mT @ F.pad(v, (0, 1), value=1.0))
    return t[..., :-1], t[..., -1:]
