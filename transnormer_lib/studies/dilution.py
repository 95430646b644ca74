"""The runs behind Figure 2: each architecture, trained on the same text with the same budget, over seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from transnormer_lib.models.config import ModelConfig, architecture
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from transnormer_lib.analysis.dilution import Locality
    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.models.language_model import LanguageModel
    from transnormer_lib.training.store import RunStore

# The notebook's parameters that decide which runs there are and what is measured on them.
PARAMETERS = (
    "architectures",
    "seeds",
    "task",
    "vocabulary",
    "dim",
    "heads",
    "layers",
    "block_size",
    "length",
    "steps",
    "batch_size",
    "learning_rate",
    "validation_windows",
    "sequences",
)


def model(name: str, parameters: Mapping[str, Any]) -> ModelConfig:
    """The config of one architecture at the notebook's size."""
    from transnormer_lib.data.vocabulary import vocabulary_size

    return architecture(
        name,
        kind="decoder" if parameters["task"] == "causal" else "encoder",
        vocab_size=vocabulary_size(parameters["vocabulary"]),
        max_length=parameters["length"],
        dim=parameters["dim"],
        heads=parameters["heads"],
        layers=parameters["layers"],
        block_size=parameters["block_size"],
    )


def runs(parameters: Mapping[str, Any]) -> list[RunConfig]:
    """One run per architecture and seed, architectures first."""
    return [
        RunConfig(
            name=f"dilution-{name}-{parameters['task']}-seed{seed}",
            model=model(name, parameters),
            data=DataConfig(
                vocabulary=parameters["vocabulary"],
                task=parameters["task"],
                length=parameters["length"],
                batch_size=parameters["batch_size"],
            ),
            optimizer=OptimizerConfig(
                learning_rate=parameters["learning_rate"],
                schedule="cosine",
                warmup=parameters["steps"] // 10,
                clip_norm=1.0,
            ),
            steps=parameters["steps"],
            seed=seed,
            validation_windows=parameters["validation_windows"],
        )
        for name in parameters["architectures"]
        for seed in parameters["seeds"]
    ]


@dataclass(frozen=True)
class Measured:
    """One run's attention, before and after training, on the same held-out sequences."""

    architecture: str
    seed: int
    bits: float  # validation loss, base 2: per byte of text for a causal model, per masked token for a masked one
    trained: "Locality"
    untrained: "Locality"
    seconds: float  # of training, whenever that was
    weight_outside_blocks: float  # largest weight of a DiagAttention layer outside its block; 0 without such layers


def held_out(parameters: Mapping[str, Any]) -> "Tensor":
    """The validation sequences [B, N] that attention is measured on, the same for every model."""
    import torch

    from transnormer_lib.data.batches import evaluation_windows
    from transnormer_lib.data.text import load_text_corpus

    tokens = load_text_corpus("wikipedia", parameters["vocabulary"]).tokens["validation"]
    windows = evaluation_windows(
        tokens, length=parameters["length"], batch_size=parameters["sequences"], limit=parameters["sequences"]
    )
    return torch.cat([window["input_ids"] for window in windows])


def measure(parameters: Mapping[str, Any], store: "RunStore") -> list[Measured]:
    """Train or load every run and measure how local its attention is."""
    from transnormer_lib.analysis.dilution import model_locality
    from transnormer_lib.models.language_model import build_model

    input_ids = held_out(parameters)
    keys = product(parameters["architectures"], parameters["seeds"])
    measured = []
    for (name, seed), config in zip(keys, runs(parameters), strict=True):
        run = store.get(config)
        trained = run.model()
        measured.append(
            Measured(
                architecture=name,
                seed=seed,
                bits=run.validation.get("bits_per_byte", run.validation["nats_per_token"] / math.log(2)),
                trained=model_locality(trained, input_ids),
                untrained=model_locality(build_model(config.model, config.seed), input_ids),
                seconds=run.record["seconds"],
                weight_outside_blocks=_outside_blocks(trained, input_ids[:4]),
            )
        )
    return measured


def _outside_blocks(model: "LanguageModel", input_ids: "Tensor") -> float:
    import torch

    largest, position = 0.0, torch.arange(input_ids.shape[1])
    for name, weights in zip(model.config.attention, model.attention_weights(input_ids), strict=True):
        if name == "diag":
            block = position // model.config.attention_options["diag"]["block_size"]
            largest = max(largest, weights[..., block[:, None] != block[None, :]].max().item())
    return largest


def quality(measured: Sequence[Measured], corpus: "TextCorpus", task: str) -> "pd.DataFrame":
    """Validation bits of each architecture over its seeds, and of n-gram models on the same tokens.

    A masked model sees both sides of a gap, for which the higher n-gram models are no baseline: there the unigram
    stands alone.
    """
    from transnormer_lib.data.ngrams import ngram_baselines

    rows = []
    for name in dict.fromkeys(m.architecture for m in measured):
        bits = per_seed(measured, name, lambda m: m.bits)
        rows.append({"model": name, "mean": np.mean(bits), "smallest": min(bits), "largest": max(bits)})
    for gram in ngram_baselines(corpus, order=3 if task == "causal" else 1):
        bits_of_gram = gram.bits_per_byte if task == "causal" else gram.nats_per_token / math.log(2)
        rows.append({"model": f"{gram.order}-gram", "mean": bits_of_gram})
    return _frame(rows)


def learned(quality: "pd.DataFrame", measured: Sequence[Measured], task: str) -> bool:
    """Whether every run beats the bigram (a causal model) or the unigram (a masked one)."""
    baseline = quality.set_index("model")["mean"]["2-gram" if task == "causal" else "1-gram"]
    return all(m.bits < baseline for m in measured)


def area_table(measured: Sequence[Measured], reference: float) -> "pd.DataFrame":
    """Areas before and after training, what training left above complete dilution, and rows without any weight."""
    rows = []
    for name in dict.fromkeys(m.architecture for m in measured):
        areas = per_seed(measured, name, lambda m: m.trained.area)
        rows.append(
            {
                "model": name,
                "trained": np.mean(areas),
                "smallest": min(areas),
                "largest": max(areas),
                "untrained": np.mean(per_seed(measured, name, lambda m: m.untrained.area)),
                "above dilution": np.mean(areas) - reference,
                "empty rows": np.mean(per_seed(measured, name, lambda m: m.trained.empty_rows)),
            }
        )
    return _frame(rows)


def _frame(rows: "list[dict[str, Any]]") -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows)


def curves(measured: Sequence[Measured]) -> "pd.DataFrame":
    """Figure 2a as a tidy frame: architecture, seed, state, neighbourhood (x), score (y)."""
    import pandas as pd

    return pd.concat(
        pd.DataFrame(
            {
                "architecture": m.architecture,
                "seed": m.seed,
                "state": state,
                "neighbourhood": locality.mean_sizes,
                "score": np.linspace(0, 1, locality.sizes.shape[-1]),
            }
        )
        for m in measured
        for state, locality in (("trained", m.trained), ("untrained", m.untrained))
    )


def layer_areas(measured: Sequence[Measured]) -> "pd.DataFrame":
    """Area under each layer's curve as a tidy frame: architecture, seed, state, layer (from 1), area."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"architecture": m.architecture, "seed": m.seed, "state": state, "layer": layer + 1, "area": area}
            for m in measured
            for state, locality in (("trained", m.trained), ("untrained", m.untrained))
            for layer, area in enumerate(locality.areas)
        ]
    )


def per_seed(measured: Sequence[Measured], architecture: str, value: Callable[[Measured], float]) -> list[float]:
    """``value`` of each run of one architecture, in the order of the seeds: what a paired ordering needs."""
    return [value(m) for m in sorted(measured, key=lambda m: m.seed) if m.architecture == architecture]
