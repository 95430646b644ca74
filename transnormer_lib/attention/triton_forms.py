"""The mechanisms' ``impl="triton"``: from their configs to calls of ``transnormer_kernels``, and when that is possible.

The kernels take [B, N, H, D], which is how a projection lays its heads out: the transposes here copy nothing.
Triton is imported when the first kernel runs, so that the package imports with torch alone.

Shapes: B batch, H heads, N length, D head_dim.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from transnormer_lib.attention.recurrent import State
from transnormer_lib.attention.rotary import Rotary

if TYPE_CHECKING:
    from transnormer_lib.attention.interface import Attention
    from transnormer_lib.attention.linear import UnscaledLinearAttention

_HEAD_DIMS = (16, 32, 64, 80, 96, 128)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_HAS_TRITON = find_spec("triton") is not None and find_spec("transnormer_kernels") is not None
_logger = logging.getLogger("transnormer_lib.attention")
_said: set[tuple[str, ...]] = set()


def say_once(mechanism: str, device: str, form: str, reason: str = "") -> None:
    """Log which form a mechanism takes on a device, the first time: a warning where ``reason`` says what is missed."""
    if torch.compiler.is_compiling() or (mechanism, device, form, reason) in _said:
        return
    _said.add((mechanism, device, form, reason))
    because = f": {reason}" if reason else ""
    _logger.log(logging.WARNING if reason else logging.INFO, "%s on %s runs %s%s", mechanism, device, form, because)


def _missing(attention: Attention, dtype: torch.dtype, device: torch.device) -> str:
    """Why no kernel can serve q, k and v of ``dtype``, in half a sentence; empty where one can."""
    config = attention.config
    if not _HAS_TRITON:
        return "triton is not installed"
    if config.head_dim not in _HEAD_DIMS:
        return f"head_dim={config.head_dim} is none of {', '.join(map(str, _HEAD_DIMS))}"
    if dtype not in _DTYPES:
        return f"{dtype} is not a dtype of the kernels"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "the kernels need compute capability 8.0"
    return ""


def misses_diag(attention: Attention, dtype: torch.dtype, device: torch.device) -> str:
    """``Attention.kernel_misses`` of DiagAttention."""
    config: Any = attention.config
    if reason := _missing(attention, dtype, device):
        return reason
    if config.dropout and attention.training:
        return "the kernel has no dropout"
    if config.block_size > 128:
        return f"block_size={config.block_size} is above the kernel's 128"
    if dtype == torch.float32 and config.head_dim > 64 and config.block_size > 64:
        return "float32 blocks above 64 tokens of above 64 numbers exceed a processor's shared memory"
    return ""


def misses_linear(attention: UnscaledLinearAttention, dtype: torch.dtype, device: torch.device) -> str:
    """``Attention.kernel_misses`` of a linear mechanism."""
    norm = attention.kernel_norm()
    if reason := _missing(attention, dtype, device):
        return reason
    if norm == "none" and dtype == torch.float16:
        return "a product that is not normalised may be more than float16 holds"
    if norm == "denominator" and attention.rotary is not None and attention.config.head_dim > 64:
        return "a denominator with a rotation takes head dimensions up to 64"
    return ""


def _rotation(rotary: Rotary | None, device: torch.device) -> dict[str, Tensor]:
    if rotary is None:
        return {}
    theta = {"theta": rotary.angles(device)}
    return theta | {"reflection": rotary.reflection_D} if rotary.learned else theta


def _options(attention: Attention, norm: str, device: torch.device) -> dict[str, Any]:
    config: Any = attention.config
    options = {"phi": config.phi, "norm": norm, **_rotation(attention.rotary, device)}
    if norm == "denominator":
        options["denominator_floor"] = config.denominator_floor
    elif norm != "none":
        options |= {"eps": config.eps, "eps_placement": config.eps_placement}
    return options


def linear_kernel(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """A linear mechanism, with what its ``kernel_norm`` names fused in; the rest is ``after_kernel``'s."""
    from transnormer_kernels import norm_attention

    mechanism: UnscaledLinearAttention = attention  # type: ignore[assignment]
    o = norm_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        causal=attention.config.causal,
        key_padding_mask=mask,
        **_options(attention, mechanism.kernel_norm(), q.device),
    )
    assert isinstance(o, Tensor)
    return mechanism.after_kernel(o.transpose(1, 2)).to(q.dtype)


def diag_kernel(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """DiagAttention, with the norm of its output."""
    from transnormer_kernels import diag_attention

    config: Any = attention.config
    o = diag_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        block_size=config.block_size,
        scores=config.scores,
        causal=config.causal,
        norm="embedding" if config.output_norm == "rms" else "none",
        eps=config.eps,
        eps_placement=config.eps_placement,
        key_padding_mask=mask,
        **_rotation(attention.rotary, q.device),
    )
    return o.transpose(1, 2)


def step_kernel(
    attention: UnscaledLinearAttention, q: Tensor, k: Tensor, v: Tensor, state: State, position: int
) -> Tensor:
    """o [B, H, 1, D] of one more token of a linear mechanism; q, k, v are [B, H, 1, D], ``state`` is updated."""
    from transnormer_kernels import norm_attention_step

    tensors = {name: x for name, x in state.items() if name != "position"}
    q, k, v = (x[:, :, 0] for x in (q, k, v))
    options = _options(attention, attention.kernel_norm(), q.device)
    return attention.after_kernel(norm_attention_step(q, k, v, tensors, position=position, **options)[:, :, None])
