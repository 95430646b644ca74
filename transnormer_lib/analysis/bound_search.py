"""A bound as an object, and the search that tries to break it.

A `Bound` gives the ratio of its left side to its right side; the bound holds if no input brings the ratio above 1.
`search` looks for such inputs among random points over six orders of magnitude and structured points (one-hot,
equal rows, two values, nearly zero, aligned), and then climbs log(ratio) from the best of both. It can show that a
bound breaks and how close a bound comes to breaking; it cannot prove that a bound holds.

The paper's symbols name the axes: n keys (sequence length), d features (width). Appendix D adds r rows,
h hidden units and m classes. Inputs are batches: a variable of shape "nd" is a tensor [B, n, d]. Everything is
float64 on the CPU and depends only on the generator passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Generator, Tensor

from transnormer_lib.checks import check_choice, check_count

Inputs = Mapping[str, Tensor]
Sizes = Mapping[str, int]
Starts = Callable[[Sequence[int], Generator], Tensor]
T = TypeVar("T")

TOLERANCE = 1e-9  # rounding of a few float64 operations: a bound exceeded by less counts as holding
DIGITS = 6  # decimal digits of the inputs that a check reports
CLIMBERS = 16  # the best points of each size, from which the ascent starts


def size_grid(pairs: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    """Sizes for `search` from pairs (n, d), with r = n + 1, h = d + 1 and m = max(2, n)."""
    for pair in pairs:
        if len(pair) != 2 or min(pair) < 1:
            raise ValueError(f"sizes={list(pair)}: each size must be a pair [n, d] of positive integers")
    return [{"n": n, "d": d, "r": n + 1, "h": d + 1, "m": max(2, n)} for n, d in pairs]


def by_form(form: str, **options: T) -> T:
    """The option called `form`; raises ValueError if the bound has no such form."""
    check_choice("form", form, tuple(options))
    return options[form]


def filled(value: float, *shape: int) -> Tensor:
    """A float64 tensor of equal entries."""
    return torch.full(shape, value, dtype=torch.float64)


def one_apart(size: int, first: float, others: float) -> Tensor:
    """A float64 vector [size] with `first` at index 0 and `others` elsewhere."""
    vector = filled(others, size)
    vector[0] = first
    return vector


@dataclass(frozen=True)
class Bound:
    """An inequality left ≤ right over free real variables.

    `shapes` maps a variable to the letters of its axes ("nd"). `ratio` maps a batch of inputs to left/right, [B].
    `extremal`, where known, maps sizes to inputs (without the batch axis) at which the ratio is largest.
    """

    name: str
    shapes: Mapping[str, str]
    ratio: Callable[[Inputs], Tensor]
    extremal: Callable[[Sizes], dict[str, Tensor]] | None = None

    def ratio_at(self, inputs: Inputs) -> float:
        """The ratio of one case, given without the batch axis."""
        return float(self.ratio({name: tensor[None] for name, tensor in inputs.items()})[0])


@dataclass(frozen=True)
class Case:
    """The best case at one size, with the kind of start it came from."""

    sizes: Sizes
    ratio: float
    start: str
    inputs: Inputs

    def record(self, limit: int = 64) -> dict[str, object]:
        """The case as JSON values with exact inputs; inputs of more than `limit` numbers are left out.

        Inputs that need more than `DIGITS` digits become text, so nothing downstream rounds them.
        """
        inputs: dict[str, object] = {}
        if sum(tensor.numel() for tensor in self.inputs.values()) <= limit:
            for name, tensor in self.inputs.items():
                exact = torch.equal(_to_digits(tensor), tensor)
                inputs[name] = tensor.tolist() if exact else str(tensor.tolist())
        return {"sizes": dict(self.sizes), "ratio": self.ratio, "start": self.start, "inputs": inputs}


@dataclass(frozen=True)
class BoundCheck:
    """What a search found: one `Case` per size, and the number of points tried."""

    bound: str
    cases: tuple[Case, ...]
    searched: int

    @property
    def tightest(self) -> Case:
        """The case with the largest ratio."""
        return max(self.cases, key=lambda case: case.ratio)

    @property
    def ratio(self) -> float:
        """Largest left/right found."""
        return self.tightest.ratio

    @property
    def margin(self) -> float:
        """1 − ratio: 0 where the bound is attained, negative where it breaks."""
        return max(0.0, 1 - self.ratio) if self.holds else 1 - self.ratio

    @property
    def holds(self) -> bool:
        """Whether no point broke the bound by more than `TOLERANCE`."""
        return self.ratio <= 1 + TOLERANCE

    @property
    def counter_example(self) -> Case | None:
        """The smallest case that breaks the bound, or None."""
        breaking = [case for case in self.cases if case.ratio > 1 + TOLERANCE]
        return min(breaking, key=lambda case: math.prod(case.sizes.values()), default=None)

    def evidence(self) -> dict[str, object]:
        """The fields of a claim, as JSON values: whether the bound holds, by how much, and where."""
        broken = self.counter_example
        return {
            "holds": self.holds,
            "margin": self.margin,
            "tightest": self.tightest.record(),
            "counter_example": None if broken is None else broken.record(),
            "searched": self.searched,
        }

    def at(self, **sizes: int) -> float:
        """Largest ratio over the matching sizes, e.g. `check.at(n=2)`; raises ValueError if none match."""
        matching = [case.ratio for case in self.cases if sizes.items() <= dict(case.sizes).items()]
        if not matching:
            raise ValueError(f"sizes={sizes}: none of the searched sizes of {self.bound} match")
        return max(matching)


@dataclass(frozen=True)
class Budget:
    """How hard to search: pairs (n, d) for `size_grid`, points and ascent steps per size, one search per seed."""

    sizes: Sequence[Sequence[int]]
    trials: int
    ascent_steps: int
    seeds: Sequence[int]

    def attack(self, *bounds: Bound) -> BoundCheck:
        """`search` every bound once per seed; the merged check holds if all do.

        Raises ValueError without bounds or seeds.
        """
        if not bounds or not self.seeds:
            raise ValueError(f"bounds={bounds}, seeds={list(self.seeds)}: needs at least one of each")
        sizes = size_grid(self.sizes)
        checks = [
            search(bound, sizes, self.trials, self.ascent_steps, torch.Generator().manual_seed(seed))
            for bound in bounds
            for seed in self.seeds
        ]
        cases = tuple(case for check in checks for case in check.cases)
        return BoundCheck(", ".join(bound.name for bound in bounds), cases, sum(check.searched for check in checks))


def _to_digits(tensor: Tensor) -> Tensor:
    """Every entry rounded to `DIGITS` significant decimal digits."""
    return tensor.clone().apply_(lambda value: float(f"{value:.{DIGITS}g}"))


def _shortened(bound: Bound, case: Case) -> Case:
    """The case at inputs of `DIGITS` digits if they do as well or still break the bound tenfold, else the case itself.

    A reader can type in a short counter-example. A counter-example that relies on cancellation keeps all its digits.
    """
    inputs = {name: _to_digits(tensor) for name, tensor in case.inputs.items()}
    ratio = bound.ratio_at(inputs)
    as_good = math.isfinite(ratio) and ratio >= min(0.999 * case.ratio, 10)
    return replace(case, ratio=ratio, inputs=inputs) if as_good else case


def _normal(shape: Sequence[int], generator: Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _scaled(shape: Sequence[int], generator: Generator) -> Tensor:
    """Normal entries times one factor 10^U(−3, 3) per case."""
    exponent = 6 * torch.rand(shape[0], generator=generator, dtype=torch.float64) - 3
    return _normal(shape, generator) * (10**exponent).reshape(-1, *[1] * (len(shape) - 1))


def _equal_rows(shape: Sequence[int], generator: Generator) -> Tensor:
    if len(shape) < 3:
        return _scaled(shape, generator)
    return _scaled([shape[0], 1, *shape[2:]], generator).expand(*shape).clone()


def _one_hot(shape: Sequence[int], generator: Generator) -> Tensor:
    hot = torch.randint(shape[-1], shape[:-1], generator=generator)
    return torch.nn.functional.one_hot(hot, shape[-1]).to(torch.float64)


def _aligned(shape: Sequence[int], generator: Generator) -> Tensor:
    """Every vector is ± the vector of ones, so vectors of different variables are parallel."""
    return _normal([*shape[:-1], 1], generator).sign().expand(*shape).clone()


RANDOM_STARTS: dict[str, Starts] = {
    "normal": _normal,
    "scaled": _scaled,
    "heavy": lambda shape, generator: _normal(shape, generator) ** 3,  # a few large values among small ones
}
STRUCTURED_STARTS: dict[str, Starts] = {
    "equal rows": _equal_rows,
    "one-hot": _one_hot,
    "two values": lambda shape, generator: _normal(shape, generator).sign(),
    "near zero": lambda shape, generator: 1e-6 * _normal(shape, generator).abs(),
    "aligned": _aligned,
}


def search(
    bound: Bound, sizes: Sequence[Sizes], trials: int, ascent_steps: int, generator: Generator, structured: bool = True
) -> BoundCheck:
    """Try to break `bound` at each of `sizes`.

    `trials` points per size are spread evenly over the kinds of start, at least one each; `structured` adds the
    structured kinds and "mixed", which draws every variable from its own kind. The best `CLIMBERS` points then climb
    log(ratio) for `ascent_steps` steps of Adam. Points with a ratio that is not finite (0/0 at the edge of the
    domain) are discarded. Raises ValueError for an empty budget.
    """
    check_count("trials", trials)
    check_count("ascent_steps", ascent_steps, least=0)
    if not sizes:
        raise ValueError(f"sizes={list(sizes)}: the search of {bound.name} needs at least one size")
    cases, searched, used = [], 0, set("".join(bound.shapes.values()))
    for size in sizes:
        labels, points = _starting_points(bound, size, trials, structured, generator)
        with torch.no_grad():
            ratios = _finite(bound.ratio(points))
        best = torch.topk(ratios, min(CLIMBERS, len(labels))).indices
        climbed_ratio, climbed = _climb(bound, {k: v[best] for k, v in points.items()}, ascent_steps)
        winner = int(climbed_ratio.argmax())
        case = Case(
            sizes={letter: count for letter, count in size.items() if letter in used},
            ratio=float(climbed_ratio[winner]),
            start=labels[int(best[winner])],
            inputs={name: tensor[winner].clone() for name, tensor in climbed.items()},
        )
        cases.append(_shortened(bound, case))
        searched += len(labels) + ascent_steps * len(best)
    return BoundCheck(bound.name, tuple(cases), searched)


def _starting_points(
    bound: Bound, size: Sizes, trials: int, structured: bool, generator: Generator
) -> tuple[list[str], dict[str, Tensor]]:
    kinds = RANDOM_STARTS | STRUCTURED_STARTS if structured else RANDOM_STARTS
    per_kind = max(1, trials // (len(kinds) + structured))
    labels: list[str] = []
    parts: dict[str, list[Tensor]] = {name: [] for name in bound.shapes}
    for kind, start in kinds.items():
        labels += [kind] * per_kind
        for name, letters in bound.shapes.items():
            parts[name].append(start([per_kind, *(size[letter] for letter in letters)], generator))
    if structured:
        # Each variable of a mixed case takes its point from its own kind.
        labels += ["mixed"] * per_kind
        for name in bound.shapes:
            pool = torch.cat(parts[name])
            parts[name].append(pool[torch.randint(len(pool), (per_kind,), generator=generator)])
    return labels, {name: torch.cat(tensors) for name, tensors in parts.items()}


def _finite(ratio: Tensor) -> Tensor:
    return torch.where(torch.isfinite(ratio), ratio, -math.inf)


def _climb(bound: Bound, points: dict[str, Tensor], steps: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Adam on log(ratio), in units of each variable's rms; returns the best ratio and point of every climber."""
    units = {
        name: tensor.square().flatten(1).mean(1).sqrt().clamp(min=1e-30).reshape(-1, *[1] * (tensor.ndim - 1))
        for name, tensor in points.items()
    }
    free = {name: (tensor / units[name]).requires_grad_() for name, tensor in points.items()}
    optimiser = torch.optim.Adam(list(free.values()), lr=0.1)
    best = {name: tensor.clone() for name, tensor in points.items()}
    best_ratio = filled(-math.inf, len(next(iter(points.values()))))
    for step in range(steps + 1):
        now = {name: tensor * units[name] for name, tensor in free.items()}
        ratio = bound.ratio(now)
        with torch.no_grad():
            ratio_now = _finite(ratio)
            better = ratio_now > best_ratio
            best_ratio = torch.where(better, ratio_now, best_ratio)
            for name, tensor in now.items():
                best[name][better] = tensor.detach()[better]
        if step == steps:
            break
        # The learning rate falls from 0.1 as a cosine: large steps leave flat regions, small ones settle on the ridge.
        optimiser.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / steps)) + 1e-4
        optimiser.zero_grad()
        (-ratio.clamp(min=1e-300).log().sum()).backward()
        for tensor in free.values():
            if tensor.grad is not None:
                tensor.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimiser.step()
    return best_ratio, best
