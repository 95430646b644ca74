"""Derivatives that fast forms lack: where they are taken of the plain composition of PyTorch operations instead."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Plain = Callable[[Tensor, Tensor, Tensor], Tensor]  # o of q, k, v


def transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work, which few fused or custom operations know."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def plain_gradients(plain: Plain, qkv: Sequence[Tensor], needed: Sequence[bool], g: Tensor) -> list[Tensor | None]:
    """The gradients of ``plain`` in those of q, k, v that are ``needed``, themselves differentiable."""
    views = [x.view_as(x) for x in qkv]  # q, k and v may be one tensor: each use has a gradient of its own
    wanted = [x for x, one in zip(views, needed, strict=True) if one]
    found = iter(torch.autograd.grad(plain(*views), wanted, g, create_graph=True))
    return [next(found) if one else None for one in needed]


class TwiceDifferentiable(torch.autograd.Function):
    """(q, k, v, o, plain) → o, with o's own gradient, or that of ``plain`` if it will be differentiated in turn.

    For an o with a first derivative alone, such as that of PyTorch's fused attention.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, plain: Plain) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.plain = plain
        return o.view_as(o)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        if not torch.is_grad_enabled():
            return None, None, None, g, None
        return *plain_gradients(ctx.plain, ctx.saved_tensors, ctx.needs_input_grad[:3], g), None, None
