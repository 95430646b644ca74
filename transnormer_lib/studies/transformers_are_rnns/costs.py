"""Figure 1: time and peak memory of attention and its gradients, per sample, by the length of the sequence.

The batch shrinks as the length grows, so that every step has the same number of tokens (Section 4.1.2). Times are
medians of rounds in which all rows take turns; memory is counted by PyTorch's own allocations. A row is not tried at a
length beyond its limit of operations or of memory. Shapes: B batch, H heads, N length, D head_dim.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.analysis.length_growth import Exponent, crossover, exponent
from transnormer_lib.analysis.tensor_memory import peak_bytes
from transnormer_lib.checks import check_choice
from transnormer_lib.progress import tracked
from transnormer_lib.studies.common import lsh
from transnormer_lib.studies.transformers_are_rnns.runs import COST_ROWS, CostParameters

BUCKETS, CHUNK_SIZE = 64, 32  # Section 4.2.1; Section 4.1.2 gives none


@dataclass(frozen=True)
class Cost:
    """One row at one length, per sample."""

    row: str
    length: int
    seconds: tuple[float, ...]  # one per round
    peak_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def build(row: str, parameters: CostParameters) -> attention.Attention:
    """The attention of a row of Figure 1. Raises ValueError for a row that is none."""
    check_choice("cost_rows", row, COST_ROWS)
    name, options = COST_ROWS[row]
    if name == "reformer":
        options = lsh.options(row, buckets=BUCKETS, chunk_size=CHUNK_SIZE, decoder=parameters.cost_causal)
    size = {"heads": parameters.cost_heads, "head_dim": parameters.cost_head_dim, "causal": parameters.cost_causal}
    core = attention.build(name, {**size, **options})
    assert isinstance(core, attention.Attention)
    return core


def step(core: attention.Attention, batch: int, length: int, device: str) -> Callable[[], None]:
    """Attention and its gradients in q, k and v on random input."""
    shape = (3, batch, core.config.heads, length, core.config.head_dim)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (x.to(device).requires_grad_() for x in torch.randn(shape, generator=generator))
    grad = torch.ones(shape[1:], device=device)

    def run() -> None:
        found: Sequence[Tensor | None] = torch.autograd.grad(core(q, k, v), (q, k, v), grad, allow_unused=True)
        del found

    return run


def measure(parameters: CostParameters) -> list[Cost]:
    """All rows at all lengths that their limit allows, shortest first."""
    device = parameters.cost_device
    found = []
    for length in tracked(parameters.cost_lengths, "length"):
        batch = max(1, parameters.cost_tokens // length)
        rows = [row for row in parameters.cost_rows if length <= parameters.cost_longest.get(row, length)]
        steps = {row: step(build(row, parameters).to(device), batch, length, device) for row in rows}
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        seconds = interleaved(steps, rounds=parameters.cost_rounds, wait=wait)
        for row, call in steps.items():
            peak = peak_bytes(call, device) // batch
            found.append(Cost(row, length, tuple(s / batch for s in seconds[row]), peak))
    return found


def by_length(costs: Sequence[Cost], row: str, of: str) -> dict[int, float]:
    """``median`` (seconds) or ``peak_bytes`` of a row, by length."""
    return {cost.length: float(getattr(cost, of)) for cost in costs if cost.row == row}


def growth(costs: Sequence[Cost], row: str, of: str, from_length: int) -> Exponent | None:
    """The slope of log cost over log length, as Figure 1's axes show it."""
    return exponent(by_length(costs, row, of), from_length)


def at(costs: Sequence[Cost], row: str, length: int) -> Cost | None:
    """One row at one length; None where it was not measured."""
    return next((cost for cost in costs if (cost.row, cost.length) == (row, length)), None)


def table(costs: Sequence[Cost], from_length: int) -> list[dict[str, Any]]:
    """One line per row: exponents of time and memory, and from which length linear attention is below it."""
    lines = []
    for row in dict.fromkeys(cost.row for cost in costs):
        line: dict[str, Any] = {"row": row}
        for title, of in (("time", "median"), ("memory", "peak_bytes")):
            fitted = growth(costs, row, of, from_length)
            line[f"exponent of {title}"] = None if fitted is None else round(fitted.value, 2)
            line[f"95% of it, {title}"] = None if fitted is None else f"{fitted.low:.2f} to {fitted.high:.2f}"
            if row == "linear":
                line[f"linear below it from ({title})"] = None
                continue
            found = crossover(by_length(costs, "linear", of), by_length(costs, row, of))
            start = "nowhere" if found.length is None else f"{'all, ' if found.from_start else ''}{found.length:,.0f}"
            line[f"linear below it from ({title})"] = start
        lines.append(line)
    return lines


def in_common(costs: Sequence[Cost], row: str) -> list[int]:
    """The lengths at which linear attention and the row were measured, shortest first."""
    linear, other = (by_length(costs, name, "peak_bytes") for name in ("linear", row))
    return sorted(linear.keys() & other.keys())


def smaller(costs: Sequence[Cost], row: str) -> list[int]:
    """The lengths in common at which linear attention's peak is below the row's."""
    linear, other = (by_length(costs, name, "peak_bytes") for name in ("linear", row))
    return [length for length in in_common(costs, row) if linear[length] < other[length]]


def beside_linear(costs: Sequence[Cost]) -> str:
    """Every row's time and then memory over linear attention's, at the longest length measured, in a sentence."""
    length = max(cost.length for cost in costs)
    linear = at(costs, "linear", length)
    others = [cost for cost in costs if cost.length == length and cost.row != "linear"]
    if linear is None or not others:
        return f"At {length:,} tokens nothing is measured beside linear attention."
    said = [
        f"{cost.row} {cost.median / linear.median:.1f} and {cost.peak_bytes / linear.peak_bytes:.1f}" for cost in others
    ]
    return f"Over linear attention's at {length:,} tokens: {'; '.join(said)}."
