"""The copy task of Figure 2: which models are trained on it, and how.

All rows share everything but their attention: layers, width, positions, optimiser, batches. ``shared`` is no row of
the figure: softmax attention whose keys are its queries, as Reformer's are, over the whole sequence and without
hashing. What separates it from ``lsh-X`` is hashing alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import lsh, rates
from transnormer_lib.studies.common.language_models import waypoints
from transnormer_lib.training.config import Band, DataConfig, OptimizerConfig, RunConfig

CONTROLS = ("softmax", "shared")
# Every row of Figure 1, and PyTorch's fused softmax attention, which does not store the matrix.
COST_ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "softmax": ("softmax", {"impl": "reference"}),
    "softmax, fused": ("softmax", {}),
    "linear": ("linear", {"phi": "1+elu"}),
    **{row: ("reformer", {}) for row in lsh.ROWS},
}


@dataclass(frozen=True)
class CopyParameters:
    """The parameters of the copy task."""

    rows: tuple[str, ...]  # softmax, linear, lsh-1, lsh-4, lsh-8, shared
    seeds: tuple[int, ...]  # one run per row and seed
    symbols: int  # different symbols
    length: int  # tokens of a sequence
    dim: int
    heads: int
    layers: int
    dropout: float  # of embeddings, branches and, where there is one, the attention matrix
    buckets: int  # of LSH attention
    chunk_size: int
    steps: int  # updates
    drop_after: int  # updates at the first rate; then a tenth of it
    batch_size: int
    learning_rate: float
    rates: Mapping[str, float]  # a row's own learning rate; rows without one take learning_rate
    rates_tried: tuple[float, ...]  # those among which it was chosen
    rate_seeds: tuple[int, ...]  # the seeds on which it was chosen; none of them is judged
    weight_decay: float
    curve_points: int  # validations, evenly spaced
    validation_sequences: int

    def __post_init__(self) -> None:
        for row in self.rows:
            mechanism(row, self)
        check_count("curve_points", self.curve_points)


@dataclass(frozen=True)
class CostParameters:
    """The parameters of Figure 1."""

    cost_rows: tuple[str, ...]
    cost_lengths: tuple[int, ...]
    cost_longest: Mapping[str, int]  # a row's last length, where it is not tried at all of them
    cost_tokens: int  # of a step; the batch is this over the length, at least one
    cost_rounds: int
    cost_heads: int
    cost_head_dim: int
    cost_causal: bool
    cost_device: Literal["cpu", "cuda"]
    slope_from: int  # exponents are fitted from this length on


@dataclass(frozen=True)
class Parameters(CopyParameters, CostParameters):
    """The notebook's parameters."""

    theory_lengths: tuple[int, ...]  # lengths at which memory of the gradients is counted

    def __post_init__(self) -> None:
        super().__post_init__()
        for row in self.cost_rows:
            check_choice("cost_rows", row, COST_ROWS)


def mechanism(row: str, parameters: CopyParameters) -> tuple[str, Mapping[str, Any]]:
    """The mechanism of a row with its options. Raises ValueError for a row that is none."""
    if row == "shared":  # one chunk holds the sequence, and sees all of it whatever the bucket
        return "reformer", {"hashes": 1, "buckets": 2, "chunk_size": parameters.length, "chunking": "across"}
    check_choice("rows", row, ("softmax", "linear", "shared", *lsh.ROWS))
    if row in lsh.ROWS:
        return "reformer", lsh.options(row, buckets=parameters.buckets, chunk_size=parameters.chunk_size, decoder=True)
    return row, {}


def model(row: str, parameters: CopyParameters) -> ModelConfig:
    """The decoder of a row, as released (idiap/linear-transformer-experiments@0a54093)."""
    name, options = mechanism(row, parameters)
    return ModelConfig(
        kind="decoder",
        vocab_size=parameters.symbols + 1,
        max_length=parameters.length,
        dim=parameters.dim,
        heads=parameters.heads,
        attention=(name,) * parameters.layers,
        attention_options={name: options} if options else {},
        activation="relu",
        norm_placement="post",
        positions="beside",
        dropout=parameters.dropout,
        attention_dropout=parameters.dropout if name != "linear" else 0.0,
        tied=False,
        output_bias=True,
    )


def task(parameters: CopyParameters) -> ContextTask:
    """The copy task at the notebook's length."""
    return ContextTask(f"duplicate-{parameters.symbols}", parameters.length)


def search(parameters: CopyParameters) -> rates.Search:
    """The runs that choose each row's rate, and those that are judged."""
    data = DataConfig(
        task="context", task_name=task(parameters).name, length=parameters.length, batch_size=parameters.batch_size
    )

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return RunConfig(
            name=f"duplicate-{label}-seed{seed}",
            model=model(row, parameters),
            data=data,
            optimizer=OptimizerConfig(
                rule="radam",
                learning_rate=rate,
                schedule="drop",
                drop_after=parameters.drop_after,
                end_learning_rate=rate / 10,
                betas=(0.9, 0.999),
                weight_decay=parameters.weight_decay,
            ),
            steps=parameters.steps,
            seed=seed,
            # A uniform guess among the symbols has 2.4 nats.
            bands=(Band(max(parameters.steps // 10, 1), 0.0, 4.0),),
            waypoints=waypoints(
                [k / parameters.curve_points for k in range(1, parameters.curve_points)], parameters.steps
            ),
            validation_windows=parameters.validation_sequences,
        )

    return rates.Search(parameters, parameters.rows, parameters.seeds, make)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
