"""A bound as an object, and the search that tries to break it.

A `Bound` gives the ratio of its left side to its right side; it holds if no input brings the ratio above 1.
`search` looks for such inputs: random points over six orders of magnitude, structured points (one-hot, equal
rows, two values, nearly zero, aligned), and gradient ascent of log(ratio) from the best of both. It can show
that a bound breaks and how close one comes; it cannot prove that a bound holds.

Inputs are batches: a variable of shape "nd" is a tensor [B, n, d]. Everything is float64, on the CPU, and a
function of the generator that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

Inputs = Mapping[str, Tensor]
Sizes = Mapping[str, int]
Starts = Callable[[Sequence[int], Generator], Tensor]

# Rounding of a few float64 operations; a published bound that breaks by less is reported as holding.
TOLERANCE = 1e-9
# Decimal digits of the inputs that a check reports.
DIGITS = 6


def size_grid(pairs: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    """Sizes for `search` from pairs (n, d) of sequence length and width.

    The letters that only Appendix D needs follow: r = n + 1 rows, h = d + 1 hidden units, m ≥ 2 classes.
    """
    for pair in pairs:
        if len(pair) != 2 or min(pair) < 1:
            raise ValueError(f"sizes={list(pair)}: each size must be a pair [n, d] of positive integers")
    return [{"n": n, "d": d, "r": n + 1, "h": d + 1, "m": max(2, n)} for n, d in pairs]


@dataclass(frozen=True)
class Bound:
    """An inequality left ≤ right over free real variables.

    `shapes` maps a variable to the letters of its axes ("nd"); `ratio` maps a batch of inputs to left/right,
    shape [B]; `extremal`, where known, maps sizes to inputs (without the batch axis) at which the ratio
    reaches its supremum.
    """

    name: str
    shapes: Mapping[str, str]
    ratio: Callable[[Inputs], Tensor]
    extremal: Callable[[Sizes], dict[str, Tensor]] | None = None

    def ratio_at(self, inputs: Inputs) -> float:
        """The ratio of one case, its tensors without the batch axis."""
        return float(self.ratio({name: tensor[None] for name, tensor in inputs.items()})[0])


@dataclass(frozen=True)
class Case:
    """The best case found at one size: its ratio, the kind of start it came from, and its inputs."""

    sizes: Sizes
    ratio: float
    start: str
    inputs: Inputs

    def record(self, limit: int = 64) -> dict[str, object]:
        """The case as JSON values, its inputs exact.

        Inputs of more than `limit` numbers are left out; sizes and start stay. Inputs that need more than
        `DIGITS` digits become text, so that nothing downstream rounds them.
        """
        inputs: dict[str, object] = {}
        if sum(tensor.numel() for tensor in self.inputs.values()) <= limit:
            for name, tensor in self.inputs.items():
                exact = torch.equal(_to_digits(tensor), tensor)
                inputs[name] = tensor.tolist() if exact else str(tensor.tolist())
        return {"sizes": dict(self.sizes), "ratio": self.ratio, "start": self.start, "inputs": inputs}


@dataclass(frozen=True)
class BoundCheck:
    """What a search found: one `Case` per size, and how many points were tried in all."""

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
        """1 − ratio: how far the bound is from breaking, 0 where it is attained, negative where it breaks."""
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
        """What a claim needs of the check, as JSON values: does it hold, by how much, and where."""
        broken = self.counter_example
        return {
            "holds": self.holds,
            "margin": self.margin,
            "tightest": self.tightest.record(),
            "counter_example": None if broken is None else broken.record(),
            "searched": self.searched,
        }

    def at(self, **sizes: int) -> float:
        """Largest ratio found over the sizes that match, e.g. `check.at(n=2)`."""
        matching = [case.ratio for case in self.cases if sizes.items() <= dict(case.sizes).items()]
        if not matching:
            raise ValueError(f"sizes={sizes}: none of the searched sizes of {self.bound} match")
        return max(matching)


def merged(*checks: BoundCheck) -> BoundCheck:
    """Several checks as one that holds if they all do: one bound under several seeds, or several kernels."""
    if not checks:
        raise ValueError("checks=(): needs at least one check to merge")
    names = list(dict.fromkeys(check.bound for check in checks))
    cases = tuple(case for check in checks for case in check.cases)
    return BoundCheck(", ".join(names), cases, sum(check.searched for check in checks))


@dataclass(frozen=True)
class Budget:
    """How hard to search: pairs (n, d) for `size_grid`, points and ascent per size, one run per seed."""

    sizes: Sequence[Sequence[int]]
    trials: int
    ascent_steps: int
    seeds: Sequence[int]

    def attack(self, *bounds: Bound) -> BoundCheck:
        """`search` each of `bounds` once per seed, with structured starts, and merge what was found."""
        if not self.seeds:
            raise ValueError(f"seeds={list(self.seeds)}: needs at least one seed")
        sizes = size_grid(self.sizes)
        checks = [
            search(
                bound,
                sizes,
                trials=self.trials,
                ascent_steps=self.ascent_steps,
                generator=torch.Generator().manual_seed(seed),
            )
            for bound in bounds
            for seed in self.seeds
        ]
        return merged(*checks)


def _to_digits(tensor: Tensor) -> Tensor:
    """Every entry rounded to `DIGITS` significant decimal digits."""
    flat = [float(f"{value:.{DIGITS}g}") for value in tensor.flatten().tolist()]
    return torch.tensor(flat, dtype=tensor.dtype).reshape(tensor.shape)


def _shortened(bound: Bound, case: Case) -> Case:
    """The case at inputs of `DIGITS` digits, where these do as well or still break the bound tenfold.

    A short counter-example can be typed in by a reader. One that lives from cancellation keeps its digits.
    """
    inputs = {name: _to_digits(tensor) for name, tensor in case.inputs.items()}
    ratio = bound.ratio_at(inputs)
    if math.isfinite(ratio) and ratio >= min(0.999 * case.ratio, 10):
        return Case(case.sizes, ratio, case.start, inputs)
    return case


def _normal(shape: Sequence[int], generator: Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _scaled(shape: Sequence[int], generator: Generator) -> Tensor:
    """Normal entries times one factor 10^U(−3, 3) per case."""
    exponent = 6 * torch.rand(shape[0], generator=generator, dtype=torch.float64) - 3
    return _normal(shape, generator) * (10**exponent).reshape(-1, *[1] * (len(shape) - 1))


def _heavy(shape: Sequence[int], generator: Generator) -> Tensor:
    """Cubes of normal entries: a few large values among small ones."""
    return _normal(shape, generator) ** 3


def _equal_rows(shape: Sequence[int], generator: Generator) -> Tensor:
    if len(shape) < 3:
        return _scaled(shape, generator)
    return _scaled([shape[0], 1, *shape[2:]], generator).expand(*shape).clone()


def _one_hot(shape: Sequence[int], generator: Generator) -> Tensor:
    hot = torch.randint(shape[-1], shape[:-1], generator=generator)
    return torch.nn.functional.one_hot(hot, shape[-1]).to(torch.float64)


def _two_values(shape: Sequence[int], generator: Generator) -> Tensor:
    return _normal(shape, generator).sign()


def _near_zero(shape: Sequence[int], generator: Generator) -> Tensor:
    return 1e-6 * _normal(shape, generator).abs()


def _aligned(shape: Sequence[int], generator: Generator) -> Tensor:
    """Every vector is ± the vector of ones, so vectors of different variables are parallel."""
    signs = _normal([*shape[:-1], 1], generator).sign()
    return signs.expand(*shape).clone()


RANDOM_STARTS: dict[str, Starts] = {"normal": _normal, "scaled": _scaled, "heavy": _heavy}
STRUCTURED_STARTS: dict[str, Starts] = {
    "equal rows": _equal_rows,
    "one-hot": _one_hot,
    "two values": _two_values,
    "near zero": _near_zero,
    "aligned": _aligned,
}


def search(
    bound: Bound,
    sizes: Sequence[Sizes],
    *,
    trials: int,
    ascent_steps: int,
    generator: Generator,
    structured: bool = True,
    climbers: int = 16,
) -> BoundCheck:
    """Try to break `bound` at each of `sizes`.

    `trials` points per size are spread evenly over the kinds of start (at least one each); with `structured`
    one more kind, "mixed", draws every variable from a kind of its own. The best `climbers` points then climb
    log(ratio) for `ascent_steps` steps of Adam. Points where the ratio is not finite (0/0 at the edge of the
    domain) are discarded. Raises ValueError for an empty budget.
    """
    if trials < 1 or climbers < 1:
        raise ValueError(f"trials={trials}, climbers={climbers}: both must be at least 1")
    if ascent_steps < 0:
        raise ValueError(f"ascent_steps={ascent_steps}: must not be negative")
    if not sizes:
        raise ValueError(f"sizes={list(sizes)}: the search of {bound.name} needs at least one size")
    cases: list[Case] = []
    searched = 0
    used = set("".join(bound.shapes.values()))
    for size in sizes:
        labels, points = _starting_points(bound, size, trials, structured, generator)
        with torch.no_grad():
            ratios = _finite(bound.ratio(points))
        best = torch.topk(ratios, min(climbers, len(labels))).indices
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
    kinds = dict(RANDOM_STARTS, **STRUCTURED_STARTS) if structured else dict(RANDOM_STARTS)
    per_kind = max(1, trials // (len(kinds) + structured))
    labels: list[str] = []
    parts: dict[str, list[Tensor]] = {name: [] for name in bound.shapes}
    for kind, start in kinds.items():
        labels += [kind] * per_kind
        for name, letters in bound.shapes.items():
            parts[name].append(start([per_kind, *(size[letter] for letter in letters)], generator))
    if structured:
        # A mixed batch: each variable takes its points from a kind of its own, case by case.
        labels += ["mixed"] * per_kind
        for name in bound.shapes:
            pool = torch.cat(parts[name])
            parts[name].append(pool[torch.randint(len(pool), (per_kind,), generator=generator)])
    return labels, {name: torch.cat(tensors) for name, tensors in parts.items()}


def _finite(ratio: Tensor) -> Tensor:
    return torch.where(torch.isfinite(ratio), ratio, torch.full_like(ratio, -math.inf))


def _climb(bound: Bound, points: dict[str, Tensor], steps: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Adam on log(ratio) in units of each variable's own size; returns the best point of every climber."""
    units = {
        name: tensor.square().flatten(1).mean(1).sqrt().clamp(min=1e-30).reshape(-1, *[1] * (tensor.ndim - 1))
        for name, tensor in points.items()
    }
    free = {name: (tensor / units[name]).requires_grad_() for name, tensor in points.items()}
    optimiser = torch.optim.Adam(list(free.values()), lr=0.1)
    best = {name: tensor.clone() for name, tensor in points.items()}
    best_ratio = torch.full((len(next(iter(points.values()))),), -math.inf, dtype=torch.float64)
    for step in range(steps + 1):
        now = {name: free[name] * units[name] for name in free}
        ratio = bound.ratio(now)
        with torch.no_grad():
            ratio_now = _finite(ratio)
            better = ratio_now > best_ratio
            best_ratio = torch.where(better, ratio_now, best_ratio)
            for name, tensor in now.items():
                best[name][better] = tensor.detach()[better]
        if step == steps:
            break
        # A cosine from 0.1 down: large steps leave flat regions, small ones settle on the ridge.
        optimiser.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / steps)) + 1e-4
        optimiser.zero_grad()
        (-ratio.clamp(min=1e-300).log().sum()).backward()
        for tensor in free.values():
            if tensor.grad is not None:
                tensor.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimiser.step()
    return best_ratio, best
