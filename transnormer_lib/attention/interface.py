"""What every attention mechanism is: a config, a module on q, k, v, and up to three implementations.

Shapes: B batch, H heads, N length, D head_dim.

A mechanism subclasses ``Attention`` and writes ``attention_matrix`` (its specification: the [N, N] matrix that
multiplies the values), ``chunked`` (the fast form) and ``head_flops``, and has a row in mechanisms.csv; for decoding
``state_shapes``, ``state_after`` and ``recurrence``. If there is no causal form, its config sets ``causal_refusal``. It
may override

- ``finish``, which maps matrix @ values to the output, as NormAttention's norm does;
- ``shown_weights``, what ``weights`` returns if the matrix itself is not a set of weights;
- ``allowed``, the keys a query may see, beyond causality and padding;
- ``reset_parameters``, which draws its weights and random buffers from the given generator alone;
- ``bound``, the recurrence on fixed memory, and ``fixed_recurrence``, with the position on the device as well;
- ``kernel``, a Triton kernel for ``kernel_devices``, which ``impl="auto"`` prefers, and ``kernel_refusal``, what it
  cannot do. A kernel gets q, k and v as they came, and handles rotation, dropout and padding itself.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from transnormer_lib import checks
from transnormer_lib.attention import recurrent
from transnormer_lib.attention.norms import RMSNorm, over_embedding, wide_dtype, widen
from transnormer_lib.attention.recurrent import State, StateShapes
from transnormer_lib.attention.rotary import Rotary, check_even
from transnormer_lib.choices import Rotary as RotaryName


def check_length(length: int, max_length: int) -> None:
    """Refuse a sequence that is longer than a mechanism was built for."""
    if length > max_length:
        raise ValueError(f"length={length}: exceeds max_length={max_length}")


@dataclass(frozen=True)
class MechanismConfig:
    """Base of the configs of attentions and blocks. Raises ``ValueError("field=value: rule")``."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}
    causal_refusal: ClassVar[str] = ""  # why causal=True is refused, in half a sentence; empty if it is not

    def __post_init__(self) -> None:
        checks.check_fields(self)
        if getattr(self, "causal", False) and self.causal_refusal:
            raise ValueError(f"causal=True: {self.causal_refusal}")


@dataclass(frozen=True)
class AttentionConfig(MechanismConfig):
    heads: int  # H
    head_dim: int  # D
    causal: bool = False  # a query sees itself and earlier tokens only
    impl: Literal["auto", "reference", "chunked", "triton"] = "auto"  # triton if there is a kernel, else chunked
    chunk_size: int = 64  # tokens per chunk of a causal product, or queries per block; some mechanisms ignore it
    rotary: RotaryName = "none"  # rotates queries and keys by their positions; released TransNormer: lrpe
    norm_after: Literal["none", "embedding", "head"] = "none"  # RMSNorm of the output, over H·D numbers or D per head

    def __post_init__(self) -> None:
        super().__post_init__()
        check_even(self.rotary, self.head_dim)


class Mechanism(nn.Module):
    """What attentions and blocks share: a config, facts for the registry, and the start of the recurrent form."""

    name: ClassVar[str] = ""  # set by the registry
    config: Any
    state_leading: tuple[int, ...] = ()  # dimensions of the state's tensors between B and their own shapes

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def is_recurrent(cls) -> bool:
        """Whether the causal form is also a recurrence, so that ``prefill`` and ``step`` exist."""
        return cls.state_shapes is not Mechanism.state_shapes

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Redraw the mechanism's own weights and random buffers from ``generator``."""

    def state_shapes(self) -> StateShapes:
        """The names of the state's tensors and their shapes beyond [B, H] (a block's: beyond [B])."""
        raise NotImplementedError

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the state's tensors for inputs of ``dtype``: float32 for the half dtypes."""
        return wide_dtype(dtype)

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token of ``batch`` sequences, for inputs of ``dtype`` on ``device``.

        Raises ValueError if the config is not causal, there is no recurrent form, or ``batch`` is below 1.
        """
        self._check_recurrent()
        checks.check_count("batch", batch)
        return recurrent.empty_state(self.state_shapes(), (batch, *self.state_leading), self.state_dtype(dtype), device)

    def _check_recurrent(self) -> None:
        if not self.is_recurrent():
            raise ValueError(f"name={self.name!r}: has no recurrent form")
        if not self.config.causal:
            raise ValueError("causal=False: only a causal mechanism has a recurrent form")

    def _explain(self, failure: RuntimeError, name_of_x: str, x: Tensor) -> None:
        """Raise the rule of ours that inputs such as x break, if there is one, instead of torch's ``failure``.

        Asked after a failure only, since most mechanisms serve inputs of other dtypes than their weights.
        """
        message, weights = str(failure), [*self.parameters(), *self.buffers()]
        for weight in weights:
            if weight.device != x.device and "device" in message:
                rule = f"must equal the weights' device={weight.device}"
                raise ValueError(f"{name_of_x}.device={x.device}: {rule}") from failure
        if x.is_meta:
            rule = f"{self.name!r} reads values here, and a meta tensor has none"
            raise ValueError(f"{name_of_x}.device=meta: {rule}") from failure
        for weight in weights:
            if weight.is_floating_point() and weight.dtype != x.dtype and "type" in message:
                rule = f"must equal the weights' dtype={weight.dtype}"
                raise TypeError(f"{name_of_x}.dtype={x.dtype}: {rule}") from failure

    def extra_repr(self) -> str:
        return str(self.config)


class Attention(Mechanism):
    """Base of the mechanisms: validation, masks, choice of the implementation, the eager quadratic form."""

    kernel_devices: ClassVar[tuple[str, ...]] = ()  # device types that ``kernel`` serves
    config: AttentionConfig

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.state_leading = (config.heads,)
        learned = config.rotary == "lrpe"
        self.rotary = None if config.rotary == "none" else Rotary(config.head_dim, learned)
        self.norm_after = None
        if config.norm_after != "none":
            self.norm_after = RMSNorm(config.head_dim * (config.heads if config.norm_after == "embedding" else 1))
        # Applied to the matrix; a mechanism whose fast form has no matrix has no such field.
        self.dropout = nn.Dropout(getattr(config, "dropout", 0.0))
        if config.impl == "triton" and not self.kernel_devices:
            raise ValueError(
                f"impl='triton': transnormer_kernels has no kernel for {self.name!r}; use 'auto' or 'chunked'"
            )

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """The matrix that multiplies the values, [B, H, N, N], zero where ``allowed`` is False."""
        raise NotImplementedError

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """The fast PyTorch form: the same o_BHND as ``reference``."""
        raise NotImplementedError

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def kernel_refusal(self, dtype: torch.dtype, device: torch.device) -> str:
        """Why the kernel cannot serve q, k, v of ``dtype``, in half a sentence; empty if it can."""
        return ""

    def state_after(self, k: Tensor, v: Tensor) -> State:
        """The state after the tokens with keys and values k, v [B, H, N, D], without "position"."""
        raise NotImplementedError

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """(o [B, H, 1, D] of the next token, the state after it), for its q, k, v [B, H, 1, D]."""
        raise NotImplementedError

    def bound(self, qkv_3BHD: Tensor, o_BHD: Tensor, state: State) -> Callable[[int], None]:
        """``recurrence`` on fixed memory: a call with the token's position reads q, k, v, writes o, updates ``state``.

        A mechanism overrides it where single calls cost more than their arithmetic. ``norm_after`` is not applied.
        """
        q, k, v = qkv_3BHD.unsqueeze(3)

        def step(position: int) -> None:
            o, after = self.recurrence(q, k, v, state, position)
            o_BHD.copy_(o[:, :, 0])
            state.update(after)

        return step

    def fixed_recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: Tensor) -> Tensor:
        """``recurrence`` whose shapes and memory do not depend on the position, so that a CUDA graph can replay it.

        ``position`` is an int64 scalar on q's device. ``state`` is updated in place; a cache has room for all tokens.
        """
        raise ValueError(f"name={self.name!r}: has no step of fixed shape, which a CUDA graph needs")

    def head_flops(self, length: int) -> int:
        """``flops`` of one head: two products of N × N × D unless overridden."""
        return 4 * length * length * self.config.head_dim

    def finish(self, t: Tensor) -> Tensor:
        """From matrix @ values to the output, both [B, H, N, D]. The identity unless overridden."""
        return t

    def shown_weights(self, matrix: Tensor) -> Tensor:
        """From the attention matrix to what ``weights`` returns. The identity unless overridden."""
        return matrix

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor | None:
        """The keys each query may see: bool, broadcastable to [B, 1, N, N]; None if it may see all."""
        allowed = None
        if self.config.causal:
            allowed = torch.ones(n, n, dtype=torch.bool, device=device).tril()
        if key_padding_mask is not None:
            real_B11N = ~key_padding_mask[:, None, None, :]
            allowed = real_B11N if allowed is None else allowed & real_B11N
        return allowed

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """o_BHND for q, k, v [B, H, N, D].

        ``key_padding_mask`` [B, N] is True on padding. Such a key contributes nothing to any output, whatever its
        content. A query without visible keys gets zeros; the output at a padded query means nothing. Half-precision
        inputs are summed in float32 and returned in their own dtype.
        Raises ValueError or TypeError if shapes, dtypes, devices or the mask do not fit.
        """
        check_inputs(self.config, q, k, v, key_padding_mask)
        if not q.numel():
            return q + k + v  # as empty as the output, and with its gradients
        if torch.compiler.is_compiling():
            return self._output(q, k, v, key_padding_mask)
        try:
            return self._output(q, k, v, key_padding_mask)
        except RuntimeError as failure:
            self._explain(failure, "q", q)
            raise

    def _output(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        impl = self.resolve_impl(q.device, q.dtype)
        with without_autocast(q.device.type):
            if impl == "triton":
                return self.normed(self.kernel(q, k, v, key_padding_mask))
            q, k, v = _without_padding(q, k, v, key_padding_mask)
            if impl == "chunked":
                return self.normed(self.chunked(q, k, v, key_padding_mask)).to(q.dtype)
            return self.normed(self.reference(q, k, v, key_padding_mask)[0]).to(q.dtype)

    def normed(self, o: Tensor) -> Tensor:
        """The output o_BHND after ``norm_after``."""
        if self.norm_after is None:
            return o
        return self.norm_after(o) if self.config.norm_after == "head" else over_embedding(self.norm_after, o)

    def weights(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The weights w_BHNN before dropout, for analysis: by the reference form, in memory quadratic in N."""
        check_inputs(self.config, q, k, v, key_padding_mask)
        q, k, v = _without_padding(q, k, v, key_padding_mask)
        try:
            with without_autocast(q.device.type):
                return self.shown_weights(self.reference(q, k, v, key_padding_mask)[1]).to(q.dtype)
        except RuntimeError as failure:
            self._explain(failure, "q", q)
            raise

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The specification: the output and the attention matrix it was made with, quadratic in N."""
        allowed = self.allowed(q.shape[2], key_padding_mask, q.device)
        matrix = self.attention_matrix(widen(q), widen(k), allowed)
        return self.finish(self.dropout(matrix) @ widen(v)), matrix

    @torch.no_grad()
    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, State]:
        """(o_BHND, the state after the last token) for q, k, v [B, H, N, D]: N steps in the parallel form.

        Records no gradient. Raises ValueError if the config is not causal, and as ``forward``.
        """
        self._check_recurrent()
        o = self(q, k, v)
        with without_autocast(q.device.type):
            return o, recurrent.at_position(self.state_after(k, v), q.shape[2])

    @torch.no_grad()
    def step(self, q_BHD: Tensor, k_BHD: Tensor, v_BHD: Tensor, state: State) -> tuple[Tensor, State]:
        """(o [B, H, D] of the next token, equal to the parallel form's; the state after it).

        ``state`` is consumed: its memory may be overwritten. Records no gradient. Raises ValueError or TypeError if the
        config is not causal, and for shapes, dtypes or a state that do not fit.
        """
        self._check_recurrent()
        check_inputs(self.config, q_BHD, k_BHD, v_BHD, one_token=True)
        recurrent.check_state(state, self.state_shapes(), self.state_dtype(q_BHD.dtype), "q", q_BHD)
        position = int(state["position"])
        with without_autocast(q_BHD.device.type):
            o_BH1D, after = self.recurrence(q_BHD[:, :, None], k_BHD[:, :, None], v_BHD[:, :, None], state, position)
            o_BH1D = self.normed(o_BH1D)
        return o_BH1D[:, :, 0].to(q_BHD.dtype), recurrent.at_position(after, position + 1)

    def flops(self, length: int) -> int:
        """Floating-point operations of the chunked form's forward pass over one sequence, all heads.

        Matrix products only, a multiply-add as two; elementwise work such as rotations and norms is left out.
        Raises ValueError for a length below 1.
        """
        checks.check_count("length", length)
        return self.config.heads * self.head_flops(length)

    def inputs(self, q: Tensor, k: Tensor, v: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """(q, k, v), wide, queries and keys rotated to the positions start, start + 1, …"""
        q, k = self.rotated(widen(q), widen(k), start=start)
        return q, k, widen(v)

    def rotated(self, *tensors: Tensor, start: int | Tensor = 0, period: int = 0) -> tuple[Tensor, ...]:
        """Tensors [..., N, D] rotated to their positions if the config asks for it; see ``rotary.Rotary``."""
        return tensors if self.rotary is None else self.rotary(*tensors, start=start, period=period)

    def resolve_impl(self, device: torch.device, dtype: torch.dtype = torch.float32) -> str:
        """The implementation that runs on ``device`` for q, k, v of ``dtype``: the config's choice, or the best.

        If there is a kernel, logs once what ``auto`` takes. Raises ValueError if ``triton`` cannot run.
        """
        impl = self.config.impl
        if impl not in ("auto", "triton"):
            return impl
        if device.type not in self.kernel_devices:
            if impl == "triton":
                runs = f"the kernel for {self.name!r} runs on {', '.join(self.kernel_devices)}"
                raise ValueError(f"impl='triton': {runs}, the tensors are on {device.type}; use 'auto' or 'chunked'")
            return "chunked"
        reason = self.kernel_refusal(dtype, device)
        if reason and impl == "triton":
            raise ValueError(f"impl='triton': {reason}; use 'auto' or 'chunked' for {self.name!r}")
        form = "chunked" if reason else "triton"
        if not torch.compiler.is_compiling():
            _log_once(self.name, str(device), form, reason)
        return form


@cache
def _log_once(mechanism: str, device: str, form: str, reason: str) -> None:
    """Log a mechanism's form on a device the first time: a warning if there is a ``reason`` not to use the kernel."""
    because = f": {reason}" if reason else ""
    level = logging.WARNING if reason else logging.INFO
    logging.getLogger("transnormer_lib.attention").log(level, "%s on %s runs %s%s", mechanism, device, form, because)


def without_autocast(device_type: str) -> contextlib.AbstractContextManager[Any]:
    """Keep autocast from undoing the float32 sums; a null context if it is off, since entering it costs time."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


def _without_padding(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, ...]:
    """q, k, v with zeros on padding: a weight of zero would not silence a NaN."""
    if key_padding_mask is None:
        return q, k, v
    return tuple(x.masked_fill(key_padding_mask[:, None, :, None], 0.0) for x in (q, k, v))


def check_inputs(
    config: AttentionConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_padding_mask: Tensor | None = None,
    one_token: bool = False,
) -> None:
    """Refuse inputs that do not fit each other or the config, in one line that says why."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x)
        shape, h, d = tuple(x.shape), config.heads, config.head_dim
        if len(shape) != 4 - one_token or (shape[1], shape[-1]) != (h, d) or not shape[2]:
            expected = f"[B, {h}, {d}], one token per sequence" if one_token else f"[B, {h}, N, {d}], N at least 1"
            raise ValueError(f"{name}.shape={shape}: must be {expected}")
        if x.shape != q.shape:
            raise ValueError(f"{name}.shape={shape}: must equal q.shape={tuple(q.shape)}")
        check_dtype(name, x)
        if x.dtype != q.dtype:
            raise TypeError(f"{name}.dtype={x.dtype}: must equal q.dtype={q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name}.device={x.device}: must equal q.device={q.device}")
    if key_padding_mask is not None:
        check_padding_mask(key_padding_mask, q.shape[0], q.shape[2], q.device)


def check_tensor(name: str, x: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}={type(x).__name__}: must be a tensor")


def check_dtype(name: str, x: Tensor) -> None:
    """Refuse dtypes in which nothing can be summed: integers, complex numbers, and floats of 8 bits or fewer."""
    if not x.is_floating_point() or x.element_size() < 2:
        raise TypeError(f"{name}.dtype={x.dtype}: must be a floating-point dtype of at least 16 bits")


def check_padding_mask(key_padding_mask: Tensor, batch: int, length: int, device: torch.device) -> None:
    """Refuse anything but a bool mask [B, N] on ``device``."""
    check_tensor("key_padding_mask", key_padding_mask)
    if key_padding_mask.dtype != torch.bool:
        raise TypeError(f"key_padding_mask.dtype={key_padding_mask.dtype}: must be torch.bool, True on padding")
    if tuple(key_padding_mask.shape) != (batch, length):
        raise ValueError(f"key_padding_mask.shape={tuple(key_padding_mask.shape)}: must be [B, N] = {(batch, length)}")
    if key_padding_mask.device != device:
        raise ValueError(f"key_padding_mask.device={key_padding_mask.device}: must equal the inputs' device={device}")
