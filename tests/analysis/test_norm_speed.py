"""Timing norms side by side: turns, medians and the operations that every implementation needs."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transnormer_lib.analysis import norm_speed
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.attention.norms import build_norm

NORMS = ("rms", "layer", "scale")
each_norm = pytest.mark.parametrize("norm", NORMS)


class CountingEntries(TorchDispatchMode):
    """Counts one operation per entry of the largest input: products and sums alike."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.operations = size, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        largest = max((a.numel() for a in args if isinstance(a, Tensor)), default=0)
        self.operations += largest if largest == self.size else 0  # what is done once per token does not count
        return func(*args, **(kwargs or {}))


def by_hand(norm: str, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """y and the gradient of x, written out in as few passes as possible, for one token [d]."""
    d = x.numel()
    centred = x - x.sum() / d if norm == "layer" else x
    r = ((centred * centred).sum() / d).rsqrt()
    y = centred * r
    inner = (g * y).sum() / d
    mean_g = g.sum() / d if norm == "layer" else None
    rest = g - y * inner
    return y, (rest if mean_g is None else rest - mean_g) * r


@each_norm
def test_the_floor_is_the_count_of_a_pass_that_agrees_with_autograd(norm: str) -> None:
    heads, head_dim = 2, 8
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(heads * head_dim, generator=generator, dtype=torch.float64) for _ in range(2))
    with CountingEntries(x.numel()) as counter:
        y, gradient = by_hand(norm, x, g)
    variable = x.clone().requires_grad_()
    expected = build_norm(norm, x.numel(), 1e-12)(variable)
    expected.backward(g)
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(gradient, variable.grad)
    counted = norm_speed.cost(norm, heads=heads, head_dim=head_dim, length=16).norm_operations
    assert counted == counter.operations


def test_the_centred_norm_is_a_layer_norm() -> None:
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(norm_speed.Centred(16, 1e-8)(x), build_norm("layer", 16, 1e-8)(x))


@each_norm
def test_the_norm_is_a_smaller_share_of_a_wider_head(norm: str) -> None:
    costs = [norm_speed.cost(norm, heads=8, head_dim=width, length=512) for width in (16, 64)]
    shares = [cost.norm_operations / cost.attention_operations for cost in costs]
    assert shares[1] < shares[0] < 1
    assert costs[1].norm_bytes == 4 * costs[0].norm_bytes


def ticking(script: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], None]]:
    """Calls that each take the next duration of their script, on a fake clock."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def call(durations: "itertools.chain[float]") -> Callable[[], None]:
        def run() -> None:
            now[0] += next(durations)

        return run

    return {name: call(itertools.chain([99.0], durations)) for name, durations in script.items()}  # 99: the warm-up


def test_a_round_is_the_median_of_its_repetitions_without_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ticking({"a": [1, 5, 2, 7, 7, 9], "b": [3, 3, 4, 1, 1, 8]}, monkeypatch)
    assert interleaved(calls, rounds=2, repeats=3) == {"a": [2, 7], "b": [3, 1]}


def test_calls_take_turns_and_each_goes_first_as_often() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    interleaved(calls, rounds=1, repeats=6)
    turns = [tuple(order[i : i + 3]) for i in range(3, len(order), 3)]
    assert {tuple(sorted(turn)) for turn in turns} == {("a", "b", "c")}
    assert sorted(turn[0] for turn in turns) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("norm_only", [False, True], ids=["attention", "norm-only"])
def test_every_norm_has_one_time_per_round(norm_only: bool) -> None:
    size: dict[str, int] = {"batch": 1, "heads": 2, "length": 8, "head_dim": 4}
    norms = (*NORMS, "layer-written")
    found = norm_speed.seconds_per_round(norms, rounds=3, repeats=2, norm_only=norm_only, **size)
    assert {name: len(seconds) for name, seconds in found.items()} == dict.fromkeys(norms, 3)
    assert min(min(seconds) for seconds in found.values()) > 0


def test_a_bad_argument_is_named_with_its_rule() -> None:
    size = {"batch": 1, "heads": 2, "length": 8, "head_dim": 4}
    with pytest.raises(ValueError, match="norm='batch': must be one of 'rms', 'layer', 'layer-written', 'scale'"):
        norm_speed.seconds_per_round(["batch"], rounds=1, repeats=1, **size)
    for argument in ("rounds", "repeats"):
        with pytest.raises(ValueError, match=f"{argument}=0: must be a whole number of at least 1"):
            norm_speed.seconds_per_round(["rms"], **{**size, "rounds": 1, "repeats": 1, argument: 0})
