"""The specification of the linear kernels, eager and quadratic, in the dtype of its inputs.

Also shared by their tests: an initial state, all results of a call forward and backward, two comparisons.
"""

from collections.abc import Callable
from typing import Any

import torch
from error_budget import assert_exact, assert_within_budget
from kernel_data import DEVICE
from torch import Tensor
from transnormer_kernels import norm_attention


def features(x: Tensor, phi: str) -> Tensor:
    match phi:
        case "elu":
            return torch.nn.functional.elu(x)
        case "1+elu":
            return x.clamp(max=0).exp() + x.clamp(min=0)
        case "relu":
            return x.relu()
    return x


def turned(x: Tensor, theta: Tensor | None, reflection: Tensor | None, position: int) -> Tensor:
    """x [B, N, H, D] reflected, then its neighbouring pairs rotated by position · θ."""
    if theta is None:
        return x
    if reflection is not None:
        u = (reflection / reflection.norm()).to(x.dtype)
        x = x - 2 * (x @ u)[..., None] * u
    angles = torch.arange(position, position + x.shape[1], device=x.device).double()[:, None] * theta.double()
    cos, sin = (t.to(x.dtype)[:, None] for t in (angles.cos(), angles.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def specification(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    phi: str = "1+elu",
    causal: bool = True,
    norm: str = "embedding",
    eps: float = 1e-8,
    eps_placement: str = "inside",
    denominator_floor: float = 1e-6,
    key_padding_mask: Tensor | None = None,
    initial_state: dict[str, Tensor] | None = None,
    theta: Tensor | None = None,
    reflection: Tensor | None = None,
    position: int = 0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(o [B, N, H, D], the final state), by the N × N matrix of Eq. 6 and 13."""
    plain_q, plain_k = features(q, phi), features(k, phi)
    if key_padding_mask is not None:
        padding = key_padding_mask[:, :, None, None]
        plain_k, v = plain_k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
    f_q, f_k = (turned(x, theta, reflection, position) for x in (plain_q, plain_k))
    s, plain_s = (torch.einsum("bihd,bjhd->bhij", a, b) for a, b in ((f_q, f_k), (plain_q, plain_k)))
    if causal:
        s, plain_s = s.tril(), plain_s.tril()
    t = torch.einsum("bhij,bjhe->bihe", s, v)
    delta = plain_s.sum(-1).transpose(1, 2)
    state = {"kv": torch.einsum("bjhd,bjhe->bhde", f_k, v), "z": plain_k.sum(1)}
    if initial_state is not None:
        kv, z = initial_state["kv"], initial_state.get("z", torch.zeros_like(state["z"]))
        t = t + torch.einsum("bihd,bhde->bihe", f_q, kv.to(q.dtype))
        delta = delta + torch.einsum("bihd,bhd->bih", plain_q, z.to(q.dtype))
        state = {"kv": state["kv"] + kv, "z": state["z"] + z}
    if norm == "denominator":
        return t / delta.clamp(min=denominator_floor)[..., None], state
    del state["z"]
    if norm == "none":
        return t, state
    flat = t.flatten(2) if norm == "embedding" else t
    flat = flat.to(torch.promote_types(t.dtype, torch.float32))  # 1e-8 is zero in float16
    if eps_placement == "inside":
        y = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    else:
        y = flat / (torch.linalg.vector_norm(flat, dim=-1, keepdim=True) * flat.shape[-1] ** -0.5 + eps)
    return y.reshape(t.shape).to(t.dtype), state


def initial_state(b: int, h: int, d: int, norm: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """A state of some earlier tokens; Σψ is positive, as for a positive φ."""
    generator = torch.Generator().manual_seed(b + h + d)
    state = {"kv": torch.randn(b, h, d, d, generator=generator, dtype=torch.float64).to(DEVICE, dtype)}
    if norm == "denominator":
        state["z"] = torch.rand(b, h, d, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
    return state


def kernel(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """``norm_attention`` with the final state, in the form of ``specification``."""
    return norm_attention(q, k, v, output_final_state=True, **options)


def results(
    f: Callable[..., tuple[Tensor, dict[str, Tensor]]], q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options: Any
) -> dict[str, Tensor]:
    """o and the final state of ``f``; the gradients of q, k, v, θ and the initial state by g and one of the state."""
    given = {"q": q, "k": k, "v": v} | {name: options[name] for name in ("theta",) if name in options}
    given |= {f"initial_{name}": x for name, x in options.get("initial_state", {}).items()}
    leaves = {name: x.detach().requires_grad_() for name, x in given.items()}
    if "theta" in leaves:
        options["theta"] = leaves["theta"]
    if "initial_state" in options:
        options["initial_state"] = {name: leaves[f"initial_{name}"] for name in options["initial_state"]}
    o, state = f(leaves["q"], leaves["k"], leaves["v"], **options)
    generator = torch.Generator().manual_seed(7)
    by_state = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in state.values()]
    gradients = torch.autograd.grad([o, *state.values()], list(leaves.values()), [g, *by_state], allow_unused=True)
    found = {"o": o.detach()} | {name: x.detach() for name, x in state.items()}
    return found | {f"d{name}": x for name, x in zip(leaves, gradients, strict=True)}


def assert_exact_case(q: Tensor, k: Tensor, v: Tensor, g: Tensor, segments: int | None = None, **options: Any) -> None:
    """The kernels agree with the specification in float64."""
    expected = results(specification, q, k, v, g, **options)
    assert_exact(results(kernel, q, k, v, g, segments=segments, **options), expected, (q, k, v, g))


def assert_case_within_budget(q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options: Any) -> None:
    """The kernels stay within the budget that the specification in the same dtype sets."""
    state = {name: x.double() for name, x in options.get("initial_state", {}).items()}
    exact = results(
        specification, *(x.double() for x in (q, k, v, g)), **options | ({"initial_state": state} if state else {})
    )
    eager = results(specification, q, k, v, g, **options)
    assert_within_budget(results(kernel, q, k, v, g, **options), eager, exact, q.shape[1] + q.shape[-1])
