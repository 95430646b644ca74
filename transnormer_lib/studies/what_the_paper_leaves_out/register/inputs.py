"""What the checks share: inputs, small models, and the paper's settings.

Inputs are random with fixed seeds. They are float64, so that rounding cannot pass for a finding.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis.bound_search import Bound
from transnormer_lib.models.architectures import architecture, published
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.papers import settings
from transnormer_lib.studies.lra import recipes

ROUNDING = 1e-9  # smaller differences are rounding, for float64 numbers of size 1


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


def build(name: str, **fields: object) -> attention.Attention:
    """A mechanism in evaluation mode, with two heads of width 8 unless ``fields`` say otherwise."""
    core = attention.build(name, {"heads": 2, "head_dim": 8} | fields)
    assert isinstance(core, attention.Attention)
    return core.eval()


def at_worst(bound: Bound, **sizes: int) -> float:
    """A gradient over its bound, at the worst input that is known."""
    assert bound.extremal is not None
    return bound.ratio_at(bound.extremal(sizes))


@cache
def millions(name: str, kind: Kind, **fields: Any) -> float:
    """Parameters in millions at the published size; ``fields`` as in ``architecture``."""
    return count_parameters(published(name, kind, **fields)) / 1e6


def tiny(name: str, **fields: Any) -> ModelConfig:
    """A small model of the architecture ``name``, an encoder by default; ``fields`` as in ``architecture``."""
    size: dict[str, Any] = {"vocab_size": 64, "max_length": 64, "dim": 32, "heads": 2, "layers": 2}
    return architecture(name, **{"kind": "encoder", **size, **fields})


def arena_model(task: str, recipe: recipes.Recipe, symbols: int = 16, **changes: Any) -> ModelConfig:
    """T2 for a task of the Long Range Arena; ``changes`` to the recipe's settings."""
    return recipes.model("transnormer-t2", recipes.setting(task, recipe, changes), recipe, symbols)


def said(source: str, model: settings.Model, name: str) -> Any:
    """The setting that the paper, or code it names, gives at ``source``."""
    return settings.said("transnormer", source, model, name)
