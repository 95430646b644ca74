"""What one training run is, as typed fields: model, data, optimiser, length, seed.

Two runs with equal configs, data and code are the same run: the store (``training.store``) keeps one of them.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from transnormer_lib.models.config import ModelConfig
from transnormer_lib.strict import from_plain

Task = Literal["causal", "masked"]
Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt"]


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            raise ValueError(f"{name}={value!r}: must be greater than 0")


@dataclass(frozen=True)
class DataConfig:
    """Which text, cut how."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    corpus: str = "wikipedia"
    vocabulary: str = "bytes"  # "bytes", or "bpe-N" for N pieces
    task: Task = "causal"
    length: int = 128  # tokens per sequence
    batch_size: int = 8  # sequences per step

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise ValueError(f"task={self.task!r}: must be one of {', '.join(map(repr, get_args(Task)))}")
        _positive(self, "length", "batch_size")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its schedule. ``warmup`` and the schedule count optimiser steps."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    learning_rate: float = 5e-4  # Table 13
    schedule: Schedule = "inverse-sqrt"
    warmup: int = 0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 0.0  # largest norm of the whole gradient; 0 switches clipping off

    def __post_init__(self) -> None:
        if self.schedule not in get_args(Schedule):
            raise ValueError(f"schedule={self.schedule!r}: must be one of {', '.join(map(repr, get_args(Schedule)))}")
        _positive(self, "learning_rate", "eps")
        if self.warmup < 0:
            raise ValueError(f"warmup={self.warmup!r}: must not be negative")
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas={self.betas!r}: both must be in [0, 1)")
        for name in ("weight_decay", "clip_norm"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: must not be negative")


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    name: str  # readable, used in the run's folder; letters, digits, dot, dash and underscore
    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    steps: int  # optimiser steps; 0 keeps the initial weights
    seed: int  # fixes initial weights, the order of the data and dropout
    evaluations: int = 1  # how often validation is measured, evenly spread, the last time at the end
    validation_windows: int = 64  # sequences of data.length that one evaluation reads

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in ".-_" for c in self.name):
            raise ValueError(f"name={self.name!r}: must be letters, digits, '.', '-' or '_'")
        if self.steps < 0:
            raise ValueError(f"steps={self.steps!r}: must not be negative")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed!r}: must not be negative")
        _positive(self, "evaluations", "validation_windows")
        if self.data.length > self.model.max_length:
            raise ValueError(f"data.length={self.data.length}: exceeds model.max_length={self.model.max_length}")
        if (self.data.task == "causal") != (self.model.kind == "decoder"):
            raise ValueError(
                f"data.task={self.data.task!r}: a decoder trains on 'causal', an encoder on 'masked';"
                f" model.kind={self.model.kind!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, the inverse of :func:`run_config`."""
        return asdict(self)


def run_config(values: dict[str, Any]) -> RunConfig:
    """A config from plain values (YAML, JSON), strictly: unknown fields and wrong types are refused.

    Raises ``ValueError`` with one line naming field, value and rule.
    """
    return from_plain(RunConfig, values)
