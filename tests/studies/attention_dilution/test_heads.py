"""Maps by head: what the page's script unpacks is what was measured, and long sequences stay small."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transnormer_lib.analysis.dilution import neighbourhood_sizes, uniform_weights
from transnormer_lib.show.movable import LARGEST
from transnormer_lib.studies.attention_dilution import heads


def random_maps(n: int, *, causal: bool, layers: int = 2, count: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(layers, count, n, n, generator=generator)
    if causal:
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    return list(scores.softmax(-1))


def unpacked(data: Any, model: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Map and curve of one head, as the script reads them."""
    side, own = data["side"], data["models"][model]
    seen = np.tril(np.ones((side, side), bool)) if data["causal"] else np.ones((side, side), bool)
    cells = np.frombuffer(base64.b64decode(own["maps"]), "u1").reshape(-1, seen.sum())[head]
    found = np.zeros((side, side))
    found[seen] = own["largest"][head] * (cells / 255) ** 2
    return found, np.frombuffer(base64.b64decode(own["sizes"]), "<u2").reshape(-1, 100)[head] / 65535


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])
def test_a_head_comes_back_as_it_was_measured(causal: bool) -> None:
    maps = {name: random_maps(20, causal=causal) for name in ("vanilla", "linear")}
    data = heads.movable(maps, causal=causal).data
    assert (data["side"], data["tokens"]) == (20, 20)
    assert data["alike"] == pytest.approx(neighbourhood_sizes(uniform_weights(20, causal=causal)).tolist(), abs=1e-5)
    for model, layers in enumerate(maps.values()):
        assert data["models"][model]["heads"] == [3, 3]
        for head, weights in enumerate(torch.cat(layers)):
            seen, curve = unpacked(data, model, head)
            assert np.abs(np.sqrt(seen) - weights.sqrt().numpy()).max() < 1 / 255
            assert np.abs(curve - neighbourhood_sizes(weights).numpy()).max() < 1e-5


def test_many_long_maps_are_drawn_in_cells_with_the_curves_of_the_whole_map() -> None:
    maps = {name: random_maps(130, causal=True, layers=4, count=4) for name in ("vanilla", "linear", "transnormer-t2")}
    moves = heads.movable(maps, causal=True)
    data = moves.data
    assert len(moves.json) < LARGEST
    assert 32 < data["side"] < 130
    seen, curve = unpacked(data, 1, 5)
    cell = -(-130 // data["side"])
    whole = torch.cat(maps["linear"])[5]
    assert seen[2, 1] == pytest.approx(float(whole[2 * cell : 3 * cell, cell : 2 * cell].mean()), rel=0.02)
    assert np.abs(curve - neighbourhood_sizes(whole).numpy()).max() < 1e-5


def test_an_empty_head_has_an_empty_map() -> None:
    seen, _ = unpacked(heads.movable({"vanilla": [torch.zeros(1, 4, 4)]}, causal=True).data, 0, 0)
    assert not seen.any()
