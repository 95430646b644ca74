"""What the runs of notebook 03 say: how local their attention is, and the losses of Table 3's mixtures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from transnormer_lib.analysis import seeds
from transnormer_lib.analysis.dilution import Locality, curve_distance, leak_between_blocks, model_locality
from transnormer_lib.data.batches import evaluation_windows
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.attention_dilution.runs import Parameters, search
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import final_bits
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.training.store import RunStore

_ROWS = 5  # fewest of which a rank correlation says something


@dataclass(frozen=True)
class MeasuredAttention(Measured):
    """One run's attention, before and after training, on the same held-out sequences."""

    trained: Locality
    untrained: Locality
    leak: float  # largest influence of one block on another in its DiagAttention layers; 0 without such layers

    def localities(self) -> tuple[tuple[str, Locality], ...]:
        """Both, by name."""
        return ("trained", self.trained), ("untrained", self.untrained)


def held_out(parameters: Parameters) -> Tensor:
    """The validation sequences [B, N] that attention is measured on, the same for every model."""
    tokens = language_models.corpus(parameters).tokens["validation"]
    n = parameters.sequences
    windows = evaluation_windows(tokens, length=parameters.length, batch_size=n, limit=n)
    return torch.cat([window["input_ids"] for window in windows])


def measure(parameters: Parameters, store: RunStore) -> list[MeasuredAttention]:
    """Train or load the runs of Figure 2 and of the others, and measure how local their attention is."""
    input_ids = held_out(parameters)
    measured = []
    asked = (*parameters.architectures, *parameters.others)
    for row, seed, run in search(parameters).trained(store, asked):
        model, untrained = run.model(), build_model(run.config.model, seed)
        localities = model_locality(model, input_ids), model_locality(untrained, input_ids)
        leak = leak_between_blocks(model, parameters.length)
        measured.append(MeasuredAttention(row, seed, final_bits(run), run, *localities, leak))
    return measured


def mixture_bits(parameters: Parameters, store: RunStore) -> dict[str, list[float]]:
    """Table 3: the validation loss of each mixture in bits per token, in the order of the seeds."""
    found = search(parameters).trained(store, parameters.mixtures, weights=False)
    bits = by_row([Measured(row, seed, final_bits(run), run) for row, seed, run in found])
    return {row: bits[row] for row in parameters.mixtures}


def quality(bits: Mapping[str, Sequence[float]], ngrams: Mapping[str, float]) -> list[dict[str, Any]]:
    """One line per row: mean and range of the loss over the seeds; n-gram models below."""
    lines: list[dict[str, Any]] = [
        {"model": row, "mean": seeds.mean(values), "range": seeds.spread(values, 3)} for row, values in bits.items()
    ]
    return lines + [{"model": name, "mean": value, "range": None} for name, value in ngrams.items()]


def distances(measured: Sequence[MeasuredAttention], reference: str) -> dict[str, list[float]]:
    """How far the curves of each row are from those of ``reference``, averaged over layers, for every seed."""
    trained = by_row(measured, "trained")
    return {row: list(map(curve_distance, ours, trained[reference])) for row, ours in trained.items()}


def area_table(measured: Sequence[MeasuredAttention], reference: float) -> list[dict[str, Any]]:
    """One line per row: areas before and after training, the excess over complete dilution, and empty rows."""
    untrained, empty = by_row(measured, "untrained.area"), by_row(measured, "trained.empty_rows")
    return [
        {
            "model": row,
            "trained": seeds.mean(areas),
            "range": seeds.spread(areas, 3),
            "untrained": seeds.mean(untrained[row]),
            "above dilution": seeds.mean(areas) - reference,
            "empty rows": seeds.mean(empty[row]),
        }
        for row, areas in by_row(measured, "trained.area").items()
    ]


def curves(measured: Sequence[MeasuredAttention]) -> pd.DataFrame:
    """Figure 2a as a tidy frame: architecture, seed, state, neighbourhood (x), score (y)."""
    return pd.concat(
        pd.DataFrame(
            {
                "architecture": m.row,
                "seed": m.seed,
                "state": state,
                "neighbourhood": locality.mean_sizes,
                "score": np.linspace(0, 1, locality.sizes.shape[-1]),
            }
        )
        for m in measured
        for state, locality in m.localities()
    )


def most_local(measured: Sequence[MeasuredAttention], reference: float) -> str:
    """Which rows have the most and the least local attention after training, beside complete dilution's area."""
    after = {row: seeds.mean(areas) for row, areas in by_row(measured, "trained.area").items()}
    before = {row: seeds.mean(areas) for row, areas in by_row(measured, "untrained.area").items()}
    most, least = max(after, key=after.__getitem__), min(after, key=after.__getitem__)
    told = f"After training {most} is the most local (area {after[most]:.3f}, untrained {before[most]:.3f})"
    if most != least:
        told += f", {least} the least ({after[least]:.3f}, untrained {before[least]:.3f})"
    return f"{told}; complete dilution has {reference:.3f}."


def halves(measured: Sequence[MeasuredAttention], reference: float) -> str:
    """The areas of each row's early and late layers after training, in a sentence."""
    early, late = half_areas(measured, "early"), half_areas(measured, "late")
    said = ", ".join(f"{row} {seeds.mean(early[row]):.3f} and {seeds.mean(late[row]):.3f}" for row in early)
    return f"Area of the first and the second half of the layers: {said}; complete dilution {reference:.3f}."


def near(weights: np.ndarray, reach: int) -> float:
    """The share of all weight [N, N] that lies less than ``reach`` tokens from its query; NaN without any weight."""
    query, key = np.indices(weights.shape)
    return float(weights[abs(query - key) < reach].sum() / weights.sum()) if weights.any() else math.nan


def near_in_words(maps: Mapping[str, np.ndarray], reach: int) -> str:
    """By row, the share of the weight near its query in the first and the last layer of the maps [layers, N, N].

    A layer without any weight has the share nan.
    """
    shares = {row: [near(of[layer], reach) for layer in (0, -1)] for row, of in maps.items()}
    said = [f"{row} {100 * first:.0f}% and {100 * last:.0f}%" for row, (first, last) in shares.items()]
    return f"Weight less than {reach} tokens from its query, in the first and the last layer: {', '.join(said)}."


def layer_areas(measured: Sequence[MeasuredAttention]) -> pd.DataFrame:
    """Area under each layer's curve as a tidy frame: architecture, seed, state, layer (from 1), area."""
    return pd.DataFrame(
        [
            {"architecture": m.row, "seed": m.seed, "state": state, "layer": layer, "area": area}
            for m in measured
            for state, locality in m.localities()
            for layer, area in enumerate(locality.areas, start=1)
        ]
    )


Half = Literal["early", "late"]


def half_areas(measured: Sequence[MeasuredAttention], half: Half, state: str = "trained") -> dict[str, list[float]]:
    """The area over the ``early`` or the ``late`` half of each row's layers, in the order of the seeds."""
    return {row: [one.half_area(half) for one in found] for row, found in by_row(measured, state).items()}


def dilution_and_loss(measured: Sequence[MeasuredAttention]) -> list[dict[str, Any]]:
    """One line per row, the most local first: the mean area after training, and the mean loss with its range."""
    losses = by_row(measured)
    return [
        {
            "model": row,
            "area": seeds.mean(areas),
            "loss": seeds.mean(losses[row]),
            "range": seeds.spread(losses[row], 3),
        }
        for row, areas in sorted(by_row(measured, "trained.area").items(), key=lambda item: -seeds.mean(item[1]))
    ]


def locality_with_loss(measured: Sequence[MeasuredAttention]) -> list[float]:
    """Per seed, in the seeds' order, the rank correlation (Spearman's) over the rows of the area with minus the loss.

    1: the more local a row's attention, the lower its loss. Empty with fewer than five rows or a run that diverged.
    """
    areas, losses = pd.DataFrame(by_row(measured, "trained.area")), pd.DataFrame(by_row(measured))
    if areas.shape[1] < _ROWS or not np.isfinite(losses.to_numpy()).all():
        return []
    return areas.rank(axis=1).corrwith(-losses.rank(axis=1), axis=1).tolist()


def conclusions(
    measured: Sequence[MeasuredAttention], mixtures: Mapping[str, Sequence[float]], reference: float
) -> list[str]:
    """What the runs say about locality before and after training, NormAttention's own, and Table 3, in sentences.

    ``reference`` is the area of complete dilution.
    """
    before, after = by_row(measured, "untrained.area"), by_row(measured, "trained.area")
    early, late = half_areas(measured, "early"), half_areas(measured, "late")
    early_before = half_areas(measured, "early", "untrained")
    lines = []
    for name in after:
        lines.append(
            f"{name}: area {seeds.mean(after[name]):.3f} after training, {seeds.mean(before[name]):.3f} before it; "
            f"complete dilution has {reference:.3f}."
        )
        if name.startswith("transnormer"):
            above = seeds.mean(late[name]) - reference
            lines.append(
                f"{name}: its DiagAttention layers have area {seeds.mean(early[name]):.3f} "
                f"({seeds.mean(early_before[name]):.3f} before training), its NormAttention layers "
                f"{seeds.mean(late[name]):.3f}, which is {above:+.3f} from complete dilution."
            )
    ordered = sorted(mixtures, key=lambda name: seeds.mean(mixtures[name]))
    return [*lines, *([f"Table 3's rows from the lowest loss: {', '.join(ordered)}."] if ordered else [])]
