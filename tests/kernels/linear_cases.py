"""The specification that the linear kernels are held to: eager, quadratic, in whatever dtype it is given."""

import torch
from torch import Tensor


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
    """x [B, N, H, D] reflected, then its neighbouring pairs turned by position · θ."""
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
    if eps_placement == "inside":
        y = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    else:
        y = flat / (torch.linalg.vector_norm(flat, dim=-1, keepdim=True) * flat.shape[-1] ** -0.5 + eps)
    return y.reshape(t.shape), state
