"""The parameters of the measurements of speed, and the runs of notebook 07 whose scores Figure 1 shows."""

from dataclasses import dataclass
from typing import Annotated, Literal

from transnormer_lib.analysis.arena_speed import Schedule, Work
from transnormer_lib.analysis.forked_steps import Limits
from transnormer_lib.checks import check_count, check_not_negative
from transnormer_lib.studies.common.parameters import Prefix
from transnormer_lib.studies.lra import recipes
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.speed.published import LENGTHS
from transnormer_lib.training.config import RunConfig

TASK = "text"  # the models have the recipe's setting of this task, but for the length
_PAPER = recipes.RECIPES["paper"][TASK]
WIDTH, BLOCK = _PAPER.dim, _PAPER.block_size


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


def runs(parameters: Parameters) -> list[RunConfig]:
    """The runs of notebook 07 whose scores Figure 1 shows; none where ``scores_tasks`` is empty."""
    return arena.runs(parameters.scores) if parameters.scores.tasks else []


def recipe(length: int, width: int = WIDTH) -> arena.Parameters:
    """The recipe of Table 6 at another length, and at another width, with its FFN or GLU in proportion."""
    sizes = {"dim": width, "ffn": _PAPER.ffn * width // WIDTH, "glu": round(_PAPER.glu * width / WIDTH)}
    return arena.recipe_parameters("paper", {TASK: {"length": length, **sizes}})


def work(parameters: Parameters) -> Work:
    """Batch, device, precision, and the recipe's optimiser."""
    optimizer = arena.run(TASK, "vanilla", 0, recipe(min(parameters.lengths))).optimizer
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
