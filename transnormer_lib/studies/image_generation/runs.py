"""The runs of notebook 12: decoders of pixels that differ in their attention alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transnormer_lib.checks import check_choice
from transnormer_lib.data.pixels import VALUES, length_of
from transnormer_lib.models.config import ModelConfig, Positions
from transnormer_lib.studies.common import lsh, rates
from transnormer_lib.studies.common.language_models import waypoints
from transnormer_lib.training.config import Band, DataConfig, OptimizerConfig, Precision, Rule, RunConfig, Schedule

MECHANISMS: Mapping[str, str] = {"softmax": "softmax", "linear": "linear", "lsh-1": "reformer", "lsh-4": "reformer"}
CURVE = (0.1, 0.2, 0.4, 0.6, 0.8)  # where the loss is measured, as shares of the training; and at the end


@dataclass(frozen=True)
class Parameters:
    """The notebook's parameters that decide what is trained."""

    rows: tuple[str, ...]  # softmax, linear, lsh-1, lsh-4: as the paper's tables name them
    seeds: tuple[int, ...]  # one run per row and seed
    images: str  # the images: mnist-5k-14, mnist-5k, mnist or cifar10
    dim: int  # model width
    heads: int  # attention heads
    layers: int  # blocks
    mixtures: int  # logistics per pixel
    lsh_buckets: int  # of LSH attention
    lsh_chunk: int  # tokens of its chunks
    positions: Positions  # beside the embedding, as released, or added to it
    norm_placement: str  # pre, or post as released
    dropout: float  # of embeddings and branches
    attention_dropout: float  # of the attention matrix; linear attention has none
    steps: int  # optimiser steps
    batch_size: int  # images per step
    accumulate: int  # pieces that a step is cut into, to fit memory
    precision: Precision  # of the matrix products
    rule: Rule  # the optimiser
    learning_rate: float  # highest rate of the schedule
    rates: Mapping[str, float]  # a row's own learning rate; rows without one take learning_rate
    rates_tried: tuple[float, ...]  # those among which it was chosen
    rate_seeds: tuple[int, ...]  # the seeds on which it was chosen; none of them is judged
    rate_steps: int  # optimiser steps of the runs on them; 0: as many as of those that are judged
    schedule: Schedule  # after the warm-up
    warmup: int  # steps of warm-up
    clip_norm: float  # largest norm of the gradient; 0: no limit
    weight_decay: float  # decoupled
    validation_images: int  # held-out images on which the loss is measured
    cifar_rows: tuple[str, ...]  # what is trained on CIFAR-10 besides
    cifar_seeds: tuple[int, ...]
    cifar_layers: int
    cifar_chunk: int  # tokens of LSH attention's chunks there
    cifar_steps: int
    cifar_batch_size: int

    def __post_init__(self) -> None:
        for name in ("rows", "cifar_rows"):
            for row in getattr(self, name):
                check_choice(name, row, MECHANISMS)

    @property
    def on_cifar(self) -> "Parameters":
        """The same study on CIFAR-10, without a search for rates."""
        return replace(
            self,
            rows=self.cifar_rows,
            seeds=self.cifar_seeds,
            images="cifar10",
            layers=self.cifar_layers,
            lsh_chunk=self.cifar_chunk,
            steps=self.cifar_steps,
            batch_size=self.cifar_batch_size,
            rates={},
            rates_tried=(),
            rate_seeds=(),
        )


def lsh_options(row: str, parameters: Parameters) -> dict[str, Any]:
    """The options of LSH attention in a decoder of pixels."""
    return lsh.options(row, buckets=parameters.lsh_buckets, chunk_size=parameters.lsh_chunk, decoder=True)


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The decoder of a row; rows differ in the attention alone."""
    mechanism = MECHANISMS[row]
    return ModelConfig(
        kind="decoder",
        vocab_size=VALUES,
        max_length=length_of(parameters.images),
        dim=parameters.dim,
        heads=parameters.heads,
        attention=(mechanism,) * parameters.layers,
        attention_options={mechanism: lsh_options(row, parameters)} if mechanism == "reformer" else {},
        positions=parameters.positions,
        norm_placement="post" if parameters.norm_placement == "post" else "pre",
        dropout=parameters.dropout,
        attention_dropout=parameters.attention_dropout,
        tied=False,
        logistics=parameters.mixtures,
    )


def run(label: str, config: ModelConfig, seed: int, parameters: Parameters) -> RunConfig:
    """One training run of ``config``, named ``pixels-LABEL-seedN``."""
    return RunConfig(
        name=f"pixels-{label}-seed{seed}",
        model=config,
        data=DataConfig(
            task="pixels",
            task_name=parameters.images,
            length=length_of(parameters.images),
            batch_size=parameters.batch_size,
        ),
        optimizer=OptimizerConfig(
            learning_rate=parameters.learning_rate,
            rule=parameters.rule,
            schedule=parameters.schedule,
            warmup=parameters.warmup,
            clip_norm=parameters.clip_norm,
            weight_decay=parameters.weight_decay,
        ),
        steps=parameters.steps,
        seed=seed,
        bands=(Band(max(parameters.steps // 10, 1), 0.0, 6.0),),  # a uniform guess has ln 256 = 5.5 nats
        accumulate=parameters.accumulate,
        precision=parameters.precision,
        validation_windows=parameters.validation_images,
        waypoints=waypoints(CURVE, parameters.steps),
    )


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""
    data = "cifar10-" if parameters.images == "cifar10" else ""

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        steps = parameters.rate_steps if seed in parameters.rate_seeds else 0
        own = replace(parameters, learning_rate=rate, steps=steps or parameters.steps)
        return run(data + label, model(row, parameters), seed, own)

    return rates.Search(parameters, parameters.rows, parameters.seeds, make)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, one run per row and seed, and those on CIFAR-10."""
    return search(parameters).runs() + search(parameters.on_cifar).runs()
