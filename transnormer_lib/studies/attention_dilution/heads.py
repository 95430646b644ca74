"""Attention maps head by head, each with its curve: a figure in which a visitor chooses model, layer and head."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.colors import to_hex
from torch import Tensor

from transnormer_lib.analysis.dilution import neighbourhood_sizes, uniform_weights
from transnormer_lib.models.backbone import evaluating
from transnormer_lib.show.figures import look
from transnormer_lib.show.movable import Movable, packed
from transnormer_lib.studies.attention_dilution.results import MeasuredAttention, held_out
from transnormer_lib.studies.attention_dilution.runs import Parameters

_BYTES = 75_000  # of all maps together; base64 makes them a third longer
_SHADES = 32  # colours of a map


def maps(measured: Sequence[MeasuredAttention], parameters: Parameters) -> dict[str, list[Tensor]]:
    """The attention of each row's first seed on the first held-out sequence: per layer, [heads, n, n]."""
    input_ids = held_out(parameters)[:1]
    found = {}
    for m in measured:
        if m.seed == parameters.seeds[0]:
            model = m.run.model()
            with evaluating(model):
                found[m.row] = [weights[0].cpu() for weights in model.attention_weights(input_ids)]
    return found


def movable(maps: Mapping[str, Sequence[Tensor]], *, causal: bool) -> Movable:
    """The maps and curves for a page's script, 8 and 16 bits a number.

    A map's numbers are square roots of the weights over its largest one. Long sequences are drawn in cells of several
    tokens, so that all maps together stay small; the curves are always those of the whole map. Of a causal map only
    what a query can see is kept.
    """
    n = next(iter(maps.values()))[0].shape[-1]
    heads = sum(len(layer) for layers in maps.values() for layer in layers)
    cell = next(c for c in range(1, n + 1) if heads * _cells(math.ceil(n / c), causal) <= _BYTES or c == n)
    alike = neighbourhood_sizes(uniform_weights(n, causal=causal))
    data = {
        "models": [_model(name, torch.cat(list(layers)), cell, causal) | {"heads": [len(layer) for layer in layers]}
                   for name, layers in maps.items()],
        "tokens": n,
        "side": math.ceil(n / cell),
        "causal": causal,
        "alike": [round(float(size), 5) for size in alike],
        "colours": [to_hex(mpl.colormaps["viridis"](shade / (_SHADES - 1))) for shade in range(_SHADES)],
    }  # fmt: skip
    return Movable("maps", data, beside=True)


def _cells(side: int, causal: bool) -> int:
    return side * (side + 1) // 2 if causal else side * side


def _model(name: str, weights_HNN: Tensor, cell: int, causal: bool) -> dict[str, Any]:
    """One model's part of the data; H counts the heads of all layers."""
    pooled = torch.nn.functional.avg_pool2d(weights_HNN.float()[:, None], cell, ceil_mode=True)[:, 0]
    side = pooled.shape[-1]
    seen = torch.ones(side, side, dtype=torch.bool).tril(0 if causal else side)
    shades = pooled[:, seen]
    largest = shades.amax(-1, keepdim=True)
    roots = (shades / largest.clamp(min=torch.finfo(torch.float32).tiny)).sqrt()
    return look(name) | {
        "largest": [float(f"{value:.6g}") for value in largest[:, 0].tolist()],
        "maps": packed(roots.numpy(), "u1"),
        "sizes": packed(neighbourhood_sizes(weights_HNN).numpy(), "<u2"),
    }
