"""A few queries at a time: attention to every key in memory linear in the length, forward and backward.

A block of C queries needs a C × N matrix. The backward pass recomputes each block's matrix instead of keeping it.

Shapes: N length, S queries, C queries per block; the queries' dimension is the last but one.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transnormer_lib.attention.derivatives import transformed


def by_query_blocks(form: Callable[[slice], Tensor], queries: Tensor, block_size: int, random: bool = False) -> Tensor:
    """``form`` of all ``queries`` [..., S, D], called with ``block_size`` of them at a time as a slice.

    ``form`` returns a tensor [..., C, D] and must depend on the slice alone: the backward pass calls it again, with
    torch's random state restored if it is ``random``.
    """
    length = queries.shape[-2]
    blocks = [slice(start, min(start + block_size, length)) for start in range(0, length, block_size)]
    if len(blocks) <= 1:
        return form(slice(0, length))
    if not torch.is_grad_enabled() or transformed():  # which cannot checkpoint
        return torch.cat([form(block) for block in blocks], dim=-2)

    # The queries are an argument so that checkpoint restores their device's random state.
    outputs = [
        checkpoint(lambda block, _: form(block), block, queries, use_reentrant=False, preserve_rng_state=random)
        for block in blocks
    ]
    return torch.cat(outputs, dim=-2)
