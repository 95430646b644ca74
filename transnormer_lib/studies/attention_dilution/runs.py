"""The runs behind Figure 2: each architecture, trained on the same text with the same budget, over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from transnormer_lib.choices import Rotary
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import final_bits, grid, ngram_bits
from transnormer_lib.training.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from transnormer_lib.analysis.dilution import Locality
    from transnormer_lib.data.text import TextCorpus
    from transnormer_lib.training.store import RunStore

T = TypeVar("T")


@dataclass(frozen=True)
class Parameters(bidirectional.EncoderParameters):
    """The notebook's parameters that decide what is trained and measured."""

    architectures: tuple[str, ...]  # Figure 2
    mixtures: tuple[str, ...]  # Table 3: the early layers, then the later ones
    rotary: Rotary  # relative positions of all models
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    sequences: int  # held-out sequences on which attention is measured


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per architecture and seed: those of Figure 2, then the mixtures of Table 3 that are not among them.

    Decoders are those of notebook 04, encoders those of notebook 05, where their parameters are the same.
    """
    labels = dict.fromkeys((*parameters.architectures, *parameters.mixtures))
    rotary = parameters.rotary
    if parameters.task == "masked":
        return [
            bidirectional.run(name, seed, parameters, rotary=rotary) for name, seed in grid(labels, parameters.seeds)
        ]
    return [
        language_models.run(name, language_models.model(name, parameters, rotary=rotary), seed, parameters)
        for name, seed in grid(labels, parameters.seeds)
    ]


@dataclass(frozen=True)
class Measured:
    """One run's attention, before and after training, on the same held-out sequences."""

    architecture: str
    seed: int
    bits: float  # validation loss per token, base 2; infinite where the run diverged
    trained: "Locality"
    untrained: "Locality"
    seconds: float  # of training, whenever that was
    leak: float  # largest influence of one block on another in its DiagAttention layers; 0 without such layers


def held_out(parameters: Parameters) -> "Tensor":
    """The validation sequences [B, N] that attention is measured on, the same for every model."""
    import torch

    from transnormer_lib.data.batches import evaluation_windows

    tokens = language_models.corpus(parameters).tokens["validation"]
    windows = evaluation_windows(
        tokens, length=parameters.length, batch_size=parameters.sequences, limit=parameters.sequences
    )
    return torch.cat([window["input_ids"] for window in windows])


def measure(parameters: Parameters, store: "RunStore") -> list[Measured]:
    """Train or load the runs of Figure 2 and measure how local their attention is."""
    from transnormer_lib.analysis.dilution import leak_between_blocks, model_locality
    from transnormer_lib.models.language_model import build_model

    input_ids = held_out(parameters)
    configs = {config.name: config for config in runs(parameters)}
    measured = []
    for name, seed in grid(parameters.architectures, parameters.seeds):
        config = configs[language_models.run_name(name, seed, parameters)]
        run = store.get(config)
        trained = run.model()
        measured.append(
            Measured(
                architecture=name,
                seed=seed,
                bits=final_bits(run),
                trained=model_locality(trained, input_ids),
                untrained=model_locality(build_model(config.model, config.seed), input_ids),
                seconds=run.record["seconds"],
                leak=leak_between_blocks(trained, parameters.length),
            )
        )
    return measured


def mixture_bits(parameters: Parameters, store: "RunStore") -> dict[str, list[float]]:
    """Table 3: the validation loss of each mixture for every seed, in the order of the seeds; bits per token."""
    bits: dict[str, list[float]] = {name: [] for name in parameters.mixtures}
    configs = {config.name: config for config in runs(parameters)}
    for name, seed in grid(parameters.mixtures, parameters.seeds):
        config = configs[language_models.run_name(name, seed, parameters)]
        bits[name].append(final_bits(store.get(config)))
    return bits


def quality(measured: Sequence[Measured], corpus: "TextCorpus") -> "pd.DataFrame":
    """Validation bits per token of each architecture over its seeds, and of n-gram models on the same text."""
    rows = []
    for name in dict.fromkeys(m.architecture for m in measured):
        bits = per_seed(measured, name, lambda m: m.bits)
        rows.append({"model": name, "mean": np.mean(bits), "smallest": min(bits), "largest": max(bits)})
    rows += [{"model": name, "mean": bits} for name, bits in ngram_bits(corpus).items()]
    return _frame(rows)


def learned(measured: Sequence[Measured], bigram: float, names: Sequence[str]) -> bool:
    """Whether every run of these architectures beats the bigram: what has learned less is not compared."""
    return all(m.bits < bigram for m in measured if m.architecture in names)


def distances(measured: Sequence[Measured], architecture: str, reference: str) -> list[float]:
    """How unlike the curves of two architectures are, layer by layer, for every seed."""
    from transnormer_lib.analysis.dilution import curve_distance

    ours, theirs = (per_seed(measured, name, lambda m: m.trained) for name in (architecture, reference))
    return [curve_distance(a, b) for a, b in zip(ours, theirs, strict=True)]


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


def per_seed(measured: Sequence[Measured], architecture: str, value: Callable[[Measured], T]) -> list[T]:
    """``value`` of each run of one architecture, in the order of the seeds: what a paired ordering needs."""
    return [value(m) for m in sorted(measured, key=lambda m: m.seed) if m.architecture == architecture]


def conclusions(measured: Sequence[Measured], mixtures: Mapping[str, Sequence[float]], reference: float) -> list[str]:
    """What the runs say about construction, NormAttention's own locality and Table 3, in sentences with their figures.

    ``reference`` is the area of complete dilution.
    """

    def mean(name: str, value: Callable[[Measured], float]) -> float:
        return float(np.mean(per_seed(measured, name, value)))

    lines = []
    for name in dict.fromkeys(m.architecture for m in measured):
        before, after = mean(name, lambda m: m.untrained.area), mean(name, lambda m: m.trained.area)
        lines.append(
            f"{name}: area {after:.3f} after training, {before:.3f} before it; complete dilution has {reference:.3f}."
        )
        if name.startswith("transnormer"):
            early, late = mean(name, lambda m: m.trained.early_area()), mean(name, lambda m: m.trained.late_area())
            untrained = mean(name, lambda m: m.untrained.early_area())
            lines.append(
                f"{name}: its DiagAttention layers have area {early:.3f} ({untrained:.3f} before training), its "
                f"NormAttention layers {late:.3f}, which is {late - reference:+.3f} from complete dilution."
            )
    ordered = sorted(mixtures, key=lambda name: float(np.mean(mixtures[name])))
    lines.append("Table 3's rows from the lowest loss: " + ", ".join(ordered) + ".")
    return lines
