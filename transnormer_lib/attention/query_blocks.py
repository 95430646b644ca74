"""A few queries at a time: what sees every key, in memory linear in the length, forward and backward.

A block of C queries needs a C × N matrix. No block's matrix is kept for the backward pass, which makes it once more.

Shapes: N length, S queries, C queries per block; the queries' dimension is the last but one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def by_query_blocks(form: Callable[[slice], Tensor], length: int, block_size: int, random: bool = False) -> Tensor:
    """``form`` of the queries 0 … ``length`` − 1, called with ``block_size`` of them at a time as a slice.

    ``form`` returns a tensor [..., C, D] and has to be a function of the slice alone: it is called again in the
    backward pass, with torch's random state put back where ``random`` says that it draws.
    """
    blocks = [slice(start, min(start + block_size, length)) for start in range(0, length, block_size)]
    if len(blocks) <= 1:
        return form(slice(0, length))
    if not torch.is_grad_enabled():
        return torch.cat([form(block) for block in blocks], dim=-2)
    outputs = [checkpoint(form, block, use_reentrant=False, preserve_rng_state=random) for block in blocks]
    return torch.cat(outputs, dim=-2)
