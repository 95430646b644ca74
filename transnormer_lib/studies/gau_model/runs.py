"""The runs behind Table 5 of the GAU paper: masked language models of Chinese, their fine-tuning, and decoders.

- Pre-training (Section 4.2, Table 7): whole words are masked; each row has its own learning rate (``rates``).
- Fine-tuning (Section 5.3, Table 6): from the encoder of the same row and seed; the rate by row where it was searched,
  else by task.
- One picture over the three papers: decoders of notebook 04, and GAU among them, with equal data and parameters.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from transnormer_lib.checks import check_choice, check_distinct
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.models.config import ModelConfig, Pooling
from transnormer_lib.studies.common import classification, language_models, rates
from transnormer_lib.studies.common.parameters import Prefix
from transnormer_lib.training.config import Band, DataConfig, Keep, OptimizerConfig, RunConfig, steps_of
from transnormer_lib.training.stored_run import Run

GAU = "gau"
# Rows that change one thing of the paper's model, with the fields of the model and the options of the unit that do it.
VARIANTS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    GAU: ({}, {}),
    "gau-pre-norm": ({"norm_placement": "pre"}, {}),
    "gau-no-rope": ({}, {"rope": False}),
}
MASKING = MaskingConfig(whole_words=True)
_BETAS = (0.9, 0.999)  # Tables 6 and 7
_WARMUP = 0.1  # Table 6: share of the steps


@dataclass(frozen=True)
class Decoders(rates.RateSearch):
    """The decoders of the picture: notebook 04's parameters."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Parameters(rates.RateSearch):
    """The notebook's parameters that decide what is trained and measured."""

    rows: tuple[str, ...]  # roformer-v1, roformer-v2, gau, and what VARIANTS names
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    attention_dropout: float  # of the attention matrix
    ffn: int  # width of RoFormer's feed-forward part; 0: four times the model's
    tasks: tuple[str, ...]  # what the encoders are fine-tuned on
    tune_length: int  # tokens of a text; longer ones are cut
    train_examples: Mapping[str, int]  # training examples of a task; of those not named, all
    tune_rates: Mapping[str, float]  # learning rate by "TASK ROW", or by "TASK" for the rows without one
    tune_rates_tried: tuple[float, ...]  # those among which it was chosen, on the encoders of rate_seeds
    tune_epochs: Mapping[str, float]  # how often every training example is read, by task
    tune_batch_sizes: Mapping[str, int]  # examples per step, by task
    tune_dropout: float  # of embeddings, residual branches and the head, while fine-tuning
    tune_evaluations: int  # how often a run is measured
    tune_keep: Keep  # whose result counts: the last or the best
    pooling: Pooling  # what the head sees: mean over the tokens, or first
    picture_rows: tuple[str, ...]  # architectures of the picture
    decoders: Annotated[Decoders, Prefix("causal_")]  # theirs

    def __post_init__(self) -> None:
        for name in ("rows", "tasks", "picture_rows", "seeds"):
            check_distinct(name, getattr(self, name))
        for row in self.rows:
            check_choice("rows", row, (*VARIANTS, "roformer-v1", "roformer-v2"))
        for name in ("tune_epochs", "tune_batch_sizes"):
            for task in self.tasks:
                check_choice(name, task, getattr(self, name))


def unit(s: int, attention_dropout: float, **options: Any) -> dict[str, Any]:
    """The field of a model with the options of its gated units."""
    return {"attention_options": {GAU: {"s": s, "dropout": attention_dropout, **options}}}


def decoder_s(dim: int) -> int:
    """The width of a decoder's queries and keys: the published share of the model's, 128 of 768.

    The other decoders are notebook 04's as they are, and with this s two units are as large as their layers to 3%.
    """
    return 2 * round(dim / 12)


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The encoder of a row. GAU has two layers where RoFormer has one of attention and one FFN (Section 2.3).

    As published s is twice the width of a head of RoFormer. In narrow models W_z then weighs more than there, which
    ``ffn`` makes up for in RoFormer.
    """
    fields: dict[str, Any] = {"attention_dropout": parameters.attention_dropout}
    name = row
    if row in VARIANTS:
        name, (own, options) = GAU, VARIANTS[row]
        fields |= own | unit(2 * parameters.dim // parameters.heads, parameters.attention_dropout, **options)
    elif parameters.ffn:
        fields["hidden"] = parameters.ffn
    longest = max(parameters.length, parameters.tune_length)
    return replace(language_models.model(name, parameters, **fields), max_length=longest)


def pretraining(row: str, seed: int, rate: float, label: str, parameters: Parameters) -> RunConfig:
    """One pre-training by whole-word masking; Table 7 has Adam's settings."""
    own = replace(parameters, learning_rate=rate)
    run = language_models.run(f"words-{label}", model(row, parameters), seed, own)
    return replace(
        run,
        data=replace(run.data, masking=MASKING),
        optimizer=replace(run.optimizer, betas=_BETAS),
        # Above, a uniform guess is better by a nat.
        bands=(Band(max(parameters.steps // 10, 1), 0.5, math.log(run.model.vocab_size) + 1.0),),
    )


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return pretraining(row, seed, rate, label, parameters)

    return rates.Search(parameters, parameters.rows, parameters.seeds, make)


def encoder(row: str, seed: int, parameters: Parameters) -> RunConfig:
    """The pre-training that the fine-tuning of a row and seed starts from."""
    rate = rates.own(parameters, row).learning_rate
    searched = seed in parameters.rate_seeds and rate in parameters.rates_tried
    return pretraining(row, seed, rate, f"{row}-lr{rate:g}" if searched else row, parameters)


def task_data(task: str, parameters: Parameters) -> DataConfig:
    """A task in the encoders' characters; a pair of texts is one sequence."""
    limit = {"train": parameters.train_examples[task]} if task in parameters.train_examples else {}
    return DataConfig(
        corpus=parameters.corpus,
        vocabulary=parameters.vocabulary,
        task="classify",
        length=parameters.tune_length,
        batch_size=parameters.tune_batch_sizes[task],
        task_name=task,
        joined=task_definition(task).pairs,
        limit=limit,
    )


def tuning(task: str, row: str, seed: int, rate: float, parameters: Parameters) -> RunConfig:
    """The fine-tuning of one row's encoder; Table 6 has Adam's settings, the warm-up and the linear decay.

    Where a test split has labels, it is measured once, at the end.
    """
    base, data = encoder(row, seed, parameters), task_data(task, parameters)
    steps = steps_of(
        parameters.tune_epochs[task], classification.epoch(task, parameters.train_examples), data.batch_size
    )
    dropout = parameters.tune_dropout
    return classification.run(
        f"{task}-{row}-lr{rate:g}-seed{seed}",
        replace(base.model, dropout=dropout),
        data,
        OptimizerConfig(
            learning_rate=rate,
            schedule="linear",
            warmup=round(_WARMUP * steps),
            betas=_BETAS,
            clip_norm=parameters.clip_norm,
        ),
        {"pooling": parameters.pooling, "head_dropout": dropout},
        steps=steps,
        seed=seed,
        start_from=base,
        evaluations=parameters.tune_evaluations,
        keep=parameters.tune_keep,
        measured_at_end=("test",) if "test" in task_definition(task).splits else (),
        precision=parameters.precision,
    )


def tunings(task: str, parameters: Parameters) -> rates.Search:
    """The fine-tunings on a task, each row at its own rate ("TASK ROW" in ``tune_rates``), else at the task's.

    Raises ValueError for a task and row without a rate.
    """
    own = rates.under(task, parameters.tune_rates)
    if task not in parameters.tune_rates and (lacking := [row for row in parameters.rows if row not in own]):
        given = dict(parameters.tune_rates)
        raise ValueError(f"tune_rates={given!r}: must have {task!r} or '{task} {lacking[0]}'")
    searched = replace(
        parameters,
        learning_rate=parameters.tune_rates.get(task, 0.0),
        rates=own,
        rates_tried=parameters.tune_rates_tried,
    )

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return tuning(task, row, seed, rate, parameters)

    return rates.Search(
        searched,
        parameters.rows,
        parameters.seeds,
        make,
        score=lambda run: final_error(run, task_definition(task).metrics[0]),
        scored=f"validation error on {task}, percent,",
    )


def final_error(run: Run, metric: str) -> float:
    """What the metric lacks of 100 percent on the validation texts; infinite where the run diverged."""
    return 100.0 - 100.0 * run.validation[metric] if run.record["status"] == "finished" else math.inf


def decoder(row: str, parameters: Parameters) -> ModelConfig:
    """A decoder of the picture: notebook 04's, so that its runs serve both, and GAU of as many parameters.

    As in the other decoders the norm comes before each layer; in the paper's encoder it comes after.
    """
    if row != GAU:
        return language_models.model(row, parameters.decoders)
    fields = {"norm_placement": "pre", **unit(decoder_s(parameters.decoders.dim), 0.0)}
    shape = language_models.model(GAU, parameters.decoders, **fields)
    return replace(shape, attention=(GAU,) * (2 * parameters.decoders.layers))


def picture(parameters: Parameters) -> rates.Search:
    """The decoders of the picture, each at its own learning rate."""

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        own = replace(parameters.decoders, learning_rate=rate)
        return language_models.run(label, decoder(row, parameters), seed, own)

    return rates.Search(parameters.decoders, parameters.picture_rows, parameters.decoders.seeds, make)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The pre-trainings with their search, the fine-tunings with theirs, then the decoders. Reads no data."""
    found = search(parameters).runs()
    for task in parameters.tasks:
        found += tunings(task, parameters).runs()
    return found + picture(parameters).runs()
