"""Inputs that the checks share: random, always the same, in float64 so that rounding is no finding."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from transnormer_lib.models.architectures import architecture, published
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.language_model import count_parameters

ROUNDING = 1e-9  # differences below this are rounding, in float64 and numbers of size 1


def random(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers of this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def heads(count: int, n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, H, N, D]."""
    q, k, v = random(3, 1, count, n, d, seed=seed)
    return q, k, v


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference between two tensors."""
    return float((a - b).detach().abs().max())


@cache
def millions(name: str, kind: Kind, **fields: Any) -> float:
    """Parameters in millions at the published size; ``fields`` as in ``architecture``."""
    return count_parameters(published(name, kind, **fields)) / 1e6


def tiny(name: str, **fields: Any) -> ModelConfig:
    """A small model of the architecture ``name``, an encoder by default; ``fields`` as in ``architecture``."""
    size: dict[str, Any] = {"vocab_size": 64, "max_length": 64, "dim": 32, "heads": 2, "layers": 2}
    return architecture(name, **{"kind": "encoder", **size, **fields})
