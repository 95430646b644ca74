"""How each kernel is launched: a static table, so that nothing is tuned or recompiled at run time.

The keys are kernel, padded head dimension and bytes per number, never a length. ``static_analysis`` compiles every
entry and counts its registers.
"""

from typing import NamedTuple

import torch
import triton


class Configuration(NamedTuple):
    """Rows of a tile, columns of a program's result, and Triton's launch options."""

    rows: int
    warps: int
    stages: int
    part: int = 64


def tile_width(head_dim: int) -> int:
    """The head dimension padded to a tile's width, 64 or 128."""
    return 64 if head_dim <= 64 else 128


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of all sums: float32, or float64 for float64 inputs."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def precision(dtype: torch.dtype) -> str:
    """``input_precision`` of a product; a float32 product is made of three TF32 products."""
    return "tf32x3" if dtype == torch.float32 else "ieee"


# Bytes of shared memory that the entries with several stages need. Compute capability 8.0 and 9.0 have them. 8.6, 8.9
# and 12.0 do not: there nothing is loaded ahead.
ROOM = 160 * 1024

# What a call may compute beside the products; their sum is the fourth number of a key.
WITH_DENOMINATOR, WITH_ROTATION, WITH_SAVED_STATES = 1, 2, 4

# (kernel, tile width, bytes per number), with a fourth number where one of these needs another entry.
# The two-byte entries of the linear kernels are the fastest of those tried on an H200 (Triton 3.6, 2^20 token-heads);
# some of them spill registers. A denominator with saved states at width 128 was not tried.
_TABLE: dict[tuple[str, int, int] | tuple[str, int, int, int], Configuration] = {
    ("segment_states", 64, 2): Configuration(64, 4, 3),
    ("segment_states", 128, 2): Configuration(64, 8, 3),
    ("outputs", 64, 2): Configuration(64, 4, 3),
    ("outputs", 64, 2, WITH_ROTATION): Configuration(64, 4, 2),
    ("outputs", 128, 2): Configuration(32, 4, 3, part=128),
    ("outputs", 128, 2, WITH_DENOMINATOR): Configuration(64, 4, 2),
    ("outputs", 128, 2, WITH_SAVED_STATES): Configuration(32, 8, 3, part=128),
    ("segment_gradients", 64, 2): Configuration(64, 4, 2),
    ("segment_gradients", 128, 2): Configuration(32, 8, 3),
    ("gradients", 64, 2): Configuration(64, 4, 2),
    ("gradients", 64, 2, WITH_DENOMINATOR): Configuration(64, 4, 1),
    ("gradients", 64, 2, WITH_ROTATION): Configuration(64, 4, 1),
    ("gradients", 64, 2, WITH_DENOMINATOR + WITH_ROTATION): Configuration(32, 4, 1),
    ("gradients", 128, 2): Configuration(64, 4, 2),
    ("gradients", 128, 2, WITH_DENOMINATOR): Configuration(64, 4, 1),
    # the three TF32 products of a float32 product need many registers
    ("segment_states", 64, 4): Configuration(32, 4, 1),
    ("segment_states", 128, 4): Configuration(32, 8, 1),
    ("outputs", 64, 4): Configuration(16, 4, 1, part=32),
    ("outputs", 64, 4, WITH_DENOMINATOR + WITH_ROTATION): Configuration(16, 8, 1, part=32),
    ("outputs", 128, 4): Configuration(16, 8, 1, part=32),
    ("segment_gradients", 64, 4): Configuration(32, 4, 1),
    ("segment_gradients", 128, 4): Configuration(32, 8, 1),
    # With tiles of 16 rows dq was wrong on an H200 under Triton 3.6 where padding met a rotation; nobody knows why.
    ("gradients", 64, 4): Configuration(32, 8, 1, part=32),
    ("gradients", 128, 4): Configuration(16, 8, 1, part=32),
    # up to 64 tokens a block; "wide": more
    ("diag_outputs", 64, 2): Configuration(64, 4, 1),
    ("diag_outputs", 128, 2): Configuration(64, 4, 1),
    ("diag_outputs_wide", 64, 2): Configuration(128, 8, 1),
    ("diag_outputs_wide", 128, 2): Configuration(128, 8, 1),
    ("diag_gradients", 64, 2): Configuration(64, 4, 1),
    ("diag_gradients", 128, 2): Configuration(64, 8, 1),
    ("diag_gradients_wide", 64, 2): Configuration(128, 8, 1),
    ("diag_gradients_wide", 128, 2): Configuration(128, 8, 1),
    ("diag_outputs", 64, 4): Configuration(64, 8, 1),
    ("diag_outputs", 128, 4): Configuration(64, 8, 1),
    ("diag_outputs_wide", 64, 4): Configuration(128, 8, 1),
    ("diag_outputs_wide", 128, 4): Configuration(128, 8, 1),
    ("diag_gradients", 64, 4): Configuration(64, 8, 1),
    ("diag_gradients", 128, 4): Configuration(64, 8, 1),
    ("diag_gradients_wide", 64, 4): Configuration(128, 8, 1),
    ("diag_gradients_wide", 128, 4): Configuration(128, 8, 1),
}


def configuration(kernel: str, head_dim: int, dtype: torch.dtype, extras: int = 0) -> Configuration:
    """The table's entry; ``extras`` is a sum of ``WITH_…``; of several entries the one for the greatest sum counts.

    The interpreter uses the wider two-byte entries for every dtype: there tiles are slow, and registers do not matter.
    """
    narrow = dtype == torch.float32 and not triton.knobs.runtime.interpret
    key = (kernel, tile_width(head_dim), 4 if narrow else 2)
    for some in range(extras, 0, -1):
        if some | extras == extras and (*key, some) in _TABLE:
            return _TABLE[(*key, some)]
    return _TABLE[key]


def entries() -> dict[tuple[str, int, int] | tuple[str, int, int, int], Configuration]:
    """The whole table, by (kernel, tile width, bytes per number) and, in some keys, the extras."""
    return dict(_TABLE)
