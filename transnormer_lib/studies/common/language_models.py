"""From a notebook's parameters to the config of a language-model run, and the text that it reads.

Notebooks that ask for the same run get the same ``RunConfig``, so the store trains it once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from transnormer_lib.checks import check_distinct
from transnormer_lib.data.batches import evaluation_windows
from transnormer_lib.data.corpora import corpus_vocabulary_size, load_text_corpus
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.data.ngrams import ngram_baselines
from transnormer_lib.data.sources import in_data_root
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.two_sided_ngrams import two_sided_bits
from transnormer_lib.data.wikitext import WORD_LEVEL
from transnormer_lib.models.architectures import architecture, depth
from transnormer_lib.models.config import Init, Kind, ModelConfig
from transnormer_lib.training.config import Band, DataConfig, OptimizerConfig, Precision, RunConfig, Schedule, Task
from transnormer_lib.training.stored_run import Run

_WARMUP_START = 1e-7  # the rate from which the released scripts warm up
_EPS = {"causal": 1e-8, "masked": 1e-6}  # Adam's ε of Table 13
_IN_NAMES = str.maketrans("+/", "--")  # what a run's name may not hold
RELEASED = "+released"  # ends the name of a row in the released recipe
TWO_SIDED = "two-sided 3-gram"  # the baseline of masked models: it reads one token on either side


@dataclass(frozen=True)
class LanguageModelParameters:
    """The parameters that every study of language models reads."""

    corpus: str  # the text
    vocabulary: str  # bytes, bpe-N, gpt2-bpe or wikitext-103-words
    task: Task  # causal: decoders; masked: encoders
    dim: int  # model width
    heads: int  # attention heads
    layers: int  # blocks; TransNormer's first half is DiagAttention
    block_size: int  # DiagAttention's block
    init: Init  # initial weights
    length: int  # tokens per sequence
    steps: int  # optimiser steps
    batch_size: int  # sequences per step
    accumulate: int  # pieces that a step is cut into, to fit memory
    precision: Precision  # of the matrix products
    learning_rate: float  # highest rate of the schedule
    rates: Mapping[str, float]  # a row's own learning rate; rows without one take learning_rate
    schedule: Schedule  # after the warm-up
    warmup: int  # steps of warm-up
    clip_norm: float  # largest norm of the gradient; 0: no limit
    dropout: float  # of embeddings and residual branches
    validation_windows: int  # held-out sequences on which the loss is measured; decoders: of the test text too
    bands: tuple[tuple[float, float, float], ...]  # step, lowest and highest training loss (nats) expected there


@dataclass(frozen=True)
class Rows:
    """Which rows of a table a study trains, and with which seeds."""

    architectures: tuple[str, ...]  # rows of the table
    controls: tuple[str, ...]  # the baselines' attention in TransNormer's backbone recipe
    released: tuple[str, ...]  # rows trained as released too
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them

    def rows(self) -> list[str]:
        """Published architectures and matched controls in the ``paper`` recipe, then those as released."""
        return [*self.architectures, *self.controls, *map(released, self.released)]


def released(name: str) -> str:
    """The name of an architecture's row in the ``released`` recipe."""
    return name + RELEASED


def model(name: str, parameters: LanguageModelParameters, **fields: Any) -> ModelConfig:
    """The config of the architecture ``name`` at the notebook's size; ``fields`` as in ``architecture``.

    ``parameters.layers`` counts layers with feed-forward parts; FLASH, which has none, gets proportionally more blocks.
    """
    kind: Kind = "decoder" if parameters.task == "causal" else "encoder"
    return architecture(
        name,
        kind=kind,
        # A sample of WikiText-103 in a data root has fewer words than the published vocabulary.
        vocab_size=corpus_vocabulary_size(
            parameters.corpus, parameters.vocabulary, published=not in_data_root(WORD_LEVEL)
        ),
        dim=parameters.dim,
        heads=parameters.heads,
        layers=depth(name, kind, parameters.layers),
        block_size=parameters.block_size,
        **{
            "max_length": parameters.length,
            "dropout": parameters.dropout,
            "init": parameters.init,
            # fairseq draws embeddings with standard deviation dim^-1/2, to be scaled by dim^1/2.
            "scale_embedding": parameters.init == "fairseq",
            **fields,
        },
    )


def run(label: str, config: ModelConfig, seed: int, parameters: LanguageModelParameters, **fields: Any) -> RunConfig:
    """One training run of ``config`` with the notebook's data, optimiser and steps, named ``TASK-LABEL-seedN``."""
    whole = RunConfig(
        name=run_name(parameters.task, label, seed),
        model=config,
        data=DataConfig(
            corpus=parameters.corpus,
            vocabulary=parameters.vocabulary,
            task=parameters.task,
            length=parameters.length,
            batch_size=parameters.batch_size,
        ),
        optimizer=OptimizerConfig(
            learning_rate=parameters.learning_rate,
            schedule=parameters.schedule,
            warmup=parameters.warmup,
            warmup_start=_WARMUP_START if parameters.warmup and parameters.schedule != "onecycle" else 0.0,
            eps=_EPS[parameters.task],
            clip_norm=parameters.clip_norm,
        ),
        steps=parameters.steps,
        seed=seed,
        accumulate=parameters.accumulate,
        precision=parameters.precision,
        validation_windows=parameters.validation_windows,
        measured_at_end=("test",) if parameters.task == "causal" else (),
        bands=tuple(Band(int(step), low, high) for step, low, high in parameters.bands if step <= parameters.steps),
    )
    return replace(whole, **fields) if fields else whole


def waypoints(shares: Iterable[float], steps: int) -> tuple[int, ...]:
    """The steps at these shares of the training, without the last step, which is always measured."""
    return tuple(sorted({round(steps * share) for share in shares} - {steps}))


def grid(labels: Iterable[str], seeds: Iterable[int]) -> list[tuple[str, int]]:
    """Every label with every seed, labels first: the order of a study's runs.

    Raises ValueError for a label or seed that occurs twice, because its run would count as two, and for no seed.
    """
    labels, seeds = list(labels), list(seeds)
    check_distinct("architectures", labels)
    check_distinct("seeds", seeds)
    if labels and not seeds:
        raise ValueError("seeds=[]: must hold at least one")
    return [(label, seed) for label in labels for seed in seeds]


def unit(parameters: LanguageModelParameters) -> str:
    """The unit of a loss: a token of the ``bytes`` vocabulary is a byte."""
    return "bits per byte" if parameters.vocabulary == "bytes" else "bits per token"


def run_name(task: str, label: str, seed: int) -> str:
    """The name of a run: its task, what it is called by its study, its seed."""
    return f"{task}-{label.translate(_IN_NAMES)}-seed{seed}"


def final_bits(run: Run) -> float:
    """The last validation loss of a run, as :func:`bits_of` reads it from the record."""
    return bits_of(run.record)


def bits_of(record: Mapping[str, Any]) -> float:
    """The last validation loss in bits per token; infinite for a run that diverged, which loses every comparison."""
    return record["validation"][-1]["bits_per_token"] if record["status"] == "finished" else math.inf


def corpus(parameters: LanguageModelParameters) -> TextCorpus:
    """The text that the notebook's models are trained and measured on."""
    return load_text_corpus(parameters.corpus, parameters.vocabulary)


def ngram_bits(parameters: LanguageModelParameters, corpus: TextCorpus) -> dict[str, float]:
    """Bits per token of n-gram models by name: ``1-gram``, ``2-gram``, ``3-gram``; for masked models :data:`TWO_SIDED`.

    The first three read from left to right and are measured on the whole validation text. The last reads both sides of
    a selected token and is measured where the models are: in the same windows, with the same masks.
    """
    bits = {f"{gram.order}-gram": gram.nats_per_token / math.log(2) for gram in ngram_baselines(corpus)["validation"]}
    if parameters.task == "masked":
        masking, windows = MaskingConfig(), parameters.validation_windows
        batches = evaluation_windows(
            corpus.tokens["validation"],
            length=parameters.length,
            batch_size=windows,
            limit=windows,
            masked=(corpus.vocabulary, masking),
        )
        bits[TWO_SIDED] = two_sided_bits(corpus, batches, masking)
    return bits


@dataclass(frozen=True)
class Floor:
    """A simple model that every trained one should beat: one that does not has learned too little to be compared."""

    name: str
    bits: float  # per counted token


def floor(parameters: LanguageModelParameters, ngrams: Mapping[str, float]) -> Floor:
    """The floor among the ``ngrams`` of :func:`ngram_bits`: the bigram of decoders, of encoders :data:`TWO_SIDED`."""
    if parameters.task == "causal":
        return Floor("bigram", ngrams["2-gram"])
    return Floor(TWO_SIDED, ngrams[TWO_SIDED])


def printable(text: str) -> str:
    """The text with ⏎ for a new line and � for what cannot be printed."""
    signs = text.replace("\n", "⏎")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in signs)


def readable(corpus: TextCorpus, tokens: Tensor) -> str:
    """The text of tokens on one line, as :func:`printable`, with single spaces."""
    return " ".join(printable(corpus.vocabulary.decode(tokens.numpy()).replace("\n", " \n ")).split())
