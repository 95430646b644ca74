"""The two remedies as two factors: what attends in the early layers, and what in the late ones.

The paper changes both at once. Here every early mechanism meets every late one in TransNormer's backbone, in decoders,
everything else equal. ``diag/norm`` is TransNormer T2, ``linear/linear`` and ``softmax/softmax`` are its controls.

The effect of a factor is a paired difference: with each seed, the mean loss over the other factor's values with the one
value, minus that with the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from transnormer_lib.choices import Rotary
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import LanguageModelParameters
from transnormer_lib.training.config import RunConfig

# Loss in bits per token by row: one value per seed, in the seeds' order.
Bits = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Parameters(LanguageModelParameters):
    """What is trained. A row is called ``EARLY/LATE``, or ``EARLY/LATE+ROTATION`` if it has one."""

    early: tuple[str, ...]  # mechanisms of the first half of the layers
    late: tuple[str, ...]  # mechanisms of the second half
    alone: tuple[str, ...]  # further pairs: the matched controls, blocks everywhere
    rotations: tuple[Rotary, ...]  # of queries and keys; each with every row
    seeds: tuple[int, ...]  # one run per row and seed
    rates: Mapping[str, float] = field(default_factory=dict)  # a row's own learning rate; else learning_rate


def pairs(parameters: Parameters) -> list[str]:
    """Every early mechanism with every late one, then the further pairs."""
    crossed = [f"{early}/{late}" for early in parameters.early for late in parameters.late]
    return list(dict.fromkeys([*crossed, *parameters.alone]))


def rows(parameters: Parameters) -> list[str]:
    """The rows of every rotation. Raises ValueError for a rate of what is no row."""
    found = [named(pair, rotation) for rotation in parameters.rotations for pair in pairs(parameters)]
    if unknown := sorted(set(parameters.rates) - set(found)):
        raise ValueError(f"rates={unknown[0]!r}: must be a row, one of {', '.join(found)}")
    return found


def named(pair: str, rotation: str) -> str:
    """The name of a pair's row with a rotation."""
    return pair if rotation == "none" else f"{pair}+{rotation}"


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The decoder of a row."""
    pair, _, rotation = row.partition("+")
    return language_models.model(pair, parameters, rotary=rotation or "none")


def run(row: str, seed: int, parameters: Parameters) -> RunConfig:
    """The run of one row with one seed, at the row's own learning rate."""
    own = replace(parameters, learning_rate=parameters.rates.get(row, parameters.learning_rate))
    return language_models.run(row, model(row, parameters), seed, own)


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per row and seed, rows first."""
    return [run(row, seed, parameters) for row, seed in language_models.grid(rows(parameters), parameters.seeds)]


def over_late(bits: Bits, early: str, parameters: Parameters, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of an early mechanism over all late ones."""
    return _means([bits[named(f"{early}/{late}", rotation)] for late in parameters.late])


def over_early(bits: Bits, late: str, parameters: Parameters, rotation: str = "none") -> list[float]:
    """Per seed, the mean loss of a late mechanism over all early ones."""
    return _means([bits[named(f"{early}/{late}", rotation)] for early in parameters.early])


def _means(columns: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*columns, strict=True)]
