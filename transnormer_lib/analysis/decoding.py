"""Decoding token by token: its difference from the parallel form, and the cost of one more token.

Shapes: B sequences, N length, V vocabulary.
"""

import copy
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.checks import check_count
from transnormer_lib.models.language_model import LanguageModel, ModelState
from transnormer_lib.models.stepper import Stepper
from transnormer_lib.progress import tracked


@dataclass(frozen=True)
class StepCost:
    """The cost of decoding one token per sequence after ``position`` tokens."""

    model: str
    position: int
    seconds: tuple[float, ...]  # one per round; each is the median over the round's steps
    state_numbers: int  # numbers held between two tokens, per sequence, without positions

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@torch.no_grad()
def recurrent_difference(model: LanguageModel, ids_BN: Tensor) -> float:
    """Largest difference between the logits of the parallel form and of decoding, both in float64.

    Decoding runs twice: from the empty state over all N tokens, and from the state that ``prefill`` makes of the first
    half. Works on a copy of the model. Raises ValueError for fewer than two tokens.
    """
    if ids_BN.ndim != 2 or ids_BN.shape[1] < 2:
        raise ValueError(f"ids_BN.shape={tuple(ids_BN.shape)}: must be [B, N] with N at least 2")
    exact = copy.deepcopy(model).double().eval()
    parallel_BNV = exact(ids_BN)
    half = ids_BN.shape[1] // 2
    logits_BV, after_half = exact.prefill(ids_BN[:, :half])
    largest = float((logits_BV - parallel_BNV[:, half - 1]).abs().max())
    for start, states in ((0, exact.initial_state(ids_BN.shape[0])), (half, after_half)):
        for position in range(start, ids_BN.shape[1]):
            logits_BV, states = exact.step(ids_BN[:, position], states)
            largest = max(largest, float((logits_BV - parallel_BNV[:, position]).abs().max()))
    return largest


def state_numbers(states: ModelState, batch: int) -> int:
    """Numbers per sequence in the states; a cache's spare room counts, because it takes memory."""
    return sum(tensor.numel() for state in states for tensor in state.values() if tensor.ndim) // batch


@torch.no_grad()
def step_costs(
    models: Mapping[str, LanguageModel], positions: Sequence[int], *, batch: int = 1, steps: int = 16, rounds: int = 5
) -> list[StepCost]:
    """Measure every model at every position: read ``position`` random tokens at once, then time single steps.

    The models take turns in every round, so a drift of the machine affects all of them. Raises ValueError without
    models or positions, for a count below 1, and for a position that leaves a model no room for all steps.
    """
    if not models or not positions:
        raise ValueError(f"models={list(models)}, positions={list(positions)}: needs at least one of each")
    for name, value in (("batch", batch), ("steps", steps), ("rounds", rounds)):
        check_count(name, value)
    for name, model in models.items():
        room = model.config.max_length - steps * rounds - 1
        if max(positions) > room or min(positions) < 1:
            raise ValueError(f"positions={list(positions)!r}: must be between 1 and {room} for {name!r}")
    costs = []
    generator = torch.Generator().manual_seed(0)
    vocabulary = min(model.config.vocab_size for model in models.values())
    for position in tracked(positions, "position"):
        ids_BN = torch.randint(vocabulary, (batch, position), generator=generator)
        steppers = {name: Stepper(model.eval()) for name, model in models.items()}
        states = {name: model.prefill(ids_BN)[1] for name, model in models.items()}
        for name, stepper in steppers.items():  # the first step allocates
            _, states[name] = stepper.step(ids_BN[:, -1], states[name])
        held = {name: state_numbers(states[name], batch) for name in models}
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(rounds):
            for name, stepper in steppers.items():
                times = []
                for _ in range(steps):
                    started = time.perf_counter()
                    _, states[name] = stepper.step(ids_BN[:, -1], states[name])
                    times.append(time.perf_counter() - started)
                seconds[name].append(statistics.median(times))
        costs += [StepCost(name, position, tuple(seconds[name]), held[name]) for name in models]
    return costs
