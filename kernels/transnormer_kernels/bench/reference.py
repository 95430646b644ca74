"""The specification that contestants are checked against, and plain PyTorch forms that are contestants.

``specification`` is quadratic in the length and follows the paper's equations. In float64 it is the exact result; its
error in the case's own dtype sets the bound for that dtype. ``short_form`` is the same function at linear cost.
Shapes: B batch, N length, H heads, D head_dim; C tokens of a chunk, T = N/C chunks.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transnormer_kernels.bench.cases import Case

_FLOOR = 1e-6  # a denominator is clamped below at this
_CHUNK = 64


@dataclass(frozen=True)
class Inputs:
    """One set of a case's tensors; ``state`` and ``position`` are for decoding steps."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor | None = None  # the gradient of o
    theta: Tensor | None = None  # [D/2]
    reflection: Tensor | None = None  # [D]
    state: Tensor | None = None  # [B, H, D, D] float32
    position: int = 0

    def named(self) -> dict[str, Tensor]:
        """The tensors that are not None, by name."""
        return {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}

    def leaves(self) -> dict[str, Tensor]:
        """The tensors whose gradients a backward pass computes."""
        return {name: x for name, x in self.named().items() if name in ("q", "k", "v", "theta")}

    def differentiable(self) -> "Inputs":
        """The same numbers, with leaves that require gradients."""
        leaves: dict[str, Any] = {name: leaf.detach().requires_grad_() for name, leaf in self.leaves().items()}
        return replace(self, **leaves)

    def to(self, dtype: torch.dtype) -> "Inputs":
        """Copies in ``dtype``; θ, the reflection and the state stay at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        copies: dict[str, Any] = {
            name: x.detach().to(wide if name in ("theta", "reflection", "state") else dtype, copy=True)
            for name, x in self.named().items()
        }
        return replace(self, **copies)


def make_inputs(case: Case, device: torch.device, seed: int) -> Inputs:
    """Standard normal q, k, v and g; θ_m = 10000^(−2m/D); a random unit vector; a state of some tokens already seen."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, dtype: torch.dtype = case.torch_dtype) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    d = case.head_dim
    q, k, v = (normal(*case.tokens) for _ in range(3))
    theta = reflection = state = None
    if case.rotated:
        theta = 10000.0 ** (-torch.arange(0, d, 2, device=device, dtype=torch.float32) / d)
        reflection = F.normalize(normal(d, dtype=torch.float32), dim=0)
    if case.operation == "step":
        state = normal(case.batch, case.heads, d, d, dtype=torch.float32)
    g = normal(*case.tokens) if case.backward else None
    return Inputs(q, k, v, g, theta, reflection, state)


def features(x: Tensor, phi: str) -> Tensor:
    """φ of Section 4.2, elementwise."""
    match phi:
        case "elu":
            return F.elu(x)
        case "1+elu":
            return x.clamp(max=0).exp() + x.clamp(min=0)
        case "relu":
            return x.relu()
    return x


def rotated(x: Tensor, theta: Tensor | None, reflection: Tensor | None, position: int = 0) -> Tensor:
    """x [..., N, H, D] reflected, then its neighbouring pairs rotated by their position times θ."""
    if theta is None:
        return x
    if reflection is not None:
        u = reflection.to(x.dtype)
        x = x - 2 * (x * u).sum(-1, keepdim=True) * u
    positions = torch.arange(position, position + x.shape[-3], device=x.device, dtype=torch.float64)
    angles = positions[:, None] * theta.double()
    cos, sin = angles.cos().to(x.dtype)[:, None], angles.sin().to(x.dtype)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def normed(o: Tensor, case: Case) -> Tensor:
    """RMSNorm without gain over the H·D numbers of a token, if the case has one; o [..., H, D]."""
    if case.norm != "embedding":
        return o
    flat = o.flatten(-2)
    mean = flat.square().mean(-1, keepdim=True)
    if case.eps_placement == "inside":
        return (flat * torch.rsqrt(mean + case.eps)).view_as(o)
    return (flat / (mean.sqrt() + case.eps)).view_as(o)


def specification(case: Case, x: Inputs) -> dict[str, Tensor]:
    """{"o": ...}, for a step also the new "state", by the N × N matrix of all scores."""
    if case.operation == "step":
        return _step(case, x)
    n = case.length
    rows = torch.arange(n, device=x.q.device)
    visible = rows[:, None] >= rows if case.causal else torch.ones(n, n, dtype=torch.bool, device=x.q.device)
    if case.operation == "norm":
        q, k = features(x.q, case.phi), features(x.k, case.phi)
        turned = (rotated(a, x.theta, x.reflection) if case.rotated else a for a in (q, k))
        scores = torch.einsum("bihd,bjhd->bhij", *turned).masked_fill(~visible, 0)
        o = torch.einsum("bhij,bjhd->bihd", scores, x.v)
        if case.norm == "denominator":
            plain = torch.einsum("bihd,bjhd->bhij", q, k).masked_fill(~visible, 0)
            o = o / plain.sum(-1).transpose(1, 2).clamp(min=_FLOOR)[..., None]
        return {"o": normed(o, case)}
    if case.operation == "diag":
        visible = visible & (rows[:, None] // case.block_size == rows // case.block_size)
    scores = torch.einsum("bihd,bjhd->bhij", x.q, x.k) * case.head_dim**-0.5
    if case.operation == "softmax" or case.scores == "softmax":
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    else:
        weights = scores.relu().masked_fill(~visible, 0)
    o = torch.einsum("bhij,bjhd->bihd", weights, x.v)
    return {"o": normed(o, case) if case.operation == "diag" else o}


def short_form(case: Case, x: Inputs) -> dict[str, Tensor]:
    """:func:`specification` at a cost linear in the length: states passed from chunk to chunk, or blocks."""
    match case.operation:
        case "step":
            return _step(case, x)
        case "diag":
            return {"o": normed(_blocks(case, x), case)}
        case "norm":
            return {"o": normed(_chunked(case, x) if case.causal else _bidirectional(case, x), case)}
    raise ValueError(f"operation={case.operation!r}: has no short form")


def _step(case: Case, x: Inputs) -> dict[str, Tensor]:
    """o_t = φ(q_t)·S_t with S_t = S_{t−1} + φ(k_t) v_t^T; q, k, v [B, H, D]."""
    assert x.state is not None
    q, k = features(x.q, case.phi).to(x.state.dtype), features(x.k, case.phi).to(x.state.dtype)
    state = x.state + k[..., None] * x.v[..., None, :].to(x.state.dtype)
    o = (q[..., None, :] @ state)[..., 0, :]
    return {"o": normed(o, case).to(x.v.dtype), "state": state}


def _linear_inputs(case: Case, x: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """φ(q), φ(k) rotated, and v, with a column of ones for the denominator; [B, N, H, ·]."""
    if case.rotated and case.norm == "denominator":
        raise ValueError("rotated=True: the denominator's scores are not rotated, so one product cannot give both")
    q, k = (features(a, case.phi) for a in (x.q, x.k))
    if case.rotated:
        q, k = (rotated(a, x.theta, x.reflection) for a in (q, k))
    v = F.pad(x.v, (0, 1), value=1.0) if case.norm == "denominator" else x.v
    return q, k, v


def _scaled(case: Case, o: Tensor) -> Tensor:
    """o divided by its last column, if that is the denominator."""
    return o[..., :-1] / o[..., -1:].clamp(min=_FLOOR) if case.norm == "denominator" else o


def _bidirectional(case: Case, x: Inputs) -> Tensor:
    q, k, v = (a.transpose(1, 2) for a in _linear_inputs(case, x))
    return _scaled(case, (q @ (k.mT @ v)).transpose(1, 2))


def _chunked(case: Case, x: Inputs) -> Tensor:
    """Scores within a chunk, the running sum of K^T V, at least in float32, between chunks."""
    batch, n, heads, _ = x.q.shape
    chunk = min(_CHUNK, n)
    whole = -(-n // chunk) * chunk
    q_BHTCD, k_BHTCD, v_BHTCD = (
        F.pad(a, (0, 0, 0, 0, 0, whole - n)).unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4)
        for a in _linear_inputs(case, x)
    )
    sums = (k_BHTCD.mT @ v_BHTCD).to(torch.promote_types(x.q.dtype, torch.float32))
    before = (sums.cumsum(2) - sums).to(x.q.dtype)
    o_BHTCD = (q_BHTCD @ k_BHTCD.mT).tril() @ v_BHTCD + q_BHTCD @ before
    return _scaled(case, o_BHTCD.permute(0, 2, 3, 1, 4).reshape(batch, whole, heads, -1)[:, :n])


def _blocks(case: Case, x: Inputs) -> Tensor:
    """Attention of each block to itself; the length must be a multiple of the block."""
    if case.length % case.block_size:
        raise ValueError(f"length={case.length}: must be a multiple of block_size={case.block_size}")
    q, k, v = (a.unflatten(1, (-1, case.block_size)).transpose(2, 3) for a in (x.q, x.k, x.v))
    scores = (q @ k.mT) * case.head_dim**-0.5
    if case.causal:
        scores = scores.tril() if case.scores == "rela" else scores + _above(case, x.q)
    weights = scores.softmax(-1) if case.scores == "softmax" else scores.relu()
    return (weights @ v).transpose(2, 3).flatten(1, 2)


def _above(case: Case, like: Tensor) -> Tensor:
    """−∞ above the diagonal of a block."""
    w = case.block_size
    return torch.full((w, w), -torch.inf, dtype=like.dtype, device=like.device).triu(1)
