"""Causal linear attention on a CPU, block by block: feature map, product and norm while a block is in the cache.

Forward, with P = φ(q), K = φ(k) and the running state S_<b = Σ_{j before the block} K_j v_j^T:

    T = tril(P K^T) V + P S_<                                       per chunk (see ``chunked``)
    O = T / rms(T)   or   O = T / max(z, floor), z = rowsum(tril(P K^T)) + P Σ_{j <} K_j   or   O = T

Backward, with G the gradient in O, c the mean of G ⊙ O over the norm's dimensions, r = 1 / rms(T), and the state from
the end, R_> = Σ_{i after} P_i^T dT_i:

    dT = r (G − c O)            for RMSNorm; for the denominator G / δ, and dz = −(dT · O) where z is not clamped
    dA = tril(dT V^T + dz 1^T)
    dP = dA K + dT S_<^T        dK = dA^T P + V R_>^T        dV = tril(P K^T)^T dT + K R_>
    dq = dP ⊙ φ'(q)             dk = dK ⊙ φ'(k)              with φ' taken from φ's own value

The backward pass recomputes everything from q, k and v except the output, one number per token and one state per block.
That takes a sixth more products than autograd and is faster, because a 64 × 64 product runs at half speed on operands
from main memory, and allocating a large tensor costs as much as filling it. Second derivatives use the plain form.

Shapes: B batch, H heads, N length, D of q and k, E of v, T tokens of a block, C of a chunk, M = B·H, G chunks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import torch
from torch import Tensor

from transnormer_lib.attention.derivatives import plain_gradients, transformed
from transnormer_lib.attention.feature_maps import feature_map, slope
from transnormer_lib.attention.norms import wide_dtype

# Numbers in each tensor of a block, per thread: half a megabyte in float32, so that a dozen tensors stay in the cache.
# Values from 2^16 to 2^18 differ little.
_BLOCK_NUMBERS = 2**17
# Numbers of q from which another thread is worth it. Below, the many short parallel regions cost more than they save,
# and on a busy machine they wait for threads that do not run.
_THREAD_NUMBERS = 2**20


@dataclass(frozen=True)
class Product:
    """What to compute of q, k and v besides the causal product."""

    chunk_size: int = 64
    phi: str = "identity"
    finish: Literal["none", "rms", "denominator"] = "none"
    dims: tuple[int, ...] = (1, 3)  # what "rms" averages, of [B, H, N, E]
    eps: float = 1e-8  # of "rms"
    eps_inside: bool = True  # of "rms"
    floor: float = 1e-6  # of "denominator"


Plain = Callable[[Tensor, Tensor, Tensor, Tensor | None, Product], Tensor]


def serves(*tensors: Tensor) -> bool:
    """Whether the block-wise form can run: on a CPU, outside torch.func, forward-mode derivatives and compilers."""
    return all(x.device.type == "cpu" for x in tensors) and not torch.compiler.is_compiling() and not transformed()


_capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
# Whether this CPU has instructions for bfloat16 products summed in float32.
_BFLOAT16_PRODUCTS = bool(_capabilities.get("avx512_bf16") or _capabilities.get("amx_bf16"))


def blockwise(
    q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, product: Product, plain: Plain
) -> Tensor:
    """O [B, H, N, E] of the formulas above for q, k [B, H, N, D] and v [B, H, N, E].

    ``plain`` is the same function composed of PyTorch operations, for derivatives of the gradient. A normalised result
    has q's dtype, any other the sums' dtype.
    """
    out: Tensor = _Blockwise.apply(q, k, v, key_padding_mask, product, plain)
    return out


def _blocks(b: int, h: int, n: int, d: int, chunk_size: int) -> Iterator[tuple[slice, list[tuple[slice, int]]]]:
    """Parts of the batch, each with its blocks of tokens in order and the size of each block's chunks.

    A last, shorter chunk is its own block.
    """
    if not b * n:
        return
    chunk_size, room = min(chunk_size, n), _BLOCK_NUMBERS * torch.get_num_threads()
    rows = min(b, max(1, room // (h * chunk_size * d)))
    tokens = chunk_size * max(1, room // (rows * h * chunk_size * d))
    whole = n - n % chunk_size
    parts = [(slice(start, min(start + tokens, whole)), chunk_size) for start in range(0, whole, tokens)]
    if n > whole:
        parts.append((slice(whole, n), n - whole))
    for row in range(0, b, rows):
        yield slice(row, min(row + rows, b)), parts


class _Chunks:
    """One block's contiguous operands [M·G, C, ·] and the products that both passes need."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, product: Product, c: int, alone: bool
    ) -> None:
        dtype = operand_dtype(q.dtype)
        phi = feature_map(product.phi)
        self.alone = alone  # the only chunk: no state
        self.m, self.c = q.shape[0] * q.shape[1], c
        self.padding = None if mask is None else mask[:, None, :, None]
        phi_k = phi(k.to(dtype))
        if self.padding is not None:
            phi_k = phi_k.masked_fill(self.padding, 0.0)
        self.q, self.k, self.v = self.cut(phi(q.to(dtype))), self.cut(phi_k), self.cut(v.to(dtype))
        self.a = torch.bmm(self.q, self.k.mT).tril_()

    def cut(self, x: Tensor) -> Tensor:
        """[B, H, T, ·] as chunks [M·G, C, ·]."""
        return x.reshape(-1, self.c, x.shape[-1])

    def before(self, summands_GDE: Tensor, carry_MDE: Tensor) -> Tensor:
        """[M·G, ...]: per chunk the sum over earlier ones; adds the block's own sum to ``carry``."""
        return self._running(summands_GDE, carry_MDE, 1)

    def after(self, summands_GDE: Tensor, carry_MDE: Tensor) -> Tensor:
        return self._running(summands_GDE, carry_MDE, -1)

    def _running(self, summands_GDE: Tensor, carry_MDE: Tensor, step: int) -> Tensor:
        # Exclusive by construction: "sum minus own chunk" would let the rounding of later tokens in. The sum is in the
        # carry's dtype; the result, a factor of the next product, in the summands'.
        sums_GDE = torch.empty_like(summands_GDE)
        each = summands_GDE.unflatten(0, (self.m, -1)).unbind(1)[::step]
        sums = sums_GDE.unflatten(0, (self.m, -1)).unbind(1)[::step]
        sums[0].copy_(carry_MDE)
        if carry_MDE.dtype == sums_GDE.dtype:
            for g in range(len(each) - 1):
                torch.add(sums[g], each[g], out=sums[g + 1])
            torch.add(sums[-1], each[-1], out=carry_MDE)
            return sums_GDE
        for g in range(len(each) - 1):
            sums[g + 1].copy_(carry_MDE.add_(each[g]))
        carry_MDE.add_(each[-1])
        return sums_GDE


def operand_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a product's factors: bfloat16 stays if the CPU multiplies it, else ``wide_dtype``."""
    return dtype if dtype == torch.bfloat16 and _BFLOAT16_PRODUCTS else wide_dtype(dtype)


def _add_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.baddbmm(x, a, b, out=x)


def _prepared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without autocast, which would undo ``operand_dtype``'s choice in some products; with the threads it is worth."""

    @wraps(function)
    def run(ctx: Any, x: Tensor, *others: Any) -> Any:
        before = torch.get_num_threads()
        threads = min(before, max(1, x.numel() // _THREAD_NUMBERS))
        if threads != before:
            torch.set_num_threads(threads)
        try:
            if not torch.is_autocast_enabled("cpu"):
                return function(ctx, x, *others)
            with torch.autocast("cpu", enabled=False):
                return function(ctx, x, *others)
        finally:
            if threads != before:
                torch.set_num_threads(before)

    return run


class _Blockwise(torch.autograd.Function):
    @staticmethod
    @_prepared
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, product: Product, plain: Plain
    ) -> Tensor:
        (b, h, n, d), e, wide = q.shape, v.shape[-1], wide_dtype(q.dtype)
        # Laid out [B, N, H, E], so that merging the heads afterwards copies nothing.
        o = q.new_empty(b, n, h, e, dtype=wide if product.finish == "none" else q.dtype).transpose(1, 2)
        per_head = product.finish == "denominator" or 1 not in product.dims
        kept = q.new_empty(b, h if per_head else 1, n, 1, dtype=wide) if product.finish != "none" else None
        states: list[Tensor] = []
        alone = n <= product.chunk_size
        for rows, parts in _blocks(b, h, n, d, product.chunk_size):
            m = (rows.stop - rows.start) * h
            kv, z = q.new_zeros(m, d, e, dtype=wide), q.new_zeros(m, d, dtype=wide)
            for tokens, c in parts:
                at = (rows, slice(None), tokens)
                chunks = _Chunks(q[at], k[at], v[at], None if mask is None else mask[rows, tokens], product, c, alone)
                if any(ctx.needs_input_grad):
                    states += [kv.clone(), z.clone()]
                t = torch.bmm(chunks.a, chunks.v)
                if not alone:
                    t = _add_product(t, chunks.q, chunks.before(torch.bmm(chunks.k.mT, chunks.v), kv))
                t_BHTE = t.view(-1, h, tokens.stop - tokens.start, e).to(wide)
                if kept is None:
                    o[at] = t_BHTE
                    continue
                if product.finish == "rms":
                    factor = kept[rows, :, tokens] = _inverse_rms(t_BHTE, product)
                else:
                    row_sums = chunks.a.sum(-1, keepdim=True, dtype=wide)
                    if not alone:
                        sums = chunks.before(chunks.k.sum(1, dtype=wide), z)
                        row_sums += (chunks.q * sums[:, None]).sum(-1, keepdim=True)
                    kept[at] = row_sums = row_sums.view(-1, h, tokens.stop - tokens.start, 1)
                    factor = row_sums.clamp(min=product.floor).reciprocal()
                torch.mul(t_BHTE, factor, out=o[at]) if o.dtype == wide else o[at].copy_(t_BHTE.mul_(factor))
        ctx.product, ctx.plain = product, plain
        ctx.save_for_backward(q, k, v, mask, o if kept is not None else None, kept, *states)
        return o

    @staticmethod
    @_prepared
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, o, kept, *states = ctx.saved_tensors
        (g,) = gradients
        product = ctx.product
        if torch.is_grad_enabled():

            def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return ctx.plain(q, k, v, mask, product)

            return *plain_gradients(plain, (q, k, v), ctx.needs_input_grad[:3], g), None, None, None
        (b, h, n, d), e, wide = q.shape, v.shape[-1], wide_dtype(q.dtype)
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        alone, saved = n <= product.chunk_size, iter(states)
        for rows, parts in _blocks(b, h, n, d, product.chunk_size):
            m = (rows.stop - rows.start) * h
            dkv, dz_sum = q.new_zeros(m, d, e, dtype=wide), q.new_zeros(m, d, dtype=wide)
            before = [(next(saved), next(saved)) for _ in parts]
            for (tokens, c), (kv, z) in zip(reversed(parts), reversed(before), strict=True):
                at = (rows, slice(None), tokens)
                chunks = _Chunks(q[at], k[at], v[at], None if mask is None else mask[rows, tokens], product, c, alone)
                dt_BHTE, dz = g[at], None
                if kept is not None:
                    rows_kept = kept[rows, :, tokens]
                    dt_BHTE, dz_BHT1 = _through_finish(dt_BHTE.to(wide), o[at].to(wide), rows_kept, product)
                    dz = None if dz_BHT1 is None else chunks.cut(dz_BHT1)
                dt = chunks.cut(dt_BHTE.to(chunks.v.dtype))
                da = torch.bmm(dt, chunks.v.mT)
                if dz is not None:
                    da += dz
                da.tril_()
                dp, dk_phi = torch.bmm(da, chunks.k), torch.bmm(da.mT, chunks.q)
                dv_c = torch.bmm(chunks.a.mT, dt)
                if not alone:
                    ahead = chunks.after(torch.bmm(chunks.q.mT, dt), dkv)
                    _add_product(dp, dt, chunks.before(torch.bmm(chunks.k.mT, chunks.v), kv.clone()).mT)
                    _add_product(dk_phi, chunks.v, ahead.mT)
                    _add_product(dv_c, chunks.k, ahead)
                    if dz is not None:
                        dp += dz * chunks.before(chunks.k.sum(1, dtype=wide), z.clone())[:, None]
                        dk_phi += chunks.after((dz * chunks.q).sum(1, dtype=wide), dz_sum)[:, None]
                for gradient, inner, x in ((dq, dp, chunks.q), (dk, dk_phi, chunks.k)):
                    factor, shape = slope(product.phi, x), (-1, h, tokens.stop - tokens.start, d)
                    if factor is None or gradient.dtype != inner.dtype:
                        gradient[at] = (inner if factor is None else inner.mul_(factor)).view(shape)
                    else:
                        torch.mul(inner.view(shape), factor.view(shape), out=gradient[at])
                if chunks.padding is not None:
                    dk[at].masked_fill_(chunks.padding, 0.0)
                dv[at] = dv_c.view(-1, h, tokens.stop - tokens.start, e)
        return dq, dk, dv, None, None, None


def _inverse_rms(t: Tensor, product: Product) -> Tensor:
    mean = _mean(t.square(), product)
    return mean.add_(product.eps).rsqrt_() if product.eps_inside else mean.sqrt_().add_(product.eps).reciprocal_()


def _mean(x_BHTE: Tensor, product: Product) -> Tensor:
    sums = x_BHTE.mean(-1, keepdim=True)
    return sums.mean(1, keepdim=True) if 1 in product.dims else sums


def _through_finish(g: Tensor, o: Tensor, kept: Tensor, product: Product) -> tuple[Tensor, Tensor | None]:
    """(dT, dz or None) for the gradient g in the finished output o."""
    if product.finish == "denominator":
        dt = g / kept.clamp(min=product.floor)
        return dt, (dt * o).sum(-1, keepdim=True).neg_().masked_fill_(kept < product.floor, 0.0)
    c = _mean(g * o, product).neg_()
    if not product.eps_inside:  # times (σ + ε) / σ, where σ = 1/r − ε; a row of zeros has o = 0 and so c = 0
        c = c / (1 - product.eps * kept).clamp(min=torch.finfo(kept.dtype).eps)
    return torch.addcmul(g, o, c).mul_(kept), None
