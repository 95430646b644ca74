"""A few queries at a time: what sees every key, in memory linear in the length, forward and backward.

A block of C queries needs a C × N matrix. No block's matrix is kept for the backward pass, which makes it once more.

Shapes: N length, S queries, C queries per block; the queries' dimension is the last but one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def by_query_blocks(form: Callable[[slice], Tensor], queries: Tensor, block_size: int, random: bool = False) -> Tensor:
    """``form`` of all ``queries`` [..., S, D], called with ``block_size`` of them at a time as a slice.

    ``form`` returns a tensor [..., C, D] and has to be a function of the slice alone: it is called again in the
    backward pass, with torch's random state put back where ``random`` says that it draws.
    """
    length = queries.shape[-2]
    blocks = [slice(start, min(start + block_size, length)) for start in range(0, length, block_size)]
    if len(blocks) <= 1:
        return form(slice(0, length))
    if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():  # which know no checkpoints
        return torch.cat([form(block) for block in blocks], dim=-2)

    def again(block: slice, _: Tensor) -> Tensor:
        return form(block)

    # The queries are an argument for their device, whose random state is put back.
    outputs = [checkpoint(again, block, queries, use_reentrant=False, preserve_rng_state=random) for block in blocks]
    return torch.cat(outputs, dim=-2)
