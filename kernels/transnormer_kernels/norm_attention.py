"""NormAttention and the scaled linear attention it replaces, on [B, N, H, D].

Eq. 13 and 14 of "The Devil in Linear Transformer": o = XNorm(φ(Q) (φ(K)^T V)). ``linear_forward`` and
``linear_backward`` derive the kernels, ``linear_ops`` launches them.
"""

from typing import Literal

import torch
from torch import Tensor

from transnormer_kernels import linear_forward
from transnormer_kernels.checks import (
    check_choice,
    check_cu_seqlens,
    check_device,
    check_padding,
    check_positive,
    check_qkv,
    check_rotation,
)
from transnormer_kernels.configurations import sum_dtype, tile_width
from transnormer_kernels.linear_ops import NORMS, WHOLE_ROW, linear_attention
from transnormer_kernels.rotation import rotated_features
from transnormer_kernels.tiles import PHI

Phi = Literal["elu", "1+elu", "relu", "identity"]
Norm = Literal["embedding", "head", "none", "denominator"]
State = dict[str, Tensor]


def norm_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    phi: Phi = "1+elu",
    causal: bool = True,
    norm: Norm = "embedding",
    eps: float = 1e-8,
    eps_placement: Literal["inside", "outside"] = "inside",
    denominator_floor: float = 1e-6,
    key_padding_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    initial_state: State | None = None,
    output_final_state: bool = False,
    theta: Tensor | None = None,
    reflection: Tensor | None = None,
    position: int = 0,
    segments: int | None = None,
) -> Tensor | tuple[Tensor, State]:
    """o [B, N, H, D] of q, k, v [B, N, H, D]; with ``output_final_state`` (o, state).

    ``norm``: RMSNorm without gain over the H·D numbers of a token (``embedding``, the paper's) or the D of a head
    (``head``); ``none``; or ``denominator``, the scaled attention of Eq. 3, whose Σ_j φ(q_i)·φ(k_j) is clamped from
    below at ``denominator_floor``. ε is ``inside`` the root (Definition D.1) or ``outside`` (as released).

    ``key_padding_mask`` [B, N] is True on padding: such a key contributes nothing, whatever its content. Sequences of
    different length may instead be packed along N with B = 1 and offsets ``cu_seqlens`` int32 [B' + 1];
    passing ``max_seqlen``, the longest length, avoids a GPU synchronisation (rows beyond it are undefined). ``theta``
    [D/2] (radians per token, learnable) rotates neighbouring pairs of the features by their position; ``reflection``
    [D] reflects the features first (LRPE).

    A state is {"kv": [B, H, D, D]}, with ``denominator`` also {"z": [B, H, D]}: Σ ψ(k_j) v_j^T and Σ ψ(k_j) of the
    tokens so far, float32. ``initial_state`` is the state before the first token, whose position is ``position``.
    ``segments`` is the number of pieces of a sequence computed in parallel; None chooses it for the GPU.

    Head dimensions 16, 32, 64, 80, 96 and 128, any length; bfloat16, float16 and float32, summed in float32, on a
    CUDA device. In float16 scores, and gradients divided by a token's norm, must lie within its range, as in PyTorch's
    own products. Differentiable once in q, k, v, θ and the initial state. Under autocast q, k, v take its dtype.
    Raises ValueError or TypeError in one line for anything else.
    """
    if torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64:
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    check_qkv(q, k, v)
    check_device(q, linear_forward.outputs)
    check_choice("phi", phi, tuple(PHI))
    check_choice("norm", norm, tuple(NORMS))
    check_choice("eps_placement", eps_placement, ("inside", "outside"))
    check_positive("eps", eps)
    check_positive("denominator_floor", denominator_floor)
    check_padding(key_padding_mask, q)
    check_cu_seqlens(cu_seqlens, q)
    check_rotation(theta, reflection, q)
    check_count("position", position, 0)
    check_count("segments", 1 if segments is None else segments, 1)
    if max_seqlen is not None:
        check_count("max_seqlen", max_seqlen, 1)
    sequences = q.shape[0]
    if cu_seqlens is not None:
        sequences = cu_seqlens.shape[0] - 1
        if max_seqlen is None:
            max_seqlen = int(cu_seqlens.diff().max())
    kv, z = None, None
    if initial_state is not None:
        kv, z = check_state("initial_state", initial_state, sequences, q, norm)
    if theta is not None and tile_width(q.shape[-1]) > WHOLE_ROW:
        # The backward kernel splits such wide rows into parts, but a reflection needs whole rows.
        if norm == "denominator":
            raise ValueError(f"norm='denominator' with a rotation: head_dim={q.shape[-1]} must be at most {WHOLE_ROW}")
        if key_padding_mask is not None:
            k = k.masked_fill(key_padding_mask[:, :, None, None], 0.0)  # a NaN in padding would reach θ
        q, k = (rotated_features(x, phi, theta, reflection, position, cu_seqlens) for x in (q, k))
        phi, theta, reflection = "identity", None, None
    inputs = (q, k, v, kv, z, theta)
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    o, _, final_kv, final_z, _, _ = linear_attention(
        q, k, v, phi, norm, causal, eps, eps_placement, denominator_floor, key_padding_mask, cu_seqlens,
        max_seqlen or 0, kv, z, theta, reflection, position, segments or 0, save, output_final_state,
    )  # fmt: skip
    if not output_final_state:
        return o
    return o, {"kv": final_kv, "z": final_z} if norm == "denominator" else {"kv": final_kv}


def check_count(name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least {least}")


def check_state(argument: str, state: State, sequences: int, q: Tensor, norm: str) -> tuple[Tensor, Tensor | None]:
    """The state's (kv, z), z only with a denominator. Raises ValueError unless it matches q [..., H, D]."""
    heads, d = q.shape[-2:]
    shapes = {"kv": (sequences, heads, d, d)} | ({"z": (sequences, heads, d)} if norm == "denominator" else {})
    if set(state) != set(shapes):
        raise ValueError(f"{argument}={sorted(state)}: must hold {', '.join(shapes)} with norm={norm!r}")
    for name, shape in shapes.items():
        x = state[name]
        if x.shape != shape or x.dtype != sum_dtype(q.dtype) or x.device != q.device:
            raise ValueError(
                f"{argument}[{name!r}] is {x.dtype} {tuple(x.shape)} on {x.device}: must be {sum_dtype(q.dtype)} "
                f"{shape} on {q.device}"
            )
    return state["kv"], state.get("z")
