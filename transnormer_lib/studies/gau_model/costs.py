"""What the models of the three papers cost: a training step, reading a text, and one more generated token."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from transnormer_lib.analysis import decoding
from transnormer_lib.analysis.decoding import StepCost
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.analysis.seeds import mean
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.flops import training_flops
from transnormer_lib.models.language_model import build_model, count_parameters
from transnormer_lib.progress import tracked
from transnormer_lib.studies.gau_model.runs import GAU, decoder_s, unit

_VOCABULARY = 258  # bytes
_STEPS = 8  # tokens per round, whose median counts


@dataclass(frozen=True)
class CostParameters:
    """The size of the untrained decoders that are timed, one sequence at a time."""

    cost_dim: int  # model width
    cost_heads: int  # attention heads
    cost_layers: int  # layers with a feed-forward part; GAU has twice as many
    cost_block_size: int  # DiagAttention's block
    cost_lengths: tuple[int, ...]  # tokens of a sequence that is trained on or read
    cost_positions: tuple[int, ...]  # tokens before one that is generated
    cost_rounds: int  # rounds, in each of which the models take turns


@dataclass(frozen=True)
class Cost:
    """Seconds per token, one value for each round, of sequences of ``length`` tokens."""

    row: str
    length: int
    training: tuple[float, ...]  # forward, backward, AdamW
    reading: tuple[float, ...]  # forward alone
    flops: float  # of training, per token


def model(row: str, parameters: CostParameters) -> ModelConfig:
    """The decoder of a row at the size of the timing, in the ``paper`` recipe, with room for every position."""
    room = max(*parameters.cost_lengths, max(parameters.cost_positions) + _STEPS * parameters.cost_rounds + 2)
    shape: dict[str, Any] = {
        "dim": parameters.cost_dim,
        "heads": parameters.cost_heads,
        "layers": parameters.cost_layers,
        "block_size": parameters.cost_block_size,
    }
    if row == GAU:
        shape |= {
            "layers": 2 * parameters.cost_layers,
            "norm_placement": "pre",
            **unit(decoder_s(parameters.cost_dim), 0.0),
        }
    return architecture(row, kind="decoder", vocab_size=_VOCABULARY, max_length=room, **shape)


def measure(rows: Sequence[str], parameters: CostParameters) -> list[Cost]:
    """Time every row at every length; the rows take turns."""
    models = {row: build_model(model(row, parameters), seed=0) for row in rows}
    found = []
    for length in tracked(parameters.cost_lengths, "length", parameters.cost_lengths):
        ids = torch.randint(_VOCABULARY, (1, length + 1), generator=torch.Generator().manual_seed(0))
        training = interleaved(
            {row: _training_step(one, ids) for row, one in models.items()}, rounds=parameters.cost_rounds
        )
        for one in models.values():
            one.eval()
        reading = interleaved(
            {row: _reading(one, ids[:, :-1]) for row, one in models.items()}, rounds=parameters.cost_rounds
        )
        for one in models.values():
            one.train()
        for row in rows:
            flops = training_flops(models[row].config, length, 1) / length
            trained, read = (tuple(seconds / length for seconds in of[row]) for of in (training, reading))
            found.append(Cost(row, length, trained, read, flops))
    return found


def _training_step(model: Any, ids: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        model(ids[:, :-1], targets_BN=ids[:, 1:]).backward()
        optimizer.step()

    return step


def _reading(model: Any, ids: torch.Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def read() -> None:
        model(ids)

    return read


def tokens(rows: Sequence[str], parameters: CostParameters) -> list[StepCost]:
    """The cost of one more token of every row at every position."""
    models = {row: build_model(model(row, parameters), seed=0) for row in rows}
    return decoding.step_costs(models, parameters.cost_positions, steps=_STEPS, rounds=parameters.cost_rounds)


def table(
    rows: Sequence[str],
    bits: Mapping[str, Sequence[float]],
    costs: Sequence[Cost],
    tokens: Sequence[StepCost],
    parameters: CostParameters,
) -> list[dict[str, Any]]:
    """One line per row: its loss where it was trained, parameters, and microseconds per token of each kind."""
    lines = []
    for row in rows:
        line: dict[str, Any] = {"model": row, "bits per byte": mean(bits[row]) if row in bits else None}
        line["parameters"] = count_parameters(model(row, parameters))
        for cost in (cost for cost in costs if cost.row == row):
            line[f"training, {cost.length:,}"] = 1e6 * statistics.median(cost.training)
            line[f"reading, {cost.length:,}"] = 1e6 * statistics.median(cost.reading)
        for token in (token for token in tokens if token.model == row):
            line[f"a token after {token.position:,}"] = 1e6 * token.median
        lines.append(line)
    return lines


def by_kind(costs: Sequence[Cost], tokens: Sequence[StepCost]) -> dict[str, dict[str, float]]:
    """Microseconds per token by row, for the longest sequence and the last position, by what is done."""
    length, position = max(cost.length for cost in costs), max(token.position for token in tokens)
    far = [cost for cost in costs if cost.length == length]
    return {
        f"training on {length:,} tokens": {cost.row: 1e6 * statistics.median(cost.training) for cost in far},
        f"reading {length:,} tokens": {cost.row: 1e6 * statistics.median(cost.reading) for cost in far},
        f"one token after {position:,}": {t.model: 1e6 * t.median for t in tokens if t.position == position},
    }


def spoken(prices: Mapping[str, float]) -> str:
    """The prices of one kind in words."""
    return ", ".join(f"{row} {price:.0f} microseconds" for row, price in prices.items())
