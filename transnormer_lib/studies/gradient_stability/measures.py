"""The relative standard deviation of Table 2, in each of the ways it can be read.

Table 2 prints "the relative standard deviation of all iterations' gradients" for four mechanisms; neither the paper
nor its release says over what a deviation is taken, and a gradient is not a number. Every reading here maps a run's
gradient statistics to one number. Shapes: T steps, P parameter tensors.

Some readings follow from the norms ‖g_t‖ alone. One more looks at the gradient as a vector, one at each of its
entries. All but ``all iterations`` leave the warm-up out, in which the gradient shrinks by a factor of ten and more
whatever the mechanism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transnormer_lib.training.gradient_statistics import GradientStatistics

_WINDOW = 50  # steps on each side of the local mean that the detrended reading divides by


@dataclass(frozen=True)
class Definition:
    """One reading: a readable name, what it computes, and the function (statistics, first step that counts)."""

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
    """‖g_t‖ of the tensors whose name contains one of ``parts``, together, [T]."""
    keep = [any(part in name for part in parts) for name in statistics.names]
    if not any(keep):
        raise ValueError(f"parts={parts!r}: no parameter of this run has such a name")
    return statistics.norms[:, torch.tensor(keep)].double().square().sum(1).sqrt()


def _all_iterations(statistics: GradientStatistics, start: int) -> float:
    return relative_deviation(whole_norm(statistics))


def _after_warmup(statistics: GradientStatistics, start: int) -> float:
    return relative_deviation(whole_norm(statistics)[start:])


def _detrended(statistics: GradientStatistics, start: int) -> float:
    norms_T = whole_norm(statistics)[start:]
    if len(norms_T) < 2:
        return float("nan")
    total = torch.cat([norms_T.new_zeros(1), norms_T.cumsum(0)])
    steps = torch.arange(len(norms_T))
    low, high = (steps - _WINDOW).clamp(min=0), (steps + _WINDOW + 1).clamp(max=len(norms_T))
    return relative_deviation(norms_T * (high - low) / (total[high] - total[low]))


def _attention(statistics: GradientStatistics, start: int) -> float:
    return relative_deviation(_selected(statistics, (".q_proj.", ".k_proj.", ".v_proj.", ".out_proj."))[start:])


def _queries_and_keys(statistics: GradientStatistics, start: int) -> float:
    return relative_deviation(_selected(statistics, (".q_proj.weight", ".k_proj.weight"))[start:])


def _mean_over_tensors(statistics: GradientStatistics, start: int) -> float:
    values = [relative_deviation(norms_T) for norms_T in statistics.norms[start:].T if bool((norms_T > 0).any())]
    return sum(values) / len(values) if values else float("nan")


def _vector(statistics: GradientStatistics, start: int) -> float:
    signal = statistics.mean_norm.double().square().sum()
    return ((statistics.mean_square.double().sum() - signal).clamp(min=0) / signal).sqrt().item()


def _entries(statistics: GradientStatistics, start: int) -> float:
    return statistics.elementwise_rsd.double().nanmedian().item()


DEFINITIONS: tuple[Definition, ...] = (
    Definition("after warm-up", "norm of the whole gradient, steps after the warm-up: std / mean", _after_warmup),
    Definition("all iterations", "norm of the whole gradient, every step: std / mean", _all_iterations),
    Definition(
        "detrended",
        f"norm of the whole gradient over its mean of the {2 * _WINDOW + 1} steps around: std / mean",
        _detrended,
    ),
    Definition("attention", "norm of the gradient of the attention projections: std / mean", _attention),
    Definition("q and k", "norm of the gradient of the q and k projections: std / mean", _queries_and_keys),
    Definition("tensor by tensor", "std / mean of each parameter tensor's norm, mean over tensors", _mean_over_tensors),
    Definition("as a vector", "root of the mean ‖g − mean g‖², over ‖mean g‖", _vector),
    Definition("entry by entry", "std / |mean| of each entry, median over entries, then over tensors", _entries),
)
# The reading that the claims on Table 2 are judged by: the plainest, fixed before anything was measured.
MAIN = DEFINITIONS[0].name


def stability(statistics: GradientStatistics, warmup: int) -> dict[str, float]:
    """Every reading of the relative standard deviation of one run; the first ``warmup`` steps do not count.

    Raises ValueError for a negative warm-up.
    """
    if warmup < 0:
        raise ValueError(f"warmup={warmup!r}: must not be negative")
    # A step that fp16's gradient scaler skipped has a norm that is not finite, and moved no weight.
    finite_T = statistics.norms.isfinite().all(1)
    warmup -= int((~finite_T[:warmup]).sum())
    statistics = replace(statistics, norms=statistics.norms[finite_T])
    return {definition.name: definition.of(statistics, warmup) for definition in DEFINITIONS}


def ranking(values: Mapping[str, float]) -> list[str]:
    """Names from the steadiest to the least steady; what is not a number comes last."""
    return sorted(values, key=lambda name: (values[name] != values[name], values[name], name))


def layer_norms(statistics: GradientStatistics) -> Tensor:
    """‖g_t‖ of each block's parameters together, [T, layers]."""
    layers = sorted({int(name.split(".")[1]) for name in statistics.names if name.startswith("blocks.")})
    return torch.stack([_selected(statistics, (f"blocks.{layer}.",)) for layer in layers], dim=1)
