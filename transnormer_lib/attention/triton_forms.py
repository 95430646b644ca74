"""Calls of ``transnormer_kernels`` for tensors laid out [B, H, N, D], and what the kernels cannot do.

The kernels take [B, N, H, D], the layout a projection leaves: the transposes here copy nothing. Triton is imported when
the first kernel runs, so that the package imports with torch alone.

Shapes: B batch, H heads, N length, D head_dim.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.attention.recurrent import State
from transnormer_lib.attention.rotary import Rotary

_HEAD_DIMS = (16, 32, 64, 80, 96, 128)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_HAS_TRITON = find_spec("triton") is not None and find_spec("transnormer_kernels") is not None


def refusal(head_dim: int, dtype: torch.dtype, device: torch.device) -> str:
    """Why no kernel can serve q, k and v of ``dtype``, in half a sentence; empty if one can."""
    if not _HAS_TRITON:
        return "triton is not installed"
    if head_dim not in _HEAD_DIMS:
        return f"head_dim={head_dim} is none of {', '.join(map(str, _HEAD_DIMS))}"
    if dtype not in _DTYPES:
        return f"{dtype} is not a dtype of the kernels"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "the kernels need compute capability 8.0"
    return ""


def rotation(rotary: Rotary | None, device: torch.device) -> dict[str, Tensor]:
    """The kernels' arguments for ``rotary``."""
    if rotary is None:
        return {}
    theta = {"theta": rotary.angles(device)}
    return theta | {"reflection": rotary.reflection_D} if rotary.learned else theta


def linear(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, **options: Any) -> Tensor:
    """o [B, H, N, D] of linear attention, with ``options`` as ``norm_attention`` takes them."""
    from transnormer_kernels import norm_attention

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = norm_attention(q, k, v, key_padding_mask=key_padding_mask, **options)
    assert isinstance(o, Tensor)
    return o.transpose(1, 2)


def diag(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, **options: Any) -> Tensor:
    """o [B, H, N, D] of DiagAttention, with ``options`` as ``diag_attention`` takes them."""
    from transnormer_kernels import diag_attention

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return diag_attention(q, k, v, key_padding_mask=key_padding_mask, **options).transpose(1, 2)


def linear_step(q: Tensor, k: Tensor, v: Tensor, state: State, position: int, **options: Any) -> Tensor:
    """o [B, H, 1, D] of one more token of linear attention; q, k, v are [B, H, 1, D], ``state`` is updated."""
    from transnormer_kernels import norm_attention_step

    tensors = {name: x for name, x in state.items() if name != "position"}
    q, k, v = (x[:, :, 0] for x in (q, k, v))
    return norm_attention_step(q, k, v, tensors, position=position, **options)[:, :, None]
