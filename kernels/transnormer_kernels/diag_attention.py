"""DiagAttention on [B, N, H, D] as a PyTorch operator; ``diag_kernels`` derives and computes it."""

from typing import Any, Literal

import torch
import triton
from torch import Tensor
from triton import language as tl

from transnormer_kernels import rows
from transnormer_kernels.checks import (
    check_choice,
    check_device,
    check_padding,
    check_positive,
    check_qkv,
    check_rotation,
)
from transnormer_kernels.configurations import configuration, precision, sum_dtype, tile_width
from transnormer_kernels.diag_kernels import LARGEST_BLOCK, diag_gradients, diag_outputs
from transnormer_kernels.rotation import tables

_TRITON_DTYPES = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}
_ROWS = 16  # tokens per program of the row kernels


def diag_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    block_size: int = 64,
    scores: Literal["softmax", "rela"] = "softmax",
    causal: bool = False,
    norm: Literal["none", "embedding"] = "none",
    eps: float = 1e-8,
    eps_placement: Literal["inside", "outside"] = "inside",
    key_padding_mask: Tensor | None = None,
    theta: Tensor | None = None,
    reflection: Tensor | None = None,
) -> Tensor:
    """o [B, N, H, D] of q, k, v [B, N, H, D]: attention inside blocks of ``block_size`` tokens, from 1 to 128.

    Section 4.3 of "The Devil in Linear Transformer". T2: ``softmax`` without a norm. T1: ``rela``, the ReLU of the
    scores, and RMSNorm without gain over the H·D numbers of a token (``norm="embedding"``), with ε ``inside`` the root
    (Definition D.1) or ``outside`` (as released). Scores are scaled by D^{-1/2}. The last block may be shorter; it is
    not padded with keys.

    ``key_padding_mask`` [B, N] is True on padding: such a key contributes nothing, whatever its content. A query
    without a visible key gets zeros. ``theta`` [D/2] (radians per token, learnable) rotates neighbouring pairs of q and
    k by their position in the block; ``reflection`` [D] reflects q and k first (LRPE).

    Head dimensions 16, 32, 64, 80, 96 and 128, any length; bfloat16, float16 and float32, summed in float32, on a
    CUDA device; in float32 a block of more than 64 tokens takes a head dimension of at most 64. Differentiable once in
    q, k, v and θ. Under autocast q, k, v take its dtype.
    Raises ValueError or TypeError in one line for anything else.
    """
    if torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64:
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    check_qkv(q, k, v)
    check_device(q, diag_outputs)
    if isinstance(block_size, bool) or not isinstance(block_size, int) or not 1 <= block_size <= LARGEST_BLOCK:
        raise ValueError(f"block_size={block_size!r}: must be a whole number from 1 to {LARGEST_BLOCK}")
    if q.dtype == torch.float32 and q.is_cuda and q.shape[-1] > 64 and block_size > 64:
        raise ValueError(
            f"block_size={block_size}: at most 64 in float32 with head_dim={q.shape[-1]}, whose tiles of 128 "
            "tokens exceed a processor's shared memory; bfloat16 and float16 go up to 128"
        )
    check_choice("scores", scores, ("softmax", "rela"))
    check_choice("norm", norm, ("none", "embedding"))
    check_choice("eps_placement", eps_placement, ("inside", "outside"))
    check_positive("eps", eps)
    check_padding(key_padding_mask, q)
    check_rotation(theta, reflection, q)
    return _diag_attention(
        q, k, v, block_size, scores, causal, norm, eps, eps_placement, key_padding_mask, theta, reflection
    )[0]


def _aligned(x: Tensor) -> Tensor:
    """x with a last stride of 1 and other strides that allow 16-byte loads."""
    fits = x.stride(-1) == 1 and all(step % 16 == 0 for step in x.stride()[:-1])
    return x if fits else x.contiguous()


class _Call:
    """The arguments that both operators pass to their kernel."""

    def __init__(
        self, kernel: str, q: Tensor, k: Tensor, v: Tensor, block_size: int, scores: str, causal: bool, norm: str,
        padding: Tensor | None, theta: Tensor | None, reflection: Tensor | None,
    ) -> None:  # fmt: skip
        self.q, self.k, self.v = (_aligned(x) for x in (q, k, v))
        batch, length, heads, head_dim = q.shape
        acc = sum_dtype(q.dtype)
        entry = configuration(kernel if block_size <= 64 else f"{kernel}_wide", head_dim, q.dtype)
        held = entry.rows // block_size * block_size
        tiles = triton.cdiv(length, held)
        self.programs = batch * tiles * heads
        self.grid = (self.programs,)
        self.sizes = (length, heads, tiles)
        self.nothing = q.new_empty(0, dtype=acc)
        cos = sin = self.nothing
        if theta is not None:
            cos, sin = tables(theta, held, 0, acc, period=block_size)
        self.tokens = (
            self.q, self.k, self.v, self.nothing if padding is None else padding.logical_not().view(torch.uint8),
            self.nothing if reflection is None else reflection.contiguous(), cos, sin,
        )  # fmt: skip
        self.constants: dict[str, Any] = {
            "SCALE": head_dim**-0.5, "SOFTMAX": scores == "softmax", "CAUSAL": causal, "NORMED": norm == "embedding",
            "W": block_size, "R": held, "T": entry.rows, "D_TRUE": head_dim, "D": tile_width(head_dim),
            "MASKED": padding is not None, "TURNED": theta is not None, "REFLECTED": reflection is not None,
            "OPERAND": _TRITON_DTYPES[q.dtype], "ACC": _TRITON_DTYPES[acc], "PRECISION": precision(q.dtype),
            "num_warps": entry.warps, "num_stages": entry.stages,
            "enable_fp_fusion": True,
        }  # fmt: skip

    def strides(self, *others: Tensor) -> tuple[int, ...]:
        """The strides of batch, token and head, for q, k, v and ``others``."""
        return tuple(step for x in (self.q, self.k, self.v, *others) for step in x.stride()[:3])


@torch.library.custom_op("transnormer::diag_attention", mutates_args=())
def _diag_attention(
    q: Tensor, k: Tensor, v: Tensor, block_size: int, scores: str, causal: bool, norm: str, eps: float,
    eps_placement: str, padding: Tensor | None, theta: Tensor | None, reflection: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(o, r of each token); without a norm r is empty."""
    call = _Call("diag_outputs", q, k, v, block_size, scores, causal, norm, padding, theta, reflection)
    batch, length, heads, head_dim = q.shape
    normed, half = norm == "embedding", q.dtype == torch.float16
    o = q.new_empty(q.shape)
    squares = call.nothing.new_empty((batch, length, heads) if normed else (0,))
    scale = call.nothing.new_empty((batch, length) if normed else (0,))
    diag_outputs[call.grid](*call.tokens, o, squares, *call.strides(o), *call.sizes, PRESCALE=half, **call.constants)
    if normed:
        rows.normalise_rows[(batch * triton.cdiv(length, _ROWS),)](
            o, squares, scale, length, batch, EPS=eps, EPS_OUTSIDE=eps_placement == "outside", PRESCALE=half, H=heads,
            D_TRUE=head_dim, PART=tile_width(head_dim), R=_ROWS,
        )  # fmt: skip
    return o, scale


@_diag_attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, block_size: int, scores: str, causal: bool, norm: str, eps: float,
    eps_placement: str, padding: Tensor | None, theta: Tensor | None, reflection: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    shape = q.shape[:2] if norm == "embedding" else (0,)
    return q.new_empty(q.shape), q.new_empty(shape, dtype=sum_dtype(q.dtype))


@torch.library.custom_op("transnormer::diag_attention_backward", mutates_args=())
def _diag_attention_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor | None, scale: Tensor, block_size: int, scores: str,
    causal: bool, norm: str, eps: float, eps_placement: str, padding: Tensor | None, theta: Tensor | None,
    reflection: Tensor | None, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(dq, dk, dv, dθ)."""
    call = _Call("diag_gradients", q, k, v, block_size, scores, causal, norm, padding, theta, reflection)
    _, length, heads, head_dim = q.shape
    g = _aligned(g)
    alpha, beta = torch.empty_like(scale), torch.empty_like(scale)
    if o is not None:
        rows.row_gradients[(triton.cdiv(scale.numel(), _ROWS),)](
            g, o, scale, alpha, beta, *g.stride()[:3], scale.numel(), length, EPS=eps,
            EPS_OUTSIDE=eps_placement == "outside", H=heads, D_TRUE=head_dim, D=tile_width(head_dim), R=_ROWS,
            ACC=call.constants["ACC"],
        )  # fmt: skip
    dq, dk, dv = (q.new_empty(q.shape) for _ in range(3))
    turns = call.nothing.new_empty(call.programs if learned else 0, head_dim // 2)
    diag_gradients[call.grid](
        *call.tokens, g, dq if o is None else o, alpha, beta, dq, dk, dv, turns, *call.strides(g, dq), *call.sizes,
        LEARNED=learned, **call.constants,
    )  # fmt: skip
    return dq, dk, dv, turns.sum(0).to(theta.dtype) if learned and theta is not None else q.new_empty(0)


@_diag_attention_backward.register_fake
def _(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor | None, scale: Tensor, block_size: int, scores: str,
    causal: bool, norm: str, eps: float, eps_placement: str, padding: Tensor | None, theta: Tensor | None,
    reflection: Tensor | None, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv = (q.new_empty(q.shape) for _ in range(3))
    return dq, dk, dv, theta.new_empty(theta.shape) if learned and theta is not None else q.new_empty(0)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *ctx.options, padding, theta, reflection = inputs
    o, scale = output
    normed = ctx.options[3] == "embedding"
    ctx.save_for_backward(q, k, v, o if normed else None, scale, padding, theta, reflection)


def _backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:
    q, k, v, o, scale, padding, theta, reflection = ctx.saved_tensors
    learned = ctx.needs_input_grad[-2]
    dq, dk, dv, dtheta = _diag_attention_backward(
        g, q, k, v, o, scale, *ctx.options, padding, theta, reflection, learned
    )  # fmt: skip
    return dq, dk, dv, *(None for _ in ctx.options), None, dtheta if learned else None, None


_diag_attention.register_autograd(_backward, setup_context=_setup_context)
