"""What every attention mechanism is: a config, a module on q, k, v, and up to three implementations.

Shapes: B batch, H heads, N length, D head_dim.

A mechanism subclasses ``Attention`` and writes ``attention_matrix`` (the [N, N] matrix that multiplies the
values, its specification), ``chunked`` (the fast form), ``head_flops`` and ``about``; for decoding
``state_shapes``, ``state_after`` (the state after a prefix) and ``recurrence`` (one token, given a state). Where no
causal form is published, its config sets ``causal_refusal``. It may override

- ``finish``   what happens to the product of matrix and values, such as NormAttention's norm;
- ``weights``  what ``return_weights`` shows, where the matrix itself is not a set of weights;
- ``allowed``  which keys a query may see, beyond causality and padding;
- ``reset_parameters``  draws what it learns or what is random in it: from the generator given, nothing else;
- ``kernels``  Triton kernels by device type, which ``impl="auto"`` then prefers, and ``kernel_misses``, what of the
  config they cannot do. A kernel gets q, k and v as they came: turning q and k, dropout and whatever stands on padding
  are its own matter.

This file holds no mechanism and no arithmetic but ``matrix @ values``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor, nn

from transnormer_lib.attention import triton_forms
from transnormer_lib.attention.about import About
from transnormer_lib.attention.norms import wide_dtype, widen
from transnormer_lib.attention.recurrent import (
    State,
    StateShapes,
    at_position,
    check_causal,
    check_state,
    check_step,
    empty_state,
)
from transnormer_lib.attention.rotary import RotaryName, build_rotary, check_rotary

Impl = Literal["auto", "reference", "chunked", "triton"]
IMPLS: tuple[str, ...] = ("auto", "reference", "chunked", "triton")

# (the module, q_BHND, k_BHND, v_BHND, key_padding_mask_BN or None) -> o_BHND
Kernel = Callable[["Attention", Tensor, Tensor, Tensor, Tensor | None], Tensor]


def check_count(name: str, value: object) -> None:
    """Refuse anything but a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among ``choices``."""
    if value not in choices:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(choices)}")


def check_dropout(value: object) -> None:
    """Refuse anything but a probability below one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise ValueError(f"dropout={value!r}: must be in [0, 1)")


def check_positive(name: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
        raise ValueError(f"{name}={value!r}: must be a positive finite number")


def check_length(length: int, max_length: int) -> None:
    """Refuse a sequence that is longer than a mechanism was built for."""
    if length > max_length:
        raise ValueError(f"length={length}: exceeds max_length={max_length}")


def check_flag(name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: must be True or False")


@dataclass(frozen=True)
class AttentionConfig:
    """The fields every mechanism has. Raises ``ValueError("field=value: rule")``."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}
    causal_refusal: ClassVar[str] = ""  # why causal=True is refused, in half a sentence; empty where it is not

    heads: int  # H
    head_dim: int  # D
    causal: bool = False  # a query sees itself and what stands before it
    impl: Impl = "auto"  # triton where a kernel for the device exists, else chunked
    chunk_size: int = 64  # tokens per chunk of a causal product, queries per block; not every mechanism has them
    rotary: RotaryName = "none"  # turns queries and keys by their positions; released TransNormer: lrpe

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        check_count("head_dim", self.head_dim)
        check_flag("causal", self.causal)
        if self.causal and self.causal_refusal:
            raise ValueError(f"causal=True: {self.causal_refusal}")
        check_choice("impl", self.impl, IMPLS)
        check_count("chunk_size", self.chunk_size)
        check_rotary(self.rotary, self.head_dim)


class Attention(nn.Module):
    """Base of the mechanisms: validation, masks, choice of the implementation, the eager quadratic form."""

    name: ClassVar[str] = ""  # set by the registry
    about: ClassVar[About]  # cost and source, for the table of mechanisms
    kernels: ClassVar[Mapping[str, Kernel]] = {}  # device type -> Triton kernel
    config: AttentionConfig

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.rotary = build_rotary(config.rotary, config.head_dim)
        # Of the matrix, and in training mode alone; mechanisms without a matrix in their fast form have none.
        self.dropout = nn.Dropout(getattr(config, "dropout", 0.0))
        if config.impl == "triton" and not self.kernels:
            raise ValueError(
                f"impl='triton': transnormer_kernels has no kernel for {self.name or type(self).__name__!r}; "
                "use 'auto' or 'chunked'"
            )

    @classmethod
    def is_recurrent(cls) -> bool:
        """Whether the causal form is a recurrence too, so that ``prefill`` and ``step`` exist."""
        return cls.state_shapes is not Attention.state_shapes

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the mechanism's own weights and random buffers anew; nothing where it has none."""

    # --- what a mechanism writes --------------------------------------------------------------------------

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """The matrix that multiplies the values, [B, H, N, N], zero where ``allowed`` is False."""
        raise NotImplementedError

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """The fast PyTorch form: the same numbers as ``reference``, o_BHND."""
        raise NotImplementedError

    def state_shapes(self) -> StateShapes:
        """The names of the state's tensors and their shapes beyond [B, H]."""
        raise NotImplementedError

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the state's tensors where q, k and v have ``dtype``: float32 for the half dtypes."""
        return wide_dtype(dtype)

    def state_after(self, k: Tensor, v: Tensor) -> State:
        """The state after the tokens with keys and values k, v [B, H, N, D], "position" left out."""
        raise NotImplementedError

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """The output [B, H, 1, D] of the next token, whose q, k, v are [B, H, 1, D], and the state after it."""
        raise NotImplementedError

    def head_flops(self, length: int) -> int:
        """``flops`` of one head."""
        raise NotImplementedError

    def finish(self, t: Tensor) -> Tensor:
        """From matrix @ values to the output, both [B, H, N, D]. The identity unless overridden."""
        return t

    def weights(self, matrix: Tensor) -> Tensor:
        """From the attention matrix to what ``return_weights`` returns. The identity unless overridden."""
        return matrix

    def kernel_misses(self, dtype: torch.dtype, device: torch.device) -> str:
        """Why its kernel cannot serve q, k, v of ``dtype`` on ``device``, in half a sentence; empty where it can."""
        return ""

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor | None:
        """Which key each query may see: bool, broadcastable to [B, 1, N, N]; None where it may see all."""
        allowed = None
        if self.config.causal:
            allowed = torch.ones(n, n, dtype=torch.bool, device=device).tril()
        if key_padding_mask is not None:
            real_B11N = ~key_padding_mask[:, None, None, :]
            allowed = real_B11N if allowed is None else allowed & real_B11N
        return allowed

    # --- what all mechanisms share ------------------------------------------------------------------------

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token of ``batch`` sequences, for q, k, v of ``dtype`` on ``device``.

        Raises ValueError where the config is not causal, there is no recurrent form, or ``batch`` is below 1.
        """
        self._check_recurrent()
        check_count("batch", batch)
        return empty_state(self.state_shapes(), (batch, self.config.heads), self.state_dtype(dtype), device)

    @torch.no_grad()
    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, State]:
        """(o_BHND, the state after the last token) for q, k, v [B, H, N, D]: N steps in the parallel form.

        For decoding: no gradient is recorded. Raises ValueError where the config is not causal, and as ``forward``.
        """
        self._check_recurrent()
        o = self(q, k, v)
        with without_autocast(q.device.type):
            return o, at_position(self.state_after(k, v), q.shape[2])

    @torch.no_grad()
    def step(self, q_BHD: Tensor, k_BHD: Tensor, v_BHD: Tensor, state: State) -> tuple[Tensor, State]:
        """(o [B, H, D] of the next token, equal to the parallel form's, the state after it).

        ``state`` is used up: its memory may be written to. For decoding: no gradient is recorded. Raises ValueError
        where the config is not causal, and for shapes, dtypes or a state that do not fit.
        """
        self._check_recurrent()
        check_step(self.config.heads, self.config.head_dim, q_BHD, k_BHD, v_BHD)
        check_state(state, self.state_shapes(), self.state_dtype(q_BHD.dtype), "q", q_BHD)
        position = int(state["position"])
        with without_autocast(q_BHD.device.type):
            o_BH1D, after = self.recurrence(q_BHD[:, :, None], k_BHD[:, :, None], v_BHD[:, :, None], state, position)
        return o_BH1D[:, :, 0].to(q_BHD.dtype), at_position(after, position + 1)

    def _check_recurrent(self) -> None:
        if not self.is_recurrent():
            raise ValueError(f"name={self.name!r}: has no recurrent form")
        check_causal(self.config.causal)

    def flops(self, length: int) -> int:
        """Floating-point operations of a forward pass of the chunked form over one sequence, all heads.

        Matrix products alone, a multiply-add as two: what is elementwise, such as rotations and norms, is left out.
        Raises ValueError for a length below 1.
        """
        check_count("length", length)
        return self.config.heads * self.head_flops(length)

    def turned(self, *tensors: Tensor, start: int = 0, period: int = 0) -> tuple[Tensor, ...]:
        """Tensors [..., N, D] turned to their positions, where the config asks for it; see ``rotary.Rotary``."""
        return tensors if self.rotary is None else self.rotary(*tensors, start=start, period=period)

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The specification: the output and the attention matrix it was made with, quadratic in N."""
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        matrix = self.attention_matrix(widen(q), widen(k), allowed)
        return self.finish(self.dropout(matrix) @ widen(v)), matrix

    def resolve_impl(self, device: torch.device, dtype: torch.dtype = torch.float32) -> str:
        """The implementation that runs on ``device`` for q, k, v of ``dtype``: what the config asks for, or the best.

        Says once, by logging, what ``auto`` takes where there is a kernel. Raises ValueError where ``triton`` cannot.
        """
        impl = self.config.impl
        if impl not in ("auto", "triton"):
            return impl
        if device.type not in self.kernels:
            if impl == "triton":
                raise ValueError(
                    f"impl='triton': the kernel for {self.name!r} runs on {', '.join(self.kernels)}, "
                    f"the tensors are on {device.type}; use 'auto' or 'chunked'"
                )
            return "chunked"
        reason = self.kernel_misses(dtype, device)
        if reason and impl == "triton":
            raise ValueError(f"impl='triton': {reason}; use 'auto' or 'chunked' for {self.name!r}")
        form = "chunked" if reason else "triton"
        triton_forms.say_once(self.name, str(device), form, reason)
        return form

    @overload
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding_mask: Tensor | None = ...,
        return_weights: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding_mask: Tensor | None = ...,
        *,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, return_weights: bool
    ) -> Tensor | tuple[Tensor, Tensor]: ...

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """o_BHND for q, k, v of shape [B, H, N, D]; with ``return_weights`` (o_BHND, w_BHNN).

        ``key_padding_mask`` [B, N] is True on padding: such a key contributes nothing to any output,
        whatever its content. A query that may see no key gets zeros. Padded queries get an output too, made
        of zeros, which means nothing. Half-precision inputs are summed in float32 and returned in their own dtype.
        ``return_weights`` is for analysis: it takes the reference form and memory quadratic in N, and shows the
        weights before dropout.
        Raises ValueError or TypeError where shapes, dtypes, devices or the mask do not fit.
        """
        check_inputs(self.config, q, k, v, key_padding_mask)
        impl = "reference" if return_weights else self.resolve_impl(q.device, q.dtype)
        if impl == "triton":
            with without_autocast(q.device.type):
                return self.kernels[q.device.type](self, q, k, v, key_padding_mask)
        if key_padding_mask is not None:
            # A weight of zero does not silence a NaN: padding is emptied before anything reads it.
            padding_B1N1 = key_padding_mask[:, None, :, None]
            q, k, v = (x.masked_fill(padding_B1N1, 0.0) for x in (q, k, v))
        with without_autocast(q.device.type):
            if impl == "chunked":
                return self.chunked(q, k, v, key_padding_mask).to(q.dtype)
            o, matrix = self.reference(q, k, v, key_padding_mask)
            if return_weights:
                return o.to(q.dtype), self.weights(matrix).to(q.dtype)
            return o.to(q.dtype)

    def extra_repr(self) -> str:
        return str(self.config)


def without_autocast(device_type: str) -> contextlib.AbstractContextManager[Any]:
    """Keep autocast from undoing the float32 sums; nothing where it is off, since entering it costs time."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


def check_inputs(config: AttentionConfig, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> None:
    """Refuse inputs that do not fit together or do not fit the config, in one line that says why."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        shape = tuple(x.shape)
        if len(shape) != 4:
            raise ValueError(f"{name}.shape={shape}: must have the four dimensions [B, H, N, D]")
        if shape[1] != config.heads or shape[3] != config.head_dim:
            raise ValueError(
                f"{name}.shape={shape}: must be [B, {config.heads}, N, {config.head_dim}], "
                f"as heads={config.heads} and head_dim={config.head_dim} say"
            )
        if shape[2] < 1:
            raise ValueError(f"{name}.shape={shape}: must hold at least one token")
        if x.shape != q.shape:
            raise ValueError(f"{name}.shape={shape}: must equal q.shape={tuple(q.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"{name}.dtype={x.dtype}: must be a floating-point dtype")
        if x.dtype != q.dtype:
            raise TypeError(f"{name}.dtype={x.dtype}: must equal q.dtype={q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name}.device={x.device}: must equal q.device={q.device}")
    if key_padding_mask is not None:
        check_padding_mask(key_padding_mask, q.shape[0], q.shape[2], q.device)


def check_padding_mask(key_padding_mask: Tensor, batch: int, length: int, device: torch.device) -> None:
    """Refuse anything but a bool mask [B, N] on ``device``."""
    if key_padding_mask.dtype != torch.bool:
        raise TypeError(f"key_padding_mask.dtype={key_padding_mask.dtype}: must be torch.bool, True on padding")
    if tuple(key_padding_mask.shape) != (batch, length):
        raise ValueError(f"key_padding_mask.shape={tuple(key_padding_mask.shape)}: must be [B, N] = {(batch, length)}")
    if key_padding_mask.device != device:
        raise ValueError(f"key_padding_mask.device={key_padding_mask.device}: must equal the inputs' device={device}")
