"""Blocks: layers that replace attention and feed-forward together, as FLASH and GAU do.

Shapes: B batch, N length, D width of the model.

A block is one branch: the model adds the residual connection and the norm around it. It subclasses ``AttentionBlock``
and writes ``branch`` (reference or chunked form) and ``mix_flops``, and has a row in mechanisms.csv; for decoding
``state_shapes``, ``state_after`` and ``recurrence``. If there is no causal form, its config sets ``causal_refusal``.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib import checks
from transnormer_lib.attention.interface import (
    Mechanism,
    MechanismConfig,
    check_dtype,
    check_padding_mask,
    check_tensor,
)
from transnormer_lib.attention.recurrent import State, at_position, check_state


@dataclass(frozen=True)
class BlockConfig(MechanismConfig):
    dim: int  # D
    causal: bool = False  # a token sees itself and earlier tokens only
    impl: Literal["auto", "reference", "chunked"] = "auto"  # chunked, the fast form; reference is the specification


class AttentionBlock(Mechanism):
    """Base of the blocks: validation, masks, choice of the form."""

    config: BlockConfig

    def branch(self, x_BND: Tensor, key_padding_mask: Tensor | None, reference: bool) -> tuple[Tensor, Tensor | None]:
        """(y [B, N, D], the attention matrix [B, 1, N, N] if ``reference``, else None). x is zero on padding."""
        raise NotImplementedError

    def flops(self, length: int) -> int:
        """Floating-point operations of the fast form over one sequence, a multiply-add as two.

        Matrix products only, without those of ``nn.Linear`` layers, whose weights the caller counts. Raises ValueError
        for a length below 1.
        """
        checks.check_count("length", length)
        return self.mix_flops(length)

    def mix_flops(self, length: int) -> int:
        raise NotImplementedError

    def state_after(self, x_BND: Tensor) -> State:
        """The state after the tokens x, without "position"."""
        raise NotImplementedError

    def recurrence(self, x_BD: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """(y [B, D] of the next token, the state after it without "position")."""
        raise NotImplementedError

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """y [B, N, D] for x [B, N, D].

        ``key_padding_mask`` [B, N] is True on padding, which contributes nothing to any output; y there means nothing.
        Raises ValueError or TypeError if shapes, dtypes or the mask do not fit.
        """
        return self._branch(x, key_padding_mask, self.config.impl == "reference")[0]

    def _branch(self, x: Tensor, key_padding_mask: Tensor | None, reference: bool) -> tuple[Tensor, Tensor | None]:
        x = self._without_padding(x, key_padding_mask)
        if torch.compiler.is_compiling():
            return self.branch(x, key_padding_mask, reference)
        try:
            return self.branch(x, key_padding_mask, reference)
        except RuntimeError as failure:
            self._explain(failure, "x", x)
            raise

    def weights(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The attention matrix [B, 1, N, N] of x [B, N, D], for analysis: by the reference form."""
        matrix = self._branch(x, key_padding_mask, True)[1]
        assert matrix is not None
        return matrix

    @torch.no_grad()
    def prefill(self, x_BND: Tensor) -> tuple[Tensor, State]:
        """(y [B, N, D], the state after the last token): N steps in the parallel form, without a gradient."""
        self._check_recurrent()
        y = self(x_BND)
        return y, at_position(self.state_after(x_BND), x_BND.shape[1])

    @torch.no_grad()
    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """(y [B, D] of the next token, equal to the parallel form's; the state after it).

        ``state`` is consumed: its memory may be overwritten. Records no gradient. Raises ValueError if the config is
        not causal, and for an x or a state that does not fit.
        """
        self._check_recurrent()
        self._check(x_BD, 2)
        check_state(state, self.state_shapes(), self.state_dtype(x_BD.dtype), "x", x_BD)
        position = int(state["position"])
        y, after = self.recurrence(x_BD, state, position)
        return y, at_position(after, position + 1)

    def fixed_step(self, x_BD: Tensor, state: State, position: Tensor) -> Tensor:
        """As ``MultiHeadAttention.fixed_step``; no block has one so far."""
        raise ValueError(f"name={self.name!r}: has no step of fixed shape, which a CUDA graph needs")

    def _without_padding(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """x, checked, with zeros on padding: a weight of zero would not silence a NaN."""
        self._check(x, 3)
        if key_padding_mask is None:
            return x
        check_padding_mask(key_padding_mask, x.shape[0], x.shape[1], x.device)
        return x.masked_fill(key_padding_mask[..., None], 0.0)

    def _check(self, x: Tensor, dimensions: int) -> None:
        check_tensor("x", x)
        shape, dim = tuple(x.shape), self.config.dim
        expected = f"[B, N, {dim}]" if dimensions == 3 else f"[B, {dim}]"
        if len(shape) != dimensions or shape[-1] != dim or (dimensions == 3 and shape[1] < 1):
            raise ValueError(f"x.shape={shape}: must be {expected}")
        check_dtype("x", x)
