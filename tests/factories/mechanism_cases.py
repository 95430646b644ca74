"""What the tests of the whole registry share: small settings, and inputs for either kind.

A new mechanism is tested by registering it. Only where its defaults are too large for lengths of a few dozen does it
need a line in ``SMALL``. Shapes: B batch, H heads, N length, D head_dim.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.attention import Attention, AttentionBlock, build, config_class, kind, names

HEADS, HEAD_DIM = 2, 8
MAX_LENGTH = 64

# Settings under which a mechanism does at these lengths what it does at its published ones.
SMALL: dict[str, dict[str, Any]] = {
    "flash": {"s": 16},  # with a chunk_size of 8
    "flash-quad": {"s": 16},
    "gau": {"s": 16},
    "diag": {"block_size": 8},
    "scattered": {"block_size": 4, "span": 16},
    "bigbird": {"block_size": 2, "random_blocks": 1},
    "longformer": {"window": 6, "global_tokens": 2},
    "transformer-ls": {"window": 4, "rank": 3, "segment_size": 4, "memory": 12},
    "lara": {"landmarks": 6},
    "linformer": {"projected": 5},
    "nystromformer": {"landmarks": 6, "conv_kernel": 5},
    "skyformer": {"landmarks": 14},
    "reformer": {"chunk_size": 3, "buckets": 4},
    "informer": {"factor": 1, "sampling_factor": 2},
}

CAUSAL = tuple(name for name in names() if not config_class(name).causal_refusal)


def options(name: str, **wanted: Any) -> dict[str, Any]:
    """Those of the small settings and the ``wanted`` fields that the mechanism's config has."""
    sizes = {"heads": HEADS, "head_dim": HEAD_DIM, "dim": HEADS * HEAD_DIM, "max_length": MAX_LENGTH, "chunk_size": 8}
    known = {field.name for field in fields(config_class(name))}
    return {key: value for key, value in {**sizes, **SMALL.get(name, {}), **wanted}.items() if key in known}


def make(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **wanted: Any) -> Attention | AttentionBlock:
    """The mechanism in evaluation mode, everything random in it drawn from ``seed``, its weights off their start."""
    generator = torch.Generator().manual_seed(seed)
    mechanism = build(name, options(name, **wanted))
    mechanism.reset_parameters(generator)
    if getattr(mechanism, "rotary", None) is not None:
        mechanism.rotary.reset_parameters(generator)
    with torch.no_grad():
        for parameter in mechanism.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return mechanism.to(dtype).eval()


def draw(name: str, b: int, n: int, seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v [B, H, N, D] for an attention, x [B, N, H·D] for a block: the length is the last dimension but one."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(b, n, HEADS * HEAD_DIM)] if kind(name) == "block" else [(b, HEADS, n, HEAD_DIM)] * 3
    return [(scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype) for shape in shapes]


def padding(b: int, n: int, real: int) -> Tensor:
    """A mask [B, N] with padding from ``real`` on."""
    return (torch.arange(n) >= real).expand(b, -1)


def holes(b: int, n: int, seed: int) -> Tensor:
    """A mask [B, N] with padding anywhere, never on a sequence's first token."""
    mask = torch.rand(b, n, generator=torch.Generator().manual_seed(seed)) < 0.3
    mask[:, :1] = False
    return mask
