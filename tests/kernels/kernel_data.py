"""Inputs for the kernels' tests, fixed for each size, on the device where the kernels run."""

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_CPU = pytest.mark.skipif(DEVICE == "cuda", reason="float64 runs only under the interpreter")


def inputs(b: int, n: int, h: int, d: int, dtype: torch.dtype, count: int = 4) -> list[Tensor]:
    """q, k, v and an output gradient."""
    generator = torch.Generator().manual_seed(1000 * n + 10 * d + b)
    return [torch.randn(b, n, h, d, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for _ in range(count)]


def padding(b: int, n: int) -> Tensor:
    """A third of the tokens, and the whole of the last sequence's first block."""
    mask = torch.rand(b, n, generator=torch.Generator().manual_seed(n)) < 1 / 3
    mask[-1, :32] = True
    return mask.to(DEVICE)


def rotation(d: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Angles, and a reflection vector that is not normalised."""
    theta = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    reflection = torch.randn(d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    return {"theta": theta.to(DEVICE, dtype), "reflection": reflection.to(DEVICE, dtype)}
