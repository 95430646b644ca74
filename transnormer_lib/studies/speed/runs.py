"""From the parameters of the notebook on speed to models, and from what was measured to tables, ratios and sentences.

The models that are timed are those of Table 6's ``paper`` recipe with the weights they start from. The scores of
Figure 1 are those of notebook 07's runs, which are trained once for both.
"""

import math
import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from transnormer_lib.analysis.arena_speed import Cell, Part, Schedule, Work
from transnormer_lib.analysis.forked_steps import Limits
from transnormer_lib.attention import registry
from transnormer_lib.checks import check_count, check_not_negative
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.studies.common.parameters import Prefix
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.speed.published import LENGTHS, PUBLISHED

if TYPE_CHECKING:
    from transnormer_lib.models.classifier import ClassifierConfig
    from transnormer_lib.models.language_model import LanguageModel
    from transnormer_lib.training.config import RunConfig
    from transnormer_lib.training.store import RunStore

# Softmax attention as PyTorch code of 2022 computes it: the matrix [N, N] is made, and kept for the backward pass.
STORED = "vanilla-stored"
# The rows that Table 7 has, and those added here.
TABLE_7 = tuple(PUBLISHED)
ADDED = (STORED, "linear", "vanilla-matched", "linear-matched")
OURS = arena.OURS
# Rows that run on Triton kernels on a GPU, once more in PyTorch alone, as their rivals and all rows of the paper run.
_SUFFIX = "-plain"
PLAIN = tuple(f"{row}{_SUFFIX}" for row in (*OURS, "linear"))
_TASK = "text"  # whose settings the recipe's models have; only the length is changed


@dataclass(frozen=True)
class Parameters:
    """The notebook's parameters that decide what is measured. Raises ValueError naming parameter, value and rule."""

    device: Literal["cpu", "cuda"]  # cpu: one core; cuda: the first GPU
    precision: Literal["fp32", "bf16"]  # of the matrix products; bf16: mixed precision
    batch: int  # sequences of a step; the paper does not name its own
    lengths: tuple[int, ...]  # tokens of a sequence
    slope_from: int  # exponents are fitted from this length on
    judged_lengths: tuple[int, ...]  # where orderings are judged: all rounds are made there
    rounds: int  # in each, every row has its turn; one value per row and round
    group_seconds: float  # at other lengths no further round begins that would end later than this
    repeats: int  # timed steps of a round, at most; its value is their median
    round_seconds: float  # after so long no further step of a round is timed
    long_step_seconds: float  # a first step that takes so long is no warm-up, it is the round's only one
    step_seconds: float  # a step that takes longer is given up: "too slow"
    memory_limit_gb: float  # a step that takes more has a dash; 0: no limit of ours
    figure_length: int  # the length at which Figure 1 is drawn, one of Table 7's
    decode_positions: tuple[int, ...]  # tokens read before a decoding step is timed
    decode_steps: int  # steps of a round, whose value is their median
    decode_rounds: int  # rounds of decoding
    scores: Annotated[arena.Parameters, Prefix("scores_")]  # notebook 07's runs whose scores Figure 1 shows

    def __post_init__(self) -> None:
        if not self.lengths or sorted(set(self.lengths)) != list(self.lengths) or min(self.lengths) < 1:
            raise ValueError(f"lengths={self.lengths!r}: must be positive and rise")
        if not self.judged_lengths or not set(self.judged_lengths) <= set(self.lengths):
            raise ValueError(f"judged_lengths={self.judged_lengths!r}: must be some of lengths={self.lengths!r}")
        both = sorted(set(self.lengths) & set(LENGTHS))
        if self.figure_length not in both:
            raise ValueError(f"figure_length={self.figure_length!r}: must be in Table 7 and in lengths, one of {both}")
        check_not_negative("memory_limit_gb", self.memory_limit_gb)
        if not self.decode_positions or min(self.decode_positions) < 1:
            raise ValueError(f"decode_positions={self.decode_positions!r}: must hold positions of at least 1")
        check_count("decode_steps", self.decode_steps)
        check_count("decode_rounds", self.decode_rounds)
        work(self), schedule(self), limits(self)  # each refuses what it cannot use


def runs(parameters: Parameters) -> "list[RunConfig]":
    """The runs of notebook 07 whose scores Figure 1 shows; none where ``scores_tasks`` is empty."""
    return arena.runs(parameters.scores)


def scores(parameters: Parameters, store: "RunStore") -> dict[str, float]:
    """By row the mean test accuracy in percent over the tasks of ``scores_tasks`` that are here, and over their seeds.

    Rows of which a run diverged are left out. Trains what the store lacks.
    """
    if not parameters.scores.tasks:
        return {}
    results = arena.measure(parameters.scores, store)
    by_task = [results.scores(task) for task in results.tasks()]
    rows = [row for row in (by_task[0] if by_task else {}) if min(min(of[row]) for of in by_task) > -math.inf]
    return {row: statistics.mean(statistics.mean(of[row]) for of in by_task) for row in rows}


def work(parameters: Parameters) -> Work:
    """Batch, device, precision, and the recipe's optimiser."""
    optimizer = arena.run(_TASK, "vanilla", 0, _arena(min(parameters.lengths))).optimizer
    return Work(parameters.batch, optimizer, parameters.device, parameters.precision)


def schedule(parameters: Parameters) -> Schedule:
    """How many rounds are made."""
    return Schedule(parameters.rounds, parameters.group_seconds, tuple(parameters.judged_lengths))


def limits(parameters: Parameters) -> Limits:
    """What a round may take."""
    return Limits(
        repeats=parameters.repeats,
        round_seconds=parameters.round_seconds,
        long_step_seconds=parameters.long_step_seconds,
        step_seconds=parameters.step_seconds,
        memory_bytes=int(1e9 * parameters.memory_limit_gb),
    )


def _arena(length: int) -> arena.Parameters:
    return arena.recipe_parameters("paper", {_TASK: {"length": length}})


def rows(parameters: Parameters) -> tuple[str, ...]:
    """What is measured: Table 7's rows, those added, and on a GPU, where some run on kernels, the plain ones."""
    return (*TABLE_7, *ADDED, *(PLAIN if parameters.device == "cuda" else ()))


def model_of(row: str) -> str:
    """The row whose model it is: that of a plain row, whose operations and weights are the same, else itself."""
    return row.removesuffix(_SUFFIX)


def judged(row: str, measured: Container[str]) -> str:
    """By which of the rows ``measured`` the paper's comparisons of ``row`` are judged: its plain one if there is one.

    The paper compares PyTorch with PyTorch, so a lead that comes from kernels of this project is not TransNormer's.
    """
    plain = f"{row}{_SUFFIX}"
    return plain if plain in measured else row


def model(row: str, length: int) -> "ClassifierConfig":
    """The classifier of a row for sequences of ``length``: positions and Linformer's projections are of that size."""
    from transnormer_lib.models.classifier import with_head

    run = arena.run(_TASK, "vanilla" if row == STORED else model_of(row), 0, _arena(length))
    encoder = run.model
    if impl := "reference" if row == STORED else "chunked" if row in PLAIN else "":
        options = {name: {**encoder.attention_options.get(name, {}), "impl": impl} for name in encoder.attention}
        encoder = replace(encoder, attention_options=options)
    assert run.head is not None
    return with_head(encoder, run.head)


def models(parameters: Parameters) -> "dict[tuple[str, int], ClassifierConfig]":
    """Every row's classifier at every length."""
    return {(row, n): model(row, n) for n in parameters.lengths for row in rows(parameters)}


@dataclass(frozen=True)
class Results:
    """What was measured."""

    cells: tuple[Cell, ...]

    def cell(self, row: str, length: int, part: Part) -> Cell | None:
        """The cell, missing or not; None where the parameters do not ask for it."""
        return next((c for c in self.cells if (c.row, c.length, c.part) == (row, length, part)), None)

    def rows(self) -> list[str]:
        """In the order of Table 7, then those added, then the plain ones."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def lengths(self) -> list[int]:
        return sorted({cell.length for cell in self.cells})

    def medians(self, row: str, part: Part) -> dict[int, float]:
        """Median seconds of a step by length, where there are any."""
        return {c.length: c.median for c in self.cells if (c.row, c.part) == (row, part) and c.seconds}

    def rounds(self, row: str, part: Part) -> dict[int, tuple[float, ...]]:
        """Seconds of a step in every round, by length."""
        return {c.length: c.seconds for c in self.cells if (c.row, c.part) == (row, part) and c.seconds}

    def peaks(self, row: str, part: Part) -> dict[int, float]:
        """Median peak memory in bytes by length, where it was measured."""
        mine = [c for c in self.cells if (c.row, c.part) == (row, part) and c.peak_bytes]
        return {c.length: statistics.median(c.peak_bytes) for c in mine}


def measure(parameters: Parameters) -> Results:
    """Measure every row at every length."""
    from transnormer_lib.analysis.arena_speed import measure_all

    cells = measure_all(models(parameters), work(parameters), schedule(parameters), limits(parameters))
    order = {row: place for place, row in enumerate(rows(parameters))}
    return Results(tuple(sorted(cells, key=lambda cell: order[cell.row])))


def label(row: str) -> str:
    """The row's name in tables."""
    if row == STORED:
        return "vanilla (matrix stored)"
    return f"{model_of(row)} (plain PyTorch)" if row in PLAIN else row


@lru_cache
def quadratic_operations(row: str, lengths: tuple[int, ...] = (1024, 2048, 16384, 65536)) -> int:
    """Operations of a forward pass per pair of tokens: the coefficient of N², from exact counts of matrix products.

    Zero where they grow exactly linearly. Raises ArithmeticError where the counts at ``lengths`` are no polynomial of
    degree two with this coefficient.
    """
    from fractions import Fraction

    from transnormer_lib.models.flops import forward_flops

    config = model(model_of(row), max(lengths))
    counts = {n: forward_flops(config.model, n, head=ClassifierHead(config.classes)) for n in lengths}
    a, b, *others = lengths

    def second(c: int) -> Fraction:  # the divided difference over a, b and c
        slopes = [Fraction(counts[y] - counts[x], y - x) for x, y in ((a, b), (b, c))]
        return (slopes[1] - slopes[0]) / (c - a)

    found = {second(c) for c in others}
    if len(found) != 1 or (value := found.pop()).denominator != 1:
        raise ArithmeticError(f"row={row!r}: its operations {counts} are no polynomial of degree two in the length")
    return int(value)


def size_table(lengths: Sequence[int]) -> list[dict[str, Any]]:
    """One line per row: the configuration that all share, the mechanisms, and the weights at each length."""
    from transnormer_lib.models.classifier import count_classifier_parameters

    lines = []
    for row in (*TABLE_7, *ADDED):
        built = {n: model(row, n) for n in lengths}
        config = built[lengths[0]].model
        line = {"model": label(row), "layers × width, heads": f"{config.layers} × {config.dim}, {config.heads}"}
        line["attention"] = ", ".join(dict.fromkeys(config.attention))
        blocks = all(registry.kind(name) == "block" for name in config.attention)
        line["beside it"] = "none" if blocks else f"{config.feed_forward.upper()} {config.hidden_width}"
        lines.append(line | {f"weights, {n:,}": count_classifier_parameters(c) for n, c in built.items()})
    return lines


def decoders(max_length: int) -> "dict[str, LanguageModel]":
    """Decoders of the recipe's size, of those rows whose every mechanism decodes token by token."""
    from transnormer_lib.models.architectures import architecture
    from transnormer_lib.models.language_model import build_model

    built = {}
    size = model("vanilla", max_length).model
    for row in (*TABLE_7, "linear"):
        encoder = model(row, max_length).model
        mechanisms = encoder.attention
        if all(registry.is_recurrent(mechanism) for mechanism in mechanisms):
            config = architecture(
                row,
                kind="decoder",
                vocab_size=size.vocab_size,
                max_length=max_length,
                dim=size.dim,
                heads=size.heads,
                layers=size.layers,
                hidden=encoder.hidden,
            )
            built[row] = build_model(config, seed=0)
    return built
