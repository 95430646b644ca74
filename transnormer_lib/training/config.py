"""What one training run is, as typed fields: model, data, optimiser, length, seed.

Two runs with equal configs, data and code are the same run: the store (``training.store``) keeps one of them. What
does not change a run's result, such as how often a checkpoint is written, is no part of it. The one exception is
``RunConfig.bands``: they stand here because a recipe and what is expected of it belong together, and the store leaves
them out of a run's identity (:meth:`RunConfig.identity`).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.strict import from_plain

Task = Literal["causal", "masked", "classify"]
Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "onecycle"]
Precision = Literal["fp32", "bf16", "fp16"]
Gradients = Literal["none", "norms"]
Keep = Literal["last", "best"]
EvaluationPart = Literal["spread", "moving"]
BandOf = Literal["train", "validation"]
# What may differ between a model and the one whose weights it starts from: nothing that has a weight below the head.
_NOT_IN_BACKBONE = ("dropout", "attention_dropout", "activation_dropout", "tied", "output_bias", "init")


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
    """Which text, cut how; or which classification task."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    corpus: str = "wikipedia"  # of a language model; "classify": the one whose pieces a BPE vocabulary has
    vocabulary: str = "bytes"  # "bytes", or "bpe-N" for N pieces
    task: Task = "causal"
    length: int = 128  # tokens per sequence; "classify": longer sequences are cut
    batch_size: int = 8  # sequences (or pairs) per optimiser step, over all micro-batches and processes together
    masking: MaskingConfig = field(default_factory=MaskingConfig)  # read by the masked task
    task_name: str = ""  # "classify": the task (``data.tasks``)
    joined: bool = False  # "classify": a pair as one sequence
    limit: Mapping[str, int] = field(default_factory=dict)  # "classify": the most examples of a split, by its name

    def __post_init__(self) -> None:
        _one_of(self, "task", Task)
        _positive(self, "length", "batch_size")
        if self.task != "masked" and self.masking != MaskingConfig():
            raise ValueError(f"masking={self.masking!r}: only task='masked' masks")
        if (self.task == "classify") != bool(self.task_name):
            raise ValueError(f"task_name={self.task_name!r}: task='classify' needs one, and no other task has one")
        for name in ("limit", "joined"):
            if getattr(self, name) and self.task != "classify":
                raise ValueError(f"{name}={getattr(self, name)!r}: only task='classify' has examples")
        if any(count < 1 for count in self.limit.values()):
            raise ValueError(f"limit={dict(self.limit)!r}: must be at least 1 for each split")

    @property
    def source(self) -> str:
        """The name of the data: the corpus, or the classification task."""
        return self.task_name or self.corpus


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
    cycle_momentum: bool = False  # "onecycle": β1 falls from 0.95 to 0.85 while the rate rises, and back; not betas[0]

    def __post_init__(self) -> None:
        _one_of(self, "schedule", Schedule)
        if self.cycle_momentum and self.schedule != "onecycle":
            raise ValueError(f"cycle_momentum=True: only schedule='onecycle' has a cycle, not {self.schedule!r}")
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
class Band:
    """Where a loss is expected to be after ``step`` finished steps; ``training.bands`` says how it is measured."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    step: int
    low: float  # nats
    high: float
    of: BandOf = "train"  # the training loss, or the validation loss

    def __post_init__(self) -> None:
        _positive(self, "step")
        _one_of(self, "of", BandOf)
        if not self.low < self.high:
            raise ValueError(f"high={self.high!r}: must be greater than low={self.low!r}")


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    name: str  # readable, used in the run's folder; letters, digits, dot, dash and underscore
    model: ModelConfig  # of a classifier: the encoder below the head
    data: DataConfig
    optimizer: OptimizerConfig
    steps: int  # optimiser steps; 0 keeps the initial weights
    seed: int  # fixes initial weights, the order of the data and dropout
    head: ClassifierHead | None = None  # of a classifier
    start_from: "RunConfig | None" = (
        None  # the run whose weights all but the head start from; None: drawn from the seed
    )
    evaluations: int = 1  # how often validation is measured, evenly spread, the last time at the end
    validation_windows: int = 64  # language models: sequences of data.length that one evaluation reads
    evaluation_examples: int | None = None  # classifiers: examples of each split that one evaluation reads; None: all
    evaluation_part: EvaluationPart = "spread"  # "moving": other examples each time, as Skyformer's harness
    waypoints: tuple[int, ...] = ()  # further steps after which validation is measured; 0: before the first
    # Further splits, such as "test", measured once with the weights kept; a classifier's are read as a whole.
    measured_at_end: tuple[str, ...] = ()
    keep: Keep = "last"  # the weights that the run leaves: the last, or those of the best evaluation
    bands: tuple[Band, ...] = ()  # where losses are expected; a run outside stops
    accumulate: int = 1  # micro-batches that one optimiser step is cut into, to fit memory
    precision: Precision = "fp32"  # of the matrix products; weights, norms and losses are fp32 in each
    gradients: Gradients = "none"  # "norms": record the statistics of training.gradient_statistics

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in ".-_" for c in self.name):
            raise ValueError(f"name={self.name!r}: must be letters, digits, '.', '-' or '_'")
        _not_negative(self, "steps", "seed")
        _positive(self, "evaluations", "validation_windows", "accumulate")
        for name, allowed in (
            ("precision", Precision),
            ("gradients", Gradients),
            ("keep", Keep),
            ("evaluation_part", EvaluationPart),
        ):
            _one_of(self, name, allowed)
        if not all(0 <= w <= self.steps for w in self.waypoints) or any(b <= a for a, b in pairwise(self.waypoints)):
            raise ValueError(f"waypoints={self.waypoints!r}: must be rising steps between 0 and steps={self.steps}")
        if len(set(self.measured_at_end)) != len(self.measured_at_end):
            raise ValueError(f"measured_at_end={self.measured_at_end!r}: must name each split once")
        if self.steps and self.optimizer.warmup >= self.steps:
            raise ValueError(f"optimizer.warmup={self.optimizer.warmup}: must be less than steps={self.steps}")
        if self.data.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate!r}: must divide data.batch_size={self.data.batch_size}")
        if self.data.length > self.model.max_length:
            raise ValueError(f"data.length={self.data.length}: exceeds model.max_length={self.model.max_length}")
        if (self.data.task == "causal") != (self.model.kind == "decoder"):
            raise ValueError(
                f"data.task={self.data.task!r}: a decoder trains on 'causal', an encoder on 'masked' or 'classify';"
                f" model.kind={self.model.kind!r}"
            )
        self._check_classifier()
        self._check_bands()
        if self.start_from is not None:
            self._check_start(self.start_from)

    def _check_classifier(self) -> None:
        classifies = self.data.task == "classify"
        if classifies != (self.head is not None):
            raise ValueError(f"head={self.head!r}: data.task='classify' needs one, and no other task has one")
        if self.evaluation_examples is not None:
            _positive(self, "evaluation_examples")
            if not classifies:
                raise ValueError(
                    f"evaluation_examples={self.evaluation_examples!r}: only classifiers; the windows of"
                    " a language model are validation_windows"
                )
        elif self.evaluation_part == "moving":
            raise ValueError("evaluation_part='moving': needs evaluation_examples, the size of a part")

    def _check_bands(self) -> None:
        measured = self.evaluated_after()
        for band in self.bands:
            if band.step > self.steps:
                raise ValueError(f"bands.step={band.step}: exceeds steps={self.steps}")
            if band.of == "validation" and band.step not in measured:
                raise ValueError(f"bands.step={band.step}: validation is not measured then; name it in waypoints")

    def _check_start(self, start: "RunConfig") -> None:
        for item in fields(ModelConfig):
            ours, theirs = getattr(self.model, item.name), getattr(start.model, item.name)
            if item.name not in _NOT_IN_BACKBONE and ours != theirs:
                raise ValueError(f"start_from.model.{item.name}={theirs!r}: must be that of the model, {ours!r}")
        # Tables of one size may be of other tokens. A BPE vocabulary is that of its corpus; the others are the same
        # for each, and tasks with tokens of their own leave the name at "bytes".
        names = ["vocabulary", *(["corpus"] if self.data.vocabulary.startswith("bpe-") else [])]
        for name in names:
            ours, theirs = getattr(self.data, name), getattr(start.data, name)
            if ours != theirs:
                raise ValueError(f"start_from.data.{name}={theirs!r}: must be that of the run, {ours!r}")

    def evaluated_after(self) -> frozenset[int]:
        """The numbers of finished optimiser steps after which validation is measured."""
        evenly = {round(self.steps * k / self.evaluations) for k in range(1, self.evaluations + 1)}
        return frozenset(evenly - {0} | set(self.waypoints) | ({0} if self.steps == 0 else set()))

    def chain(self) -> "tuple[RunConfig, ...]":
        """The runs that it starts from, the first of all first, then itself."""
        return (*(self.start_from.chain() if self.start_from else ()), self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, the inverse of :func:`run_config`."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What makes the run another one, as plain values: all but the bands, which stop a run and change nothing
        in it; without ``start_from``, whose identity is its own."""
        values = replace(self, bands=(), start_from=None).to_dict()
        return {name: value for name, value in values.items() if name not in ("bands", "start_from")}


def run_config(values: dict[str, Any]) -> RunConfig:
    """A config from plain values (YAML, JSON), strictly: unknown fields and wrong types are refused.

    Raises ``ValueError`` with one line naming field, value and rule.
    """
    return from_plain(RunConfig, values)


def steps_of(epochs: float, examples: int, batch_size: int) -> int:
    """Optimiser steps in which every example is read ``epochs`` times: the last batch counts where it is not full,
    and is filled from the epoch after it. Raises ValueError for a number that is not greater than 0."""
    for name, value in (("epochs", epochs), ("examples", examples), ("batch_size", batch_size)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: must be greater than 0 and finite")
    return math.ceil(epochs * examples / batch_size)
