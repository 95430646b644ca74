"""The register of this paper's discrepancies, which the files beside this one fill, and inputs that they share."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.papers import settings
from transnormer_lib.studies.common.published import number
from transnormer_lib.studies.common.register.checks import Effect, Found, Register

PAPER = "linear-transformers"
REGISTER = Register(PAPER)
check, run_all = REGISTER.check, REGISTER.run_all
said = partial(settings.said, PAPER)
ROUNDING = 1e-9
RELEASE = "idiap/linear-transformer-experiments@0a54093"

__all__ = ["PAPER", "REGISTER", "RELEASE", "ROUNDING", "Effect", "Found", "build", "check", "heads", "run_all", "said"]


def heads(n: int, d: int = 8, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, 2, N, D], float64."""
    q, k, v = torch.randn(3, 1, 2, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return q, k, v


def build(name: str, **fields: Any) -> attention.Attention:
    """A mechanism with two heads of width 8 unless ``fields`` say otherwise, in float64, in evaluation mode."""
    core = attention.build(name, {"heads": 2, "head_dim": 8} | fields)
    core.reset_parameters(torch.Generator().manual_seed(0))
    assert isinstance(core, attention.Attention)
    return core.double().eval()


def printed(table: str, column: str, method: str) -> float:
    """A number of Tables 1 to 3."""
    return number(table, column, paper=PAPER, method=method)
