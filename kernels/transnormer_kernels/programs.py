"""The part of the work that a program does: one segment of one head of one sequence.

A batch is padded, [B, N, H, D], or packed: sequences one after another along N, with B = 1 and offsets ``cu_seqlens``
[B' + 1], as in flash-attention.
"""

import triton
import triton.language as tl


@triton.jit
def sequence_of(pair, cu_seqlens, N, H, PACKED: tl.constexpr):
    """(batch index, head, first row, length) of the sequence and head with number ``pair``, sequence-major."""
    head = pair % H
    sequence = pair // H
    if PACKED:
        first = tl.load(cu_seqlens + sequence)
        length = tl.load(cu_seqlens + sequence + 1) - first
        batch = sequence * 0
    else:
        first = sequence * 0
        length = N
        batch = sequence
    return batch.to(tl.int64), head.to(tl.int64), first.to(tl.int64), length.to(tl.int32)
