"""What one training run is, as typed fields: model, data, optimiser, length, seed.

Two runs with equal configs, data and code are the same run: the store (``training.store``) keeps one of them. What
does not change a run's result, such as how often a checkpoint is written, is no part of it.
"""

import math
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.strict import from_plain

Task = Literal["causal", "masked"]
Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "onecycle"]
Precision = Literal["fp32", "bf16", "fp16"]
Gradients = Literal["none", "norms"]


class RunRefused(ValueError):
    """A run that this machine or this data does not allow, in one line: ``field=value: rule``."""


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: must be greater than 0 and finite")


def _not_negative(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value!r}: must not be negative, and finite")


def _one_of(owner: object, name: str, allowed: Any) -> None:
    value, options = getattr(owner, name), get_args(allowed)
    if value not in options:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, options))}")


@dataclass(frozen=True)
class DataConfig:
    """Which text, cut how."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    corpus: str = "wikipedia"
    vocabulary: str = "bytes"  # "bytes", or "bpe-N" for N pieces
    task: Task = "causal"
    length: int = 128  # tokens per sequence
    batch_size: int = 8  # sequences per optimiser step, over all micro-batches and processes together
    masking: MaskingConfig = field(default_factory=MaskingConfig)  # read by the masked task

    def __post_init__(self) -> None:
        _one_of(self, "task", Task)
        _positive(self, "length", "batch_size")
        if self.task == "causal" and self.masking != MaskingConfig():
            raise ValueError(f"masking={self.masking!r}: only task='masked' masks")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its schedule. ``warmup`` and the schedule count optimiser steps.

    The weight decay is decoupled (Loshchilov & Hutter, 2019): each step takes rate · ``weight_decay`` · weight off the
    weight. The ``adam`` of fairseq, with which the paper's models were trained, does the same. What the schedules are
    is said in ``training.schedules``.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    learning_rate: float = 5e-4  # Table 13; the schedule's highest rate
    schedule: Schedule = "inverse-sqrt"
    warmup: int = 0
    warmup_start: float = 0.0  # rate at which the warm-up begins; Table 13's runs: 1e-7
    end_learning_rate: float = 0.0  # rate at which "linear" and "cosine" end
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 0.0  # largest norm of the whole gradient; 0 switches it off
    clip_value: float = 0.0  # largest absolute entry of the gradient; 0 switches it off

    def __post_init__(self) -> None:
        _one_of(self, "schedule", Schedule)
        _positive(self, "learning_rate", "eps")
        _not_negative(self, "warmup", "warmup_start", "end_learning_rate", "weight_decay", "clip_norm", "clip_value")
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas={self.betas!r}: both must be in [0, 1)")
        for name in ("warmup_start", "end_learning_rate"):
            if getattr(self, name) > self.learning_rate:
                raise ValueError(f"{name}={getattr(self, name)!r}: exceeds learning_rate={self.learning_rate!r}")
        if self.warmup_start and (not self.warmup or self.schedule == "onecycle"):
            raise ValueError(f"warmup_start={self.warmup_start!r}: needs a warm-up, and onecycle has its own start")
        if self.end_learning_rate and self.schedule not in ("linear", "cosine"):
            raise ValueError(f"end_learning_rate={self.end_learning_rate!r}: only 'linear' and 'cosine' end at a rate")
        if self.clip_norm and self.clip_value:
            raise ValueError(f"clip_value={self.clip_value!r}: clip by norm or by value, not both")


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
    waypoints: tuple[int, ...] = ()  # further steps after which validation is measured; 0: before the first
    accumulate: int = 1  # micro-batches that one optimiser step is cut into, to fit memory
    precision: Precision = "fp32"  # of the matrix products; weights, norms and losses are fp32 in each
    gradients: Gradients = "none"  # "norms": record the statistics of training.gradient_statistics

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in ".-_" for c in self.name):
            raise ValueError(f"name={self.name!r}: must be letters, digits, '.', '-' or '_'")
        _not_negative(self, "steps", "seed")
        _positive(self, "evaluations", "validation_windows", "accumulate")
        _one_of(self, "precision", Precision)
        _one_of(self, "gradients", Gradients)
        if not all(0 <= w <= self.steps for w in self.waypoints) or any(b <= a for a, b in pairwise(self.waypoints)):
            raise ValueError(f"waypoints={self.waypoints!r}: must be rising steps between 0 and steps={self.steps}")
        if self.data.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate!r}: must divide data.batch_size={self.data.batch_size}")
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
