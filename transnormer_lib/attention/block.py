"""Blocks: layers that replace attention and feed-forward together, as FLASH and GAU do.

Shapes: B batch, N length, D width of the model.

A block is one branch: the model adds the residual connection and the norm around it. It subclasses ``AttentionBlock``
and writes ``branch`` (reference or chunked form), ``flops`` and ``about``; for decoding ``state_shapes``,
``state_after`` and ``recurrence``. Where no causal form is published, its config sets ``causal_refusal``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor, nn

from transnormer_lib.attention.about import About
from transnormer_lib.attention.interface import check_choice, check_count, check_flag, check_padding_mask
from transnormer_lib.attention.norms import wide_dtype
from transnormer_lib.attention.recurrent import State, StateShapes, at_position, check_causal, check_state, empty_state

BlockImpl = Literal["auto", "reference", "chunked"]


@dataclass(frozen=True)
class BlockConfig:
    """The fields every block has. Raises ``ValueError("field=value: rule")``."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}
    causal_refusal: ClassVar[str] = ""  # why causal=True is refused, in half a sentence; empty where it is not

    dim: int  # D
    causal: bool = False  # a token sees itself and what stands before it
    impl: BlockImpl = "auto"  # chunked, the fast form; reference is the specification

    def __post_init__(self) -> None:
        check_count("dim", self.dim)
        check_flag("causal", self.causal)
        if self.causal and self.causal_refusal:
            raise ValueError(f"causal=True: {self.causal_refusal}")
        check_choice("impl", self.impl, ("auto", "reference", "chunked"))


class AttentionBlock(nn.Module):
    """Base of the blocks: validation, masks, choice of the form."""

    name: ClassVar[str] = ""  # set by the registry
    about: ClassVar[About]  # cost and source, for the table of mechanisms
    config: BlockConfig

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def is_recurrent(cls) -> bool:
        """Whether the causal form is a recurrence too, so that ``prefill`` and ``step`` exist."""
        return cls.state_shapes is not AttentionBlock.state_shapes

    # --- what a block writes ------------------------------------------------------------------------------

    def branch(self, x_BND: Tensor, key_padding_mask: Tensor | None, reference: bool) -> tuple[Tensor, Tensor | None]:
        """(y [B, N, D], the attention matrix [B, 1, N, N] where ``reference``, else None). Padding of x is zero."""
        raise NotImplementedError

    def flops(self, length: int) -> int:
        """Floating-point operations of the fast form over one sequence, a multiply-add as two.

        Matrix products alone, and not those of ``nn.Linear`` layers, whose weights the caller counts.
        """
        raise NotImplementedError

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights anew, from the generator given and nothing else."""
        raise NotImplementedError

    def state_shapes(self) -> StateShapes:
        """The names of the state's tensors and their shapes beyond [B]; they hold float32 for the half dtypes."""
        raise NotImplementedError

    def state_after(self, x_BND: Tensor) -> State:
        """The state after the tokens x, "position" left out."""
        raise NotImplementedError

    def recurrence(self, x_BD: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """(y [B, D] of the next token, the state after it, "position" left out)."""
        raise NotImplementedError

    # --- what all blocks share ----------------------------------------------------------------------------

    @overload
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = ..., return_weights: Literal[False] = ...
    ) -> Tensor: ...

    @overload
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = ..., *, return_weights: Literal[True]
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None, return_weights: bool
    ) -> Tensor | tuple[Tensor, Tensor]: ...

    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = None, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """y [B, N, D] for x [B, N, D]; with ``return_weights`` (y, w [B, 1, N, N]), by the reference form.

        ``key_padding_mask`` [B, N] is True on padding: such a token contributes nothing to any output, whatever its
        content. What stands at padded places of y means nothing. Raises ValueError or TypeError where shapes, dtypes
        or the mask do not fit.
        """
        self._check(x, 3)
        if key_padding_mask is not None:
            check_padding_mask(key_padding_mask, x.shape[0], x.shape[1], x.device)
            # A weight of zero does not silence a NaN: padding is emptied before anything reads it.
            x = x.masked_fill(key_padding_mask[..., None], 0.0)
        reference = return_weights or self.config.impl == "reference"
        y, matrix = self.branch(x, key_padding_mask, reference)
        if not return_weights:
            return y
        assert matrix is not None
        return y, matrix

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token of ``batch`` sequences, for x of ``dtype`` on ``device``.

        Raises ValueError where the config is not causal, there is no recurrent form, or ``batch`` is below 1.
        """
        self._check_recurrent()
        check_count("batch", batch)
        return empty_state(self.state_shapes(), (batch,), wide_dtype(dtype), device)

    @torch.no_grad()
    def prefill(self, x_BND: Tensor) -> tuple[Tensor, State]:
        """(y [B, N, D], the state after the last token): N steps in the parallel form. For decoding: no gradient."""
        self._check_recurrent()
        y = self(x_BND)
        return y, at_position(self.state_after(x_BND), x_BND.shape[1])

    @torch.no_grad()
    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """(y [B, D] of the next token, equal to the parallel form's, the state after it).

        ``state`` is used up: its memory may be written to. For decoding: no gradient is recorded. Raises ValueError
        where the config is not causal, and for an x or a state that does not fit.
        """
        self._check_recurrent()
        self._check(x_BD, 2)
        check_state(state, self.state_shapes(), wide_dtype(x_BD.dtype), "x", x_BD)
        position = int(state["position"])
        y, after = self.recurrence(x_BD, state, position)
        return y, at_position(after, position + 1)

    def _check_recurrent(self) -> None:
        if not self.is_recurrent():
            raise ValueError(f"name={self.name!r}: has no recurrent form")
        check_causal(self.config.causal)

    def _check(self, x: Tensor, dimensions: int) -> None:
        shape, dim = tuple(x.shape), self.config.dim
        expected = f"[B, N, {dim}]" if dimensions == 3 else f"[B, {dim}]"
        if len(shape) != dimensions or shape[-1] != dim or (dimensions == 3 and shape[1] < 1):
            raise ValueError(f"x.shape={shape}: must be {expected}")
        if not x.is_floating_point():
            raise TypeError(f"x.dtype={x.dtype}: must be a floating-point dtype")

    def extra_repr(self) -> str:
        return str(self.config)
