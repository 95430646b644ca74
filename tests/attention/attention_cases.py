"""What the tests of attention share: variants, random inputs, an oracle in plain Python, rounding budgets.

Shapes: B batch, H heads, N length, D head_dim.
"""

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from transnormer_lib.attention import Attention, Rotary, build, feature_map

PHIS = ("elu", "1+elu", "relu", "identity")

# id -> (registered name, fields of its config)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    **{f"linear-{phi}": ("linear", {"phi": phi}) for phi in PHIS},
    **{f"unscaled-{phi}": ("linear-unscaled", {"phi": phi}) for phi in PHIS},
    **{f"norm-{phi}": ("norm", {"phi": phi}) for phi in PHIS},
    "norm-eps-outside": ("norm", {"phi": "elu", "eps_placement": "outside"}),
    "norm-per-head": ("norm", {"norm_over": "head"}),
    "norm-layer": ("norm", {"norm": "layer", "eps": 1e-5}),
    "norm-layer-per-head-affine": ("norm", {"norm": "layer", "norm_over": "head", "affine": True}),
    "norm-affine": ("norm", {"affine": True}),
    "norm-scale": ("norm", {"phi": "elu", "norm": "scale"}),
    "norm-scale-per-head-affine": ("norm", {"norm": "scale", "norm_over": "head", "affine": True}),
    "diag-softmax": ("diag", {}),
    "diag-rela": ("diag", {"scores": "rela"}),
    "diag-rela-eps-outside": ("diag", {"scores": "rela", "eps_placement": "outside"}),
    "diag-rela-no-norm": ("diag", {"scores": "rela", "norm": "none"}),
    "diag-softmax-rms": ("diag", {"norm": "rms"}),
}

# The mechanisms that these variants are of; the tests of the whole registry have cases of their own.
NAMES = tuple(sorted({name for name, _ in VARIANTS.values()}))

shapes = st.fixed_dictionaries(
    {
        "b": st.integers(1, 2),
        "h": st.integers(1, 3),
        "n": st.integers(1, 23),
        "d": st.integers(1, 5),
        "chunk": st.integers(1, 9),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def make(variant: str, h: int, d: int, chunk: int = 64, **fields: Any) -> Attention:
    """The variant with ``chunk`` as chunk or block size, in float64, with uneven learned gains."""
    name, own = VARIANTS[variant]
    sizes = {"block_size": chunk} if name == "diag" else {"chunk_size": chunk}
    attention = build(name, {"heads": h, "head_dim": d, **own, **sizes, **fields}).double()
    if isinstance(attention.rotary, Rotary):  # not from torch's global random state
        attention.rotary.reset_parameters(torch.Generator().manual_seed(chunk))
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter += torch.linspace(0.1, 0.7, parameter.numel()).view_as(parameter)
    return attention


def make_tame(variant: str, h: int, d: int, chunk: int, **fields: Any) -> Attention:
    """``make`` for comparisons at a fixed tolerance.

    A denominator of ``linear`` that may be zero or negative is clamped at 1e-6, which blows rounding up a million
    times; here it is clamped at 0.1.
    """
    if VARIANTS[variant][0] == "linear":
        fields["denominator_floor"] = 0.1
    return make(variant, h, d, chunk, **fields)


def draw_qkv(b: int, h: int, n: int, d: int, seed: int, scale: float = 1.0) -> list[Tensor]:
    """q, k, v [B, H, N, D] in float64 from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(b, h, n, d, generator=generator, dtype=torch.float64) for _ in range(3)]


def draw_mask(b: int, n: int, seed: int) -> Tensor:
    """A padding mask [B, N] with holes anywhere; about a third is padding, sometimes all or none."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(b, n, generator=generator) < torch.rand(b, 1, generator=generator) * 0.7


# --- the oracle: one number at a time, sharing nothing with the library ---------------------------


def _phi(name: str, x: float) -> float:
    elu = x if x > 0 else math.expm1(x)
    return {"elu": elu, "1+elu": elu + 1, "relu": max(x, 0.0), "identity": x}[name]


def oracle(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """o_BHND by loops over tokens. For variants without learned gain."""
    c: Any = attention.config
    b, h, n, d = q.shape
    t = torch.zeros(b, h, n, d, dtype=torch.float64)
    for at in [(x, y, i) for x in range(b) for y in range(h) for i in range(n)]:
        x, y, i = at
        keys = [j for j in range(n) if not (c.causal and j > i) and not (mask is not None and mask[x, j])]
        if attention.name == "diag":
            keys = [j for j in keys if j // c.block_size == i // c.block_size]
        qi = q[x, y, i].tolist()
        rows = [(k[x, y, j].tolist(), v[x, y, j].tolist()) for j in keys]
        if attention.name in ("softmax", "diag"):
            a = [sum(s * r for s, r in zip(qi, kj, strict=True)) / math.sqrt(d) for kj, _ in rows]
            if getattr(c, "scores", "softmax") == "rela":
                a = [max(s, 0.0) for s in a]
            else:
                top = max(a, default=0.0)
                e = [math.exp(s - top) for s in a]
                a = [s / sum(e) for s in e]
        else:
            a = [sum(_phi(c.phi, s) * _phi(c.phi, r) for s, r in zip(qi, kj, strict=True)) for kj, _ in rows]
            if attention.name == "linear":
                a = [s / max(sum(a), c.denominator_floor) for s in a]
        for s, (_, vj) in zip(a, rows, strict=True):
            t[at] += s * torch.tensor(vj, dtype=torch.float64)
    if getattr(c, "output_norm", getattr(c, "norm", "none")) == "none":
        return t
    o = torch.zeros_like(t)
    over_heads = getattr(c, "norm_over", "embedding") == "embedding"
    for x, y, i in [(x, y, i) for x in range(b) for y in range(h) for i in range(n)]:
        numbers = (t[x, :, i] if over_heads else t[x, y, i]).flatten().tolist()
        mean = sum(numbers) / len(numbers) if c.norm == "layer" else 0.0
        power = sum((value - mean) ** 2 for value in numbers) / len(numbers)
        if c.norm == "scale":
            bottom = max(math.hypot(*numbers), c.eps) / math.sqrt(len(numbers))
        else:
            bottom = math.sqrt(power + c.eps) if c.eps_placement == "inside" else math.sqrt(power) + c.eps
        o[x, y, i] = (t[x, y, i] - mean) / bottom
    return o


# --- how far two correct forms may differ ---------------------------------------------------------


def rounding_budget(
    attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """A first-order bound, per element of o, on the difference of two forms that round every operation at
    ``eps``.

    A sum of m products differs by at most about m·eps times the sum of the magnitudes; that error is then
    carried through the division or the norm. Two forms are compared, hence the factor 2 on it.
    """
    c: Any = attention.config
    eps = torch.finfo(q.dtype).eps if eps is None else eps
    q, k, v = q.double(), k.double(), v.double()
    n, d = q.shape[2:]
    unit = 2 * eps * (n + 2 * d + 16)
    allowed = attention.allowed(n, mask, q.device)
    see = torch.ones(n, n, dtype=torch.bool) if allowed is None else allowed
    if attention.name in ("softmax", "diag"):
        magnitude = (q.abs() @ k.abs().mT * d**-0.5) * see
        if getattr(c, "scores", "softmax") == "rela":
            error = unit * (magnitude @ v.abs())
        else:
            # an error of a in the scores changes a softmax weight by at most a factor exp(2a)
            shift = 2 * unit * magnitude.amax(-1, keepdim=True) + unit
            error = shift * (attention.attention_matrix(q, k, allowed) @ v.abs())
    else:
        phi = feature_map(c.phi)
        magnitude = (phi(q).abs() @ phi(k).abs().mT) * see
        error = unit * (magnitude @ v.abs())
        if attention.name == "linear":
            s = (phi(q) @ phi(k).mT) * see
            bottom = s.sum(-1, keepdim=True).clamp(min=c.denominator_floor)
            share = magnitude.sum(-1, keepdim=True) / bottom
            return error / bottom + unit * share * ((s / bottom) @ v).abs()
    if getattr(c, "output_norm", getattr(c, "norm", "none")) == "none":
        return error
    t = attention.attention_matrix(q, k, allowed) @ v
    dims = (1, 3) if getattr(c, "norm_over", "embedding") == "embedding" else (3,)
    width = math.prod(t.shape[dim] for dim in dims)
    error = error.amax(dims, keepdim=True) + 4 * eps * width * t.abs().amax(dims, keepdim=True)
    centred = t - t.mean(dims, keepdim=True) if c.norm == "layer" else t
    power = centred.square().mean(dims, keepdim=True)
    if c.norm == "scale":
        bottom = power.sqrt().clamp(min=c.eps / width**0.5)
    else:
        bottom = (power + c.eps).sqrt() if c.eps_placement == "inside" else power.sqrt() + c.eps
    gain = max([1.0, *(p.abs().max().item() for p in attention.parameters())])
    # d(x/r) = dx/r − x·dr/r², |dr| ≤ max |dx|; twice that where the mean goes off as well
    relative = 2 * error / bottom * (1 + centred.abs().amax(dims, keepdim=True) / bottom)
    return (gain * relative + 8 * eps * gain).expand_as(t)


def assert_within(actual: Tensor, expected: Tensor, budget: Tensor) -> None:
    """Every element of ``actual`` lies within ``budget`` of ``expected``."""
    excess = (actual.double() - expected.double()).abs() - budget
    assert actual.isfinite().all()
    assert excess.max().item() <= 0, f"{excess.max().item():.3g} beyond a budget of up to {budget.max():.3g}"
