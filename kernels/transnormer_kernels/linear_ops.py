"""Linear attention as two PyTorch operators, forward and backward, that launch the kernels.

``torch.ops.transnormer.linear_attention`` takes q, k, v [B, N, H, D] and returns o, the row scale and the final state;
with ``save`` also the state every ``SAVED_SEGMENT`` rows, for the backward operator. The public function, which checks
its arguments, is ``norm_attention``.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from transnormer_kernels import linear_backward, linear_forward, rows
from transnormer_kernels.configurations import (
    ROOM,
    WITH_DENOMINATOR,
    WITH_ROTATION,
    WITH_SAVED_STATES,
    Configuration,
    configuration,
    precision,
    sum_dtype,
    tile_width,
)
from transnormer_kernels.rotation import tables
from transnormer_kernels.tiles import DENOMINATOR, EMBEDDING_NORM, HEAD_NORM, NO_NORM, PHI

NORMS = {
    "none": NO_NORM.value,
    "head": HEAD_NORM.value,
    "embedding": EMBEDDING_NORM.value,
    "denominator": DENOMINATOR.value,
}

# The shape of the row scale beyond [B, N].
_SCALES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "none": lambda heads: (0,), "embedding": lambda heads: (),
    "head": lambda heads: (heads,), "denominator": lambda heads: (heads,),
}  # fmt: skip

# Rows between two saved states. A state is D² float32 numbers: with 256 rows, D/64 bytes per row and feature. In the
# backward pass a program reads 10·D bytes per row twice, little enough for the L2 cache.
SAVED_SEGMENT = 256

# The widest row that one program of the backward kernel computes as a whole, which a reflection needs.
WHOLE_ROW = 64

_SCAN_BLOCK = 1024
_ROWS = 16  # tokens per program of the row kernels


def _strides(x: Tensor) -> tuple[int, int, int]:
    return x.stride(0), x.stride(1), x.stride(2)


def processors(device: torch.device) -> int:
    """Streaming multiprocessors of a GPU; 1 under the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program can have on a GPU; under the interpreter as many as it likes."""
    if triton.knobs.runtime.interpret:
        return 2**62
    index = 0 if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def segments_for(pairs: int, length: int, device: torch.device) -> int:
    """The number of segments of a sequence: enough to occupy every processor, none shorter than ``SAVED_SEGMENT``.

    Several segments read k and v twice, one segment once, so one is used if the pairs alone occupy the GPU.
    """
    if pairs >= processors(device):
        return 1
    return max(1, min(2 * processors(device) // pairs, length // SAVED_SEGMENT))


class _Call:
    """The arguments that both operators pass to every kernel: sizes, strides, constants, the rotation's tables."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, phi: str, norm: str, causal: bool, eps: float, eps_placement: str,
        floor: float, padding: Tensor | None, cu_seqlens: Tensor | None, max_seqlen: int, theta: Tensor | None,
        reflection: Tensor | None, position: int, saves: bool,
    ) -> None:  # fmt: skip
        # Common strides save registers in the kernels; slices of one projection have them already.
        alike = q.stride() == k.stride() == v.stride() and q.stride(-1) == 1
        self.q, self.k, self.v = (q, k, v) if alike else (x.contiguous() for x in (q, k, v))
        self.batch, self.rows, self.heads, self.head_dim = q.shape
        self.sequences = self.batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
        self.pairs, self.length = self.sequences * self.heads, max_seqlen or self.rows
        self.dtype, self.device, self.acc = q.dtype, q.device, sum_dtype(q.dtype)
        self.causal, self.norm, self.theta, self.norm_name, self.saves = causal, NORMS[norm], theta, norm, saves
        nothing = q.new_empty(0, dtype=self.acc)
        cos, sin = (nothing, nothing) if theta is None else tables(theta, self.length, position, self.acc)
        self.cu_seqlens = nothing if cu_seqlens is None else cu_seqlens
        self.real = nothing if padding is None else padding.logical_not().view(torch.uint8)
        self.rotation = (nothing if reflection is None else reflection.contiguous(), cos, sin)
        self.eps = {"EPS": eps, "EPS_OUTSIDE": eps_placement == "outside"}
        self.floor = floor
        self.masked = {"MASKED": padding is not None}
        self.real_b = 0 if padding is None else self.rows
        acc = {torch.float32: linear_forward.tl.float32, torch.float64: linear_forward.tl.float64}[self.acc]
        operand = {
            torch.bfloat16: linear_forward.tl.bfloat16,
            torch.float16: linear_forward.tl.float16,
            torch.float32: linear_forward.tl.float32,
            torch.float64: linear_forward.tl.float64,
        }[self.dtype]
        self.constants = {
            "D_TRUE": self.head_dim, "D": tile_width(self.head_dim), "MAP": PHI[phi], "PACKED": cu_seqlens is not None,
            "TURNED": theta is not None, "REFLECTED": reflection is not None,
            "OPERAND": operand, "ACC": acc, "PRECISION": precision(self.dtype),
        }  # fmt: skip

    def entry(self, kernel: str) -> Configuration:
        """The kernel's entry in the configuration table."""
        extras = WITH_ROTATION * (self.theta is not None) + WITH_DENOMINATOR * (self.norm_name == "denominator")
        extras += WITH_SAVED_STATES * self.saves
        return configuration(kernel, self.head_dim, self.dtype, extras)

    def launch(self, kernel: str) -> dict[str, Any]:
        """Rows of a tile and launch options of ``kernel``."""
        entry = self.entry(kernel)
        parts = {} if kernel.startswith("segment") else {"PART": self.part(kernel)}
        stages = entry.stages if shared_memory(self.device) >= ROOM else 1
        options = {"num_warps": entry.warps, "num_stages": stages, "enable_fp_fusion": True}
        return parts | {"C": entry.rows} | options

    def part(self, kernel: str) -> int:
        """Columns that one program of ``kernel`` computes."""
        if kernel == "gradients" and self.constants["REFLECTED"]:
            return tile_width(self.head_dim)
        return min(self.entry(kernel).part, tile_width(self.head_dim))

    def states(self, segments: int) -> tuple[Tensor, Tensor]:
        """Empty tensors for the state of every segment and, if δ is needed, for its Σψ."""
        kv = self.q.new_empty(self.pairs, segments, self.head_dim, self.head_dim, dtype=self.acc)
        width = self.head_dim if self.norm == DENOMINATOR.value else 0
        return kv, self.q.new_empty(self.pairs, segments, width, dtype=self.acc)

    def scan(self, states: Tensor, initial: Tensor | None, from_end: bool) -> Tensor:
        """Run ``linear_forward.scan`` in place, and return the total [pairs, …]."""
        pairs, segments = states.shape[:2]
        width = states[0, 0].numel()
        total = states.new_empty(pairs, *states.shape[2:])
        if width:
            grid = (pairs, triton.cdiv(width, _SCAN_BLOCK))
            linear_forward.scan[grid](
                states, total if initial is None else initial.contiguous(), total, segments, width, FROM_END=from_end,
                HAS_INITIAL=initial is not None, BLOCK=_SCAN_BLOCK, ACC=self.constants["ACC"],
            )  # fmt: skip
        return total

    def row_gradients(self, g: Tensor, o: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """α and β of ``linear_backward`` per token, or per token and head; empty if dt = g."""
        alpha, beta = torch.empty_like(scale), torch.empty_like(scale)
        grid = (triton.cdiv(scale.numel(), _ROWS),)
        tile = {"D_TRUE": self.head_dim, "D": tile_width(self.head_dim), "R": _ROWS, "ACC": self.constants["ACC"]}
        if self.norm_name == "denominator":
            rows.denominator_gradients[grid](g, o, scale, alpha, beta, scale.numel(), FLOOR=self.floor, **tile)
        elif self.norm_name != "none":
            heads = self.heads if self.norm_name == "embedding" else 1  # a head is a row of its own
            row = heads * self.head_dim
            rows.row_gradients[grid](
                g, o, scale, alpha, beta, 0, row, self.head_dim, scale.numel(), scale.numel(), H=heads, **self.eps,
                **tile,
            )  # fmt: skip
        return alpha, beta

    def segment_states(self, segments: int, segment: int) -> tuple[Tensor, Tensor]:
        """Ψ^T V and Σψ of every segment."""
        kv, z = self.states(segments)
        linear_forward.segment_states[(self.pairs * segments,)](
            self.k, self.v, self.real, *self.rotation, self.cu_seqlens, kv, z, *_strides(self.k),
            self.real_b, self.rows, self.heads, segment, segments, SUMS=self.norm == DENOMINATOR.value,
            **self.masked, **self.constants, **self.launch("segment_states"),
        )  # fmt: skip
        return kv, z


@torch.library.custom_op("transnormer::linear_attention", mutates_args=())
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: str, norm: str, causal: bool, eps: float, eps_placement: str, floor: float,
    padding: Tensor | None, cu_seqlens: Tensor | None, max_seqlen: int, initial_kv: Tensor | None,
    initial_z: Tensor | None, theta: Tensor | None, reflection: Tensor | None, position: int, segments: int,
    save: bool, final: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(o, scale, final Ψ^T V, final Σψ, saved states, saved sums); empty where not requested."""
    call = _Call(
        q, k, v, phi, norm, causal, eps, eps_placement, floor, padding, cu_seqlens, max_seqlen, theta, reflection,
        position, save and causal,
    )  # fmt: skip
    o = q.new_empty(q.shape)
    parts = triton.cdiv(call.head_dim, call.part("outputs"))
    per_row = {"none": 0, "denominator": call.heads}.get(norm, call.heads * parts)
    scale = q.new_empty(call.batch, call.rows, per_row, dtype=call.acc)
    count = segments or segments_for(call.pairs, call.length, call.device)
    segment = SAVED_SEGMENT * triton.cdiv(triton.cdiv(call.length, count), SAVED_SEGMENT)
    count = triton.cdiv(call.length, segment)
    has_state = count > 1 or not causal or initial_kv is not None
    if count > 1 or not causal:
        kv, z = call.segment_states(count, segment)
        total_kv, total_z = call.scan(kv, initial_kv, False), call.scan(z, initial_z, False)
        if not causal:
            kv, z = total_kv, total_z
    elif initial_kv is not None:
        kv, z = initial_kv.contiguous(), call.states(0)[1] if initial_z is None else initial_z.contiguous()
    else:
        kv, z = call.states(0)
    saved_count = (triton.cdiv(call.length, SAVED_SEGMENT) if causal else 1) if save else 0
    saved_kv, saved_z = call.states(saved_count)
    final_kv, final_z = (x[:, 0] for x in call.states(1)) if final else call.states(0)
    if not causal:
        if save:
            saved_kv, saved_z = kv[:, None].clone(), z[:, None].clone()
        if final:
            final_kv, final_z = kv, z
    linear_forward.outputs[(call.pairs * count * parts,)](
        call.q, call.k, call.v, call.real, *call.rotation, call.cu_seqlens, kv, z, o, scale, saved_kv, saved_z,
        final_kv, final_z, *_strides(call.q), call.real_b,
        call.rows, call.heads, segment, count, max(saved_count, 1), PRESCALE=q.dtype == torch.float16, CAUSAL=causal,
        HAS_STATE=has_state, SAVE_EVERY=SAVED_SEGMENT if save and causal else 0, FINAL=final and causal,
        FLOOR=floor, NORM=call.norm, **call.masked, **call.constants, **call.launch("outputs"),
    )  # fmt: skip
    if norm in ("embedding", "head"):
        heads = call.heads if norm == "embedding" else 1  # a head is a row of its own
        squares, scale = scale, scale.new_empty(call.batch, call.rows, *_SCALES[norm](call.heads))
        length = call.rows * call.heads // heads
        rows.normalise_rows[(call.batch * triton.cdiv(length, _ROWS),)](
            o, squares, scale, length, call.batch, **call.eps, PRESCALE=q.dtype == torch.float16, H=heads,
            D_TRUE=call.head_dim, PART=call.part("outputs"), R=_ROWS,
        )  # fmt: skip
    shape = (call.sequences, call.heads, call.head_dim, call.head_dim)
    if final:
        final_kv = final_kv.reshape(shape)
        final_z = final_z.reshape(*shape[:2], -1) if norm == "denominator" else final_z
    return o, scale, final_kv, final_z, saved_kv, saved_z


@linear_attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, phi: str, norm: str, causal: bool, eps: float, eps_placement: str, floor: float,
    padding: Tensor | None, cu_seqlens: Tensor | None, max_seqlen: int, initial_kv: Tensor | None,
    initial_z: Tensor | None, theta: Tensor | None, reflection: Tensor | None, position: int, segments: int,
    save: bool, final: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    batch, length, heads, d = q.shape
    acc = sum_dtype(q.dtype)
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    saved = (-(-(max_seqlen or length) // SAVED_SEGMENT) if causal else 1) if save else 0
    width = d if norm == "denominator" else 0
    pairs = sequences * heads
    per_row = _SCALES[norm](heads)
    if final:
        kv = q.new_empty(sequences, heads, d, d, dtype=acc)
        z = q.new_empty(sequences, heads, width, dtype=acc) if width else q.new_empty(pairs, 0, dtype=acc)
    else:
        kv, z = q.new_empty(pairs, 0, d, d, dtype=acc), q.new_empty(pairs, 0, width, dtype=acc)
    return (
        q.new_empty(q.shape), q.new_empty(batch, length, *per_row, dtype=acc), kv, z,
        q.new_empty(pairs, saved, d, d, dtype=acc), q.new_empty(pairs, saved, width, dtype=acc),
    )  # fmt: skip


@torch.library.custom_op("transnormer::linear_attention_backward", mutates_args=())
def linear_attention_backward(
    g: Tensor, final_kv_gradient: Tensor | None, final_z_gradient: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    o: Tensor, scale: Tensor, saved_kv: Tensor, saved_z: Tensor, phi: str, norm: str, causal: bool, eps: float,
    eps_placement: str, floor: float, padding: Tensor | None, cu_seqlens: Tensor | None, max_seqlen: int,
    theta: Tensor | None, reflection: Tensor | None, position: int, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(dq, dk, dv, dθ, gradients of the initial Ψ^T V and Σψ)."""
    call = _Call(
        q, k, v, phi, norm, causal, eps, eps_placement, floor, padding, cu_seqlens, max_seqlen, theta, reflection,
        position, False,
    )  # fmt: skip
    g = g.contiguous()
    alpha, beta = call.row_gradients(g, o, scale)
    segment, count = SAVED_SEGMENT, triton.cdiv(call.length, SAVED_SEGMENT)
    reverse_kv, reverse_z = call.states(count)
    inputs = (g, o, alpha, beta, *call.rotation, call.cu_seqlens)
    linear_backward.segment_gradients[(call.pairs * count,)](
        call.q, *inputs, reverse_kv, reverse_z, *_strides(call.q), call.rows, call.heads, segment, count,
        NORM=call.norm, **call.constants, **call.launch("segment_gradients"),
    )  # fmt: skip
    initial_kv_gradient = call.scan(reverse_kv, final_kv_gradient, True)
    initial_z_gradient = call.scan(reverse_z, final_z_gradient, True)
    if not causal:
        reverse_kv, reverse_z = initial_kv_gradient, initial_z_gradient
    dq, dk, dv = (q.new_empty(q.shape) for _ in range(3))
    turns = q.new_empty(call.pairs * count if learned else 0, 2, call.head_dim // 2, dtype=call.acc)
    parts = tile_width(call.head_dim) // call.part("gradients")
    linear_backward.gradients[(call.pairs * count * 3 * parts,)](
        call.q, call.k, call.v, call.real, *inputs, saved_kv, saved_z, reverse_kv, reverse_z, dq, dk, dv, turns,
        *_strides(call.q), call.real_b, call.rows, call.heads, segment, count, position, NORM=call.norm,
        CAUSAL=causal, LEARNED=learned, **call.masked, **call.constants, **call.launch("gradients"),
    )  # fmt: skip
    shape = (call.sequences, call.heads, call.head_dim, call.head_dim)
    dtheta = turns.sum((0, 1)).to(theta.dtype) if learned and theta is not None else q.new_empty(0)
    return dq, dk, dv, dtheta, initial_kv_gradient.view(shape), initial_z_gradient.view(*shape[:2], -1)


@linear_attention_backward.register_fake
def _(
    g: Tensor, final_kv_gradient: Tensor | None, final_z_gradient: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    o: Tensor, scale: Tensor, saved_kv: Tensor, saved_z: Tensor, phi: str, norm: str, causal: bool, eps: float,
    eps_placement: str, floor: float, padding: Tensor | None, cu_seqlens: Tensor | None, max_seqlen: int,
    theta: Tensor | None, reflection: Tensor | None, position: int, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    batch, _, heads, d = q.shape
    acc = sum_dtype(q.dtype)
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    dtheta = torch.empty_like(theta) if learned and theta is not None else q.new_empty(0)
    kv = q.new_empty(sequences, heads, d, d, dtype=acc)
    z = q.new_empty(sequences, heads, d if norm == "denominator" else 0, dtype=acc)
    return q.new_empty(q.shape), q.new_empty(q.shape), q.new_empty(q.shape), dtheta, kv, z


_SAVED = ("q", "k", "v", "padding", "cu_seqlens", "theta", "reflection")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    (
        q, k, v, ctx.phi, ctx.norm, ctx.causal, ctx.eps, ctx.eps_placement, ctx.floor, padding, cu_seqlens,
        ctx.max_seqlen, _, _, theta, reflection, ctx.position, _, ctx.save, ctx.final,
    ) = inputs  # fmt: skip
    o, scale, _, _, saved_kv, saved_z = output
    ctx.save_for_backward(q, k, v, padding, cu_seqlens, theta, reflection, o, scale, saved_kv, saved_z)


def _backward(ctx: Any, g: Tensor, _: Tensor, final_kv: Tensor, final_z: Tensor, *__: Tensor) -> tuple[Any, ...]:
    if not ctx.save:
        raise RuntimeError("save=False: linear_attention was called without what its gradient needs")
    q, k, v, padding, cu_seqlens, theta, reflection, o, scale, saved_kv, saved_z = ctx.saved_tensors
    denominator = ctx.norm == "denominator"
    dq, dk, dv, dtheta, d_kv, d_z = linear_attention_backward(
        g, final_kv if ctx.final else None, final_z if ctx.final and denominator else None, q, k, v, o, scale,
        saved_kv, saved_z, ctx.phi, ctx.norm, ctx.causal, ctx.eps, ctx.eps_placement, ctx.floor, padding, cu_seqlens,
        ctx.max_seqlen, theta, reflection, ctx.position, ctx.needs_input_grad[14],
    )  # fmt: skip
    gradients: list[Any] = [None] * 20
    gradients[:3] = dq, dk, dv
    if ctx.needs_input_grad[12]:
        gradients[12] = d_kv
    if ctx.needs_input_grad[13]:
        gradients[13] = d_z
    if ctx.needs_input_grad[14]:
        gradients[14] = dtheta
    return tuple(gradients)


linear_attention.register_autograd(_backward, setup_context=_setup_context)
