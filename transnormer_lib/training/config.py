"""The config of a training run: model, data, optimiser, number of steps, seed.

Runs with equal configs, data and code are the same run, and the store (``training.store``) keeps one of them. Options
that cannot change the result, such as how often a checkpoint is written, are not in the config. The exceptions are
``RunConfig.bands``, the losses expected of a recipe, and ``RunConfig.rate_search``, where its learning rate comes from:
they are not part of its identity (:meth:`RunConfig.identity`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, Literal

from transnormer_lib.checks import check_choice, check_count, check_distinct, check_not_negative, check_positive
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.vocabulary import is_learned
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.project import UserMistake
from transnormer_lib.strict import differing

Task = Literal["causal", "masked", "classify", "context", "pixels", "speech"]
DECODED: tuple[Task, ...] = ("causal", "context", "pixels")  # the tasks of decoders
_NAMED: tuple[Task, ...] = ("classify", "context", "pixels", "speech")  # those that have a task_name
Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "onecycle", "drop", "plateau"]
Rule = Literal["adamw", "radam"]
Precision = Literal["fp32", "bf16", "fp16"]
Gradients = Literal["none", "norms"]
Keep = Literal["last", "best"]
EvaluationPart = Literal["spread", "moving"]
BandOf = Literal["train", "validation"]
_MOST_EVALUATIONS = 100_000  # their steps are listed one by one; a validation takes longer than a step
_LONGEST_NAME = 200  # bytes; a file's name has at most 255, and the store adds a digest and what a folder is
# Fields that may differ between a model and the one it starts from: no weight below the head depends on them.
_NOT_IN_BACKBONE = ("dropout", "attention_dropout", "activation_dropout", "tied", "output_bias", "init")


class RunRefused(UserMistake):
    """This machine or this data does not allow the run; the message is one line, ``field=value: rule``."""


@dataclass(frozen=True)
class DataConfig:
    """The text and how it is cut into sequences, or the task."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    corpus: str = "wikipedia"  # the text; "classify": the text that the vocabulary was learned from
    vocabulary: str = "bytes"  # "bytes", "bpe-N" for N pieces, "chars-N" for N characters
    task: Task = "causal"
    length: int = 128  # tokens per sequence; "classify": longer sequences are cut
    batch_size: int = 8  # sequences (or pairs) per optimiser step, over all micro-batches and processes
    masking: MaskingConfig = field(default_factory=MaskingConfig)  # "masked" only
    # "classify": the task (``data.tasks``); "context": that of ``data.context_tasks``; "pixels": the images
    # (``data.pixels``), whose length is that of all values but one; "speech": that of ``data.speech_tasks``, whose
    # length is that of the longest utterance in frames
    task_name: str = ""
    joined: bool = False  # "classify": read a pair as one sequence
    limit: Mapping[str, int] = field(default_factory=dict)  # "classify": most examples per split
    shortest: int = 0  # a text's training batches have random lengths from this to ``length``; 0: always ``length``

    def __post_init__(self) -> None:
        check_choice("task", self.task, Task)
        check_count("length", self.length)
        check_count("batch_size", self.batch_size)
        if self.task != "masked" and self.masking != MaskingConfig():
            raise ValueError(f"masking={self.masking!r}: only task='masked' masks")
        if (self.task in _NAMED) != bool(self.task_name):
            *some, last = (f"task={task!r}" for task in _NAMED)
            raise ValueError(
                f"task_name={self.task_name!r}: {', '.join(some)} and {last} need one, and no other task has one"
            )
        if self.task == "context":
            from transnormer_lib.data.context_tasks import ContextTask  # here, because it imports torch

            ContextTask(self.task_name, self.length)
        if self.task == "pixels":
            from transnormer_lib.data.pixels import length_of  # here, because it imports torch

            if self.length != (length := length_of(self.task_name)):
                raise ValueError(f"length={self.length}: {self.task_name!r} has {length} values to read per image")
        if self.task == "speech":
            from transnormer_lib.data.speech_tasks import speech_task  # here, because it imports torch

            speech_task(self.task_name, self.length)
        check_count("shortest", self.shortest, 0)
        if self.shortest and (self.task not in ("causal", "masked") or self.shortest > self.length):
            raise ValueError(
                f"shortest={self.shortest}: only a text has varied lengths, and it must not exceed length={self.length}"
            )
        for name in ("limit", "joined"):
            if getattr(self, name) and self.task != "classify":
                raise ValueError(f"{name}={getattr(self, name)!r}: only task='classify' has examples")
        for split, count in self.limit.items():
            check_count(f"limit[{split!r}]", count)

    @property
    def source(self) -> str:
        """The name of the data: the corpus, or the classification task."""
        return self.task_name or self.corpus


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW or RAdam (Liu et al., 2020), and the schedule. ``warmup`` and the schedule count optimiser steps.

    The weight decay is decoupled (Loshchilov & Hutter, 2019): each step subtracts rate · ``weight_decay`` · weight.
    So does fairseq's ``adam``, with which TransNormer was trained, and so does RAdam's own code, which the linear
    transformers' release copies. ``training.schedules`` defines the schedules.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    learning_rate: float = 5e-4  # Table 13; the schedule's highest rate
    schedule: Schedule = "inverse-sqrt"
    warmup: int = 0
    warmup_start: float = 0.0  # rate at which the warm-up begins; Table 13's runs: 1e-7
    end_learning_rate: float = 0.0  # rate at which "linear", "cosine" and "drop" end
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 0.0  # largest norm of the whole gradient; 0: no clipping
    clip_value: float = 0.0  # largest absolute entry of the gradient; 0: no clipping
    cycle_momentum: bool = False  # "onecycle": β1 goes from 0.95 to 0.85 and back, instead of staying at betas[0]
    rule: Rule = "adamw"  # how the gradients move the weights
    drop_after: int = 0  # "drop": so many steps at the highest rate
    patience: int = 0  # "plateau": halve the rate when more validations than this in a row were no better than the best

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, Schedule)
        check_choice("rule", self.rule, Rule)
        check_count("drop_after", self.drop_after, 0)
        check_count("patience", self.patience, 0)
        if self.patience and self.schedule != "plateau":
            raise ValueError(f"patience={self.patience}: only schedule='plateau' waits, not {self.schedule!r}")
        if bool(self.drop_after) != (self.schedule == "drop"):
            raise ValueError(f"drop_after={self.drop_after}: schedule='drop' needs one, and no other schedule has one")
        if self.schedule == "drop" and self.drop_after < self.warmup:
            raise ValueError(f"drop_after={self.drop_after}: must not be less than warmup={self.warmup}")
        if self.cycle_momentum and self.schedule != "onecycle":
            raise ValueError(f"cycle_momentum=True: only schedule='onecycle' has a cycle, not {self.schedule!r}")
        check_count("warmup", self.warmup, 0)
        for name in ("learning_rate", "eps"):
            check_positive(name, getattr(self, name))
        for name in ("warmup_start", "end_learning_rate", "weight_decay", "clip_norm", "clip_value"):
            check_not_negative(name, getattr(self, name))
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas={self.betas!r}: both must be in [0, 1)")
        for name in ("warmup_start", "end_learning_rate"):
            if getattr(self, name) > self.learning_rate:
                raise ValueError(f"{name}={getattr(self, name)!r}: exceeds learning_rate={self.learning_rate!r}")
        if self.warmup_start and (not self.warmup or self.schedule == "onecycle"):
            raise ValueError(f"warmup_start={self.warmup_start!r}: needs a warm-up of a schedule other than 'onecycle'")
        if self.end_learning_rate and self.schedule not in ("linear", "cosine", "drop"):
            raise ValueError(
                f"end_learning_rate={self.end_learning_rate!r}: only 'linear', 'cosine' and 'drop' end at a rate"
            )
        if self.clip_norm and self.clip_value:
            raise ValueError(f"clip_value={self.clip_value!r}: clip by norm or by value, not both")


@dataclass(frozen=True)
class Band:
    """The loss expected after ``step`` finished steps; ``training.bands`` says how it is measured."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    step: int
    low: float  # nats
    high: float
    of: BandOf = "train"  # the training loss, or the validation loss

    def __post_init__(self) -> None:
        check_count("step", self.step)
        check_choice("of", self.of, BandOf)
        if not self.low < self.high:
            raise ValueError(f"high={self.high!r}: must be greater than low={self.low!r}")


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    name: str  # readable, part of the folder's name; letters, digits, dot, dash and underscore, at most 200 bytes
    model: ModelConfig  # for a classifier: the encoder below the head
    data: DataConfig
    optimizer: OptimizerConfig
    steps: int  # optimiser steps; 0 keeps the initial weights
    seed: int  # determines initial weights, order of the data and dropout
    head: ClassifierHead | None = None  # classifiers only
    start_from: "RunConfig | None" = None  # the run whose weights, except the head's, this run starts from
    evaluations: int = 1  # number of validations, evenly spaced, the last one at the end
    validation_windows: int = 64  # language models: sequences per validation, spread evenly over the split
    evaluation_examples: int | None = None  # classifiers: most examples per evaluation; None: the whole split
    evaluation_part: EvaluationPart = "spread"  # "moving": other examples each time, as in Skyformer's harness
    waypoints: tuple[int, ...] = ()  # further steps after which to validate; 0: before the first step
    # Further splits, such as "test", evaluated once with the kept weights; a classifier's are read as a whole.
    measured_at_end: tuple[str, ...] = ()
    keep: Keep = "last"  # which weights to keep: the last, or those of the best evaluation
    bands: tuple[Band, ...] = ()  # expected losses; a run outside a band stops
    rate_search: tuple[str, ...] = ()  # the names of the runs among which the learning rate was chosen
    accumulate: int = 1  # micro-batches per optimiser step, to fit memory
    precision: Precision = "fp32"  # of the matrix products; weights, norms and losses are always fp32
    gradients: Gradients = "none"  # "norms": record the statistics of training.gradient_statistics

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\W_][\w.-]*", self.name):
            raise ValueError(f"name={self.name!r}: must be letters, digits, '.', '-' or '_', a letter or digit first")
        if len(self.name.encode()) > _LONGEST_NAME:
            raise ValueError(f"name={self.name!r}: must be at most {_LONGEST_NAME} bytes long")
        for name in ("steps", "seed"):
            check_count(name, getattr(self, name), 0)
        check_count("evaluations", self.evaluations, most=_MOST_EVALUATIONS)
        for name in ("validation_windows", "accumulate"):
            check_count(name, getattr(self, name))
        check_choice("precision", self.precision, Precision)
        check_choice("gradients", self.gradients, Gradients)
        check_choice("keep", self.keep, Keep)
        check_choice("evaluation_part", self.evaluation_part, EvaluationPart)
        if not all(0 <= w <= self.steps for w in self.waypoints) or any(b <= a for a, b in pairwise(self.waypoints)):
            raise ValueError(f"waypoints={self.waypoints!r}: must be rising steps between 0 and steps={self.steps}")
        check_distinct("measured_at_end", self.measured_at_end)
        if self.steps and self.optimizer.warmup >= self.steps:
            raise ValueError(f"optimizer.warmup={self.optimizer.warmup}: must be less than steps={self.steps}")
        if self.precision == "fp16" and self.optimizer.rule != "adamw":
            raise ValueError(f"optimizer.rule={self.optimizer.rule!r}: only 'adamw' skips the steps that fp16 loses")
        if self.data.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate!r}: must divide data.batch_size={self.data.batch_size}")
        if self.data.length > self.model.max_length:
            raise ValueError(f"data.length={self.data.length}: exceeds model.max_length={self.model.max_length}")
        if self.optimizer.schedule == "plateau" and self.evaluations < 2 and not self.waypoints:
            raise ValueError(f"evaluations={self.evaluations}: optimizer.schedule='plateau' needs at least 2")
        if (self.data.task in DECODED) != (self.model.kind == "decoder"):
            raise ValueError(
                f"data.task={self.data.task!r}: a decoder trains on {', '.join(map(repr, DECODED))}, an encoder on"
                f" 'masked', 'classify' or 'speech'; model.kind={self.model.kind!r}"
            )
        if (self.data.task == "speech") != bool(self.model.features):
            raise ValueError(
                f"model.features={self.model.features}: data.task='speech' needs them, and no other task has them"
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
            check_count("evaluation_examples", self.evaluation_examples)
            if not classifies:
                raise ValueError(
                    f"evaluation_examples={self.evaluation_examples!r}: only for classifiers; a language model"
                    " has validation_windows"
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
                raise ValueError(f"start_from.model.{item.name}={theirs!r}: must equal the model's, {ours!r}")
        # Embedding tables of equal size may hold different vocabularies. Learned ones depend on their corpus.
        for name in ("vocabulary", "corpus") if is_learned(self.data.vocabulary) else ("vocabulary",):
            ours, theirs = getattr(self.data, name), getattr(start.data, name)
            if ours != theirs:
                raise ValueError(f"start_from.data.{name}={theirs!r}: must equal the run's, {ours!r}")

    def evaluated_after(self) -> frozenset[int]:
        """The numbers of finished optimiser steps after which to validate."""
        evenly = {round(self.steps * k / self.evaluations) for k in range(1, self.evaluations + 1)}
        return frozenset(evenly - {0} | set(self.waypoints) | ({0} if self.steps == 0 else set()))

    def chain(self) -> "tuple[RunConfig, ...]":
        """All runs that this run starts from, earliest first, then the run itself."""
        return (*(self.start_from.chain() if self.start_from else ()), self)

    def identity(self) -> dict[str, Any]:
        """What distinguishes a run from others, as plain values: the fields that differ from their defaults.

        Leaves out the bands and the rate search, which do not affect training, and ``start_from``, which has its own
        identity.
        """
        outside = ("bands", "rate_search", "start_from")
        return {name: value for name, value in differing(self).items() if name not in outside}


def steps_of(epochs: float, examples: int, batch_size: int) -> int:
    """The optimiser steps of ``epochs`` passes over the examples; a last batch that is not full counts as a step.

    Raises ValueError for a number that is not positive.
    """
    for name, value in (("epochs", epochs), ("examples", examples), ("batch_size", batch_size)):
        check_positive(name, value)
    return math.ceil(epochs * examples / batch_size)
