"""Operations of a call, counted as PyTorch runs them: matrix products, and what is done number by number.

A matrix product counts two operations per multiply-add, by the formulas of PyTorch's own counter. Any other operator
counts one per number that it reads or writes, whichever are more, so that the update of a recurrent state counts too.
Views, and tensors without a dimension, count nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += int(formula(*args, **kwargs, out_val=out))
        elif not func.is_view:
            tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor) and x.ndim]
            self.total += max((x.numel() for x in tensors), default=0)
        return out


def counted(call: Callable[[], object]) -> int:
    """The operations of ``call``, without gradients; those inside PyTorch's fused attention count too."""
    # The fused kernel of the CPU is unknown to the counter.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _Counter() as counter:
        call()
    return counter.total
