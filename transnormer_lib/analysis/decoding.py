"""What one more token costs a decoder at a given position: time, and numbers held in its state."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

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
    the cost. Raises ValueError for a position that leaves a model no room for ``steps`` more tokens.
    """
    for name, model in models.items():
        room = model.config.max_length - steps * rounds - 1
        if max(positions) > room or min(positions) < 1:
            raise ValueError(f"positions={list(positions)!r}: must be between 1 and {room} for {name!r}")
    costs = []
    generator = torch.Generator().manual_seed(seed)
    for position in positions:
        vocabulary = min(model.config.vocab_size for model in models.values())
        ids_BN = torch.randint(vocabulary, (batch, position), generator=generator)
        states = {name: model.eval().prefill(ids_BN)[1] for name, model in models.items()}
        for name, model in models.items():  # the first step allocates
            _, states[name] = model.step(ids_BN[:, -1], states[name])
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(rounds):
            for name, model in models.items():
                times = []
                for _ in range(steps):
                    started = time.perf_counter()
                    _, states[name] = model.step(ids_BN[:, -1], states[name])
                    times.append(time.perf_counter() - started)
                seconds[name].append(statistics.median(times))
        costs += [StepCost(name, position, tuple(seconds[name]), state_numbers(states[name], batch)) for name in models]
    return costs
