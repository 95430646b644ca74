"""Decoding token by token: whether it computes what the parallel form does, and what one more token costs.

Shapes: B sequences, N length, V vocabulary.
"""

import copy
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.models.language_model import LanguageModel, ModelState


@dataclass(frozen=True)
class StepCost:
    """The cost of decoding one token per sequence after ``position`` tokens."""

    model: str
    position: int
    seconds: tuple[float, ...]  # one per round; each is the median over the round's steps
    state_numbers: int  # numbers held between two tokens, per sequence, positions not counted

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@torch.no_grad()
def recurrent_difference(model: LanguageModel, ids_BN: Tensor) -> float:
    """Largest difference between the logits of the parallel form and of decoding, both in float64.

    Decoding runs twice: from the empty state over all N tokens, and from the state after the first half, which
    ``prefill`` makes. The model itself is left alone. Raises ValueError for fewer than two tokens.
    """
    if ids_BN.ndim != 2 or ids_BN.shape[1] < 2:
        raise ValueError(f"ids_BN.shape={tuple(ids_BN.shape)}: must be [B, N] with N at least 2")
    exact = copy.deepcopy(model).double().eval()
    parallel_BNV = exact(ids_BN)
    half, largest = ids_BN.shape[1] // 2, 0.0
    logits_BV, after_half = exact.prefill(ids_BN[:, :half])
    largest = float((logits_BV - parallel_BNV[:, half - 1]).abs().max())
    for start, states in ((0, exact.initial_state(ids_BN.shape[0])), (half, after_half)):
        for position in range(start, ids_BN.shape[1]):
            logits_BV, states = exact.step(ids_BN[:, position], states)
            largest = max(largest, float((logits_BV - parallel_BNV[:, position]).abs().max()))
    return largest


def state_numbers(states: ModelState, batch: int) -> int:
    """Numbers per sequence in the states that are in use; a cache's spare room counts, since it takes memory."""
    return sum(tensor.numel() for state in states for tensor in state.values() if tensor.ndim) // batch


@torch.no_grad()
def step_costs(
    models: Mapping[str, LanguageModel],
    positions: Sequence[int],
    *,
    batch: int = 1,
    steps: int = 16,
    rounds: int = 5,
    seed: int = 0,
) -> list[StepCost]:
    """Measure every model at every position: read so many random tokens at once, then time single steps.

    The models take turns in every round, so that a drift of the machine meets them all. Weights do not matter for
    the cost. Raises ValueError without models or positions, for a number below one, and for a position that leaves a
    model no room for the steps of all rounds.
    """
    _check(models, positions, batch=batch, steps=steps, rounds=rounds)
    costs = []
    generator = torch.Generator().manual_seed(seed)
    vocabulary = min(model.config.vocab_size for model in models.values())
    for position in positions:
        ids_BN = torch.randint(vocabulary, (batch, position), generator=generator)
        states = {name: model.eval().prefill(ids_BN)[1] for name, model in models.items()}
        for name, model in models.items():  # the first step allocates
            _, states[name] = model.step(ids_BN[:, -1], states[name])
        held = {name: state_numbers(states[name], batch) for name in models}
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(rounds):
            for name, model in models.items():
                times = []
                for _ in range(steps):
                    started = time.perf_counter()
                    _, states[name] = model.step(ids_BN[:, -1], states[name])
                    times.append(time.perf_counter() - started)
                seconds[name].append(statistics.median(times))
        costs += [StepCost(name, position, tuple(seconds[name]), held[name]) for name in models]
    return costs


def _check(models: Mapping[str, LanguageModel], positions: Sequence[int], **numbers: int) -> None:
    if not models:
        raise ValueError("models={}: needs at least one model")
    if not positions:
        raise ValueError("positions=[]: needs at least one position")
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name}={value!r}: must be at least 1")
    for name, model in models.items():
        room = model.config.max_length - numbers["steps"] * numbers["rounds"] - 1
        if max(positions) > room or min(positions) < 1:
            raise ValueError(f"positions={list(positions)!r}: must be between 1 and {room} for {name!r}")
