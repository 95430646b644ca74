"""The relative standard deviation of Table 2, in each of the ways it can be read.

Table 2 prints "the relative standard deviation of all iterations' gradients" for four mechanisms. Neither the paper nor
its release says what number the deviation is of, and a gradient is a vector. Every reading here maps a run's gradient
statistics to one number: most from the norms ‖g_t‖, one from the whole vectors, one from their entries. All but ``all
iterations`` leave out the warm-up, in which the gradient of every mechanism shrinks at least tenfold.

Shapes: T steps, P parameter tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transnormer_lib.checks import check_count
from transnormer_lib.training.gradient_statistics import GradientStatistics

_WINDOW = 50  # steps on each side in the local mean that the detrended reading divides by
_PROJECTIONS = (".q_proj.", ".k_proj.", ".v_proj.", ".out_proj.")
_QUERIES_AND_KEYS = (".q_proj.weight", ".k_proj.weight")


@dataclass(frozen=True)
class Definition:
    """One reading: its name, what it computes, and the function (statistics, first step that counts)."""

    name: str
    meaning: str
    of: Callable[[GradientStatistics, int], float]


def relative_deviation(norms_T: Tensor) -> float:
    """std / mean over the steps (Bessel's correction); NaN for fewer than two steps or a mean of zero."""
    if len(norms_T) < 2:
        return float("nan")
    norms_T = norms_T.double()
    return (norms_T.std() / norms_T.mean()).item()


def whole_norm(statistics: GradientStatistics) -> Tensor:
    """‖g_t‖ of all parameters together, [T]."""
    return statistics.norms.double().square().sum(1).sqrt()


def _selected(statistics: GradientStatistics, parts: tuple[str, ...]) -> Tensor:
    """‖g_t‖ of all tensors whose names contain one of ``parts``, together, [T]."""
    keep = [any(part in name for part in parts) for name in statistics.names]
    if not any(keep):
        raise ValueError(f"parts={parts!r}: no parameter of this run has such a name")
    return statistics.norms[:, torch.tensor(keep)].double().square().sum(1).sqrt()


def query_key_norm(statistics: GradientStatistics) -> Tensor:
    """‖g_t‖ of the projections to queries and keys together, [T]."""
    return _selected(statistics, _QUERIES_AND_KEYS)


def _detrended(statistics: GradientStatistics, start: int) -> float:
    norms_T = whole_norm(statistics)[start:]
    if len(norms_T) < 2:
        return float("nan")
    total = torch.cat([norms_T.new_zeros(1), norms_T.cumsum(0)])
    steps = torch.arange(len(norms_T))
    low, high = (steps - _WINDOW).clamp(min=0), (steps + _WINDOW + 1).clamp(max=len(norms_T))
    return relative_deviation(norms_T * (high - low) / (total[high] - total[low]))


def _mean_over_tensors(statistics: GradientStatistics, start: int) -> float:
    values = [relative_deviation(norms_T) for norms_T in statistics.norms[start:].T if bool((norms_T > 0).any())]
    return sum(values) / len(values) if values else float("nan")


def _vector(statistics: GradientStatistics, start: int) -> float:
    signal = statistics.mean_norm.double().square().sum()
    return ((statistics.mean_square.double().sum() - signal).clamp(min=0) / signal).sqrt().item()


def _entries(statistics: GradientStatistics, start: int) -> float:
    return statistics.elementwise_rsd.double().nanmedian().item()


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "after warm-up",
        "norm of the whole gradient, steps after the warm-up: std / mean",
        lambda statistics, start: relative_deviation(whole_norm(statistics)[start:]),
    ),
    Definition(
        "all iterations",
        "norm of the whole gradient, every step: std / mean",
        lambda statistics, _: relative_deviation(whole_norm(statistics)),
    ),
    Definition(
        "detrended",
        f"norm of the whole gradient over its mean of the {2 * _WINDOW + 1} steps around: std / mean",
        _detrended,
    ),
    Definition(
        "attention",
        "norm of the gradient of the attention projections: std / mean",
        lambda statistics, start: relative_deviation(_selected(statistics, _PROJECTIONS)[start:]),
    ),
    Definition(
        "q and k",
        "norm of the gradient of the q and k projections: std / mean",
        lambda statistics, start: relative_deviation(query_key_norm(statistics)[start:]),
    ),
    Definition("tensor by tensor", "std / mean of each parameter tensor's norm, mean over tensors", _mean_over_tensors),
    Definition("as a vector", "root of the mean ‖g − mean g‖², over ‖mean g‖", _vector),
    Definition("entry by entry", "std / |mean| of each entry, median over entries, then over tensors", _entries),
)
# The claims on Table 2 are judged by this reading, the plainest; it was chosen before anything was measured.
MAIN = DEFINITIONS[0].name


def stability(statistics: GradientStatistics, warmup: int) -> dict[str, float]:
    """Every reading of one run; the first ``warmup`` steps do not count. Raises ValueError for a negative warm-up."""
    check_count("warmup", warmup, least=0)
    # A step that fp16's gradient scaler skipped has no finite norm and moved no weight.
    finite_T = statistics.norms.isfinite().all(1)
    warmup -= int((~finite_T[:warmup]).sum())
    statistics = replace(statistics, norms=statistics.norms[finite_T])
    return {definition.name: definition.of(statistics, warmup) for definition in DEFINITIONS}


def layer_norms(statistics: GradientStatistics) -> Tensor:
    """‖g_t‖ of each block's parameters together, [T, layers]."""
    layers = sorted({int(name.split(".")[1]) for name in statistics.names if name.startswith("blocks.")})
    return torch.stack([_selected(statistics, (f"blocks.{layer}.",)) for layer in layers], dim=1)
