"""Attention dilution: locally accumulated attention scores (Section 3.2, Figure 2, Appendix F).

The paper's symbols: the score l(i, r, N) is the attention mass inside the neighbourhood of token i that covers the
fraction r of the N tokens. Appendix F draws its inverse: for each level P the fraction r that the neighbourhood needs
to hold the mass P. A steep curve means local attention; the diagonal means equal attention to everything.

Section 3.2 averages l over the tokens at a fixed r; Appendix F, which drew Figure 2, averages r at a fixed P. Both
curves have the same area, up to the steps of the levels, but different shapes where tokens differ. This module
follows Appendix F: :func:`neighbourhood_sizes` is the vectorised form, and :func:`appendix_f` transcribes the printed
pseudocode to prove the two equal, as printed or with :data:`REPAIRS`.

Shapes: n queries, m keys, P levels; leading dimensions (batch, heads, layers) are free.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from transnormer_lib.attention import DiagAttention, MultiHeadAttention
from transnormer_lib.checks import check_count
from transnormer_lib.models.backbone import evaluating

LEVELS = 100  # Appendix F's num
_ROUNDING = 1e-2  # allowed excess of a row's sum; half-precision weights round most

REPAIRS = (
    "The turn passes to the other side when one side is exhausted; as printed the loop then never ends.",
    "The left side ends after position 0; as printed it stops before it and w[0] is never added from the left.",
    "Nothing is read at position -1; as printed, row 0 wraps around and adds the row's last weight.",
    "The window's length is r - l - 1, the number of weights added so far; as printed, r - l + 1 counts two more,"
    " and only after a step to the left.",
)


class DoesNotEnd(RuntimeError):
    """The pseudocode as printed made more steps than any window needs, so it would loop forever."""


def appendix_f(w_nm: Tensor, *, repaired: bool, levels: int = LEVELS) -> Tensor:
    """Appendix F's loop on one attention matrix [n, m]; returns the mean neighbourhood per level, [levels].

    ``repaired=False`` follows the page and raises :class:`DoesNotEnd` where it would hang; ``repaired=True`` applies
    :data:`REPAIRS` and nothing else.
    """
    n, m = w_nm.shape
    level = torch.linspace(0, 1, levels, dtype=torch.float64)
    total = torch.zeros(levels, dtype=torch.float64)
    left_end, right_end = (-1, m) if repaired else (0, m)
    for i in range(n):
        row, count = w_nm[i].double(), torch.zeros(levels, dtype=torch.float64)
        left, right = i % m - 1, i % m + 1
        mass, length, j, to_right, moves = row[i % m].item(), 1, 1, False, 0
        while length < m and j < levels:
            if mass >= level[j].item():
                count[j] = length
                j += 1
                continue
            moves += 1
            if moves > 4 * m:
                raise DoesNotEnd(f"row {i} of {n}: the window stopped growing at l={left}, r={right}")
            leftward = not to_right
            if to_right and right != right_end:
                mass, right, to_right = mass + row[right].item(), min(right_end, right + 1), False
            elif leftward and left != left_end:
                mass, left, to_right = mass + row[left].item(), max(left_end, left - 1), True
            elif repaired:
                to_right = leftward
            if repaired:
                length = right - left - 1
            elif leftward:
                length = min(right - left + 1, m)
        # The window holds the whole row. The levels left need m tokens, even if rounding keeps the mass below them.
        count[j:] = m
        count[0] = 0
        total += count
    return total / n / m


def _outward_order(n: int, m: int) -> Tensor:
    """For each query i, the keys in the order in which Appendix F's window adds them, [n, m].

    The window starts at i mod m and grows left and right in turn, so keys are ordered by distance, left before right.
    """
    centre, key = (torch.arange(n) % m)[:, None], torch.arange(m)
    return torch.argsort(2 * (key - centre).abs() + (key > centre), dim=-1)


def neighbourhood_sizes(w: Tensor, levels: int = LEVELS) -> Tensor:
    """Appendix F's curve (its x-axis): the mean fraction of the sequence that a token needs to hold each mass level.

    ``w`` are attention weights [..., n, m], finite, not negative, with row sums of at most 1; the levels are
    P = 0, 1/(levels-1), …, 1. Returns float64 [..., levels], averaged over the n queries. A row whose mass stays below
    a level, for example an empty row, needs the whole sequence. Raises ValueError for other weights or fewer levels.
    """
    check_count("levels", levels, least=2)
    if w.ndim < 2:
        raise ValueError(f"w.shape={tuple(w.shape)}: needs at least the two dimensions [n, m]")
    if not bool(w.isfinite().all()):
        raise ValueError("w: has entries that are not finite; weights must be numbers")
    if bool((w < 0).any()):
        raise ValueError(f"w: smallest entry {w.min().item():.3g}; weights must not be negative")
    if bool((w.double().sum(-1) > 1 + _ROUNDING).any()):
        raise ValueError(f"w: largest row sum {w.double().sum(-1).max().item():.6g}; must not exceed 1")
    n, m = w.shape[-2:]
    order = _outward_order(n, m).to(w.device).expand(w.shape)
    mass = torch.cumsum(torch.gather(w.double(), -1, order), dim=-1)
    level = torch.linspace(0, 1, levels, dtype=torch.float64, device=w.device)
    # The first window whose mass reaches the level; m where rounding keeps the whole row below the level.
    size = torch.searchsorted(mass, level.expand(*mass.shape[:-1], levels).contiguous()) + 1
    size = size.clamp(max=m).double()
    size[..., 0] = 0
    return size.mean(dim=-2) / m


def area_under_curve(sizes: Tensor) -> Tensor:
    """Area under the curve of accumulated score (y) against neighbourhood (x), from [..., P] sizes to [...].

    Figure 2 puts the level on the y-axis, so the area is one minus the mean neighbourhood over the levels
    (trapezoids). If n tokens attend only to themselves the area is just above 1 - 1/n, so areas at different lengths
    are not comparable.
    """
    return 1.0 - torch.trapezoid(sizes, dx=1.0 / (sizes.shape[-1] - 1), dim=-1)


def uniform_weights(n: int, *, causal: bool) -> Tensor:
    """Complete dilution: every visible key has the same weight; float64 [n, n]."""
    visible = torch.ones(n, n, dtype=torch.float64).tril(0 if causal else n)
    return visible / visible.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Locality:
    """How local a model's attention is: per layer, averaged over heads and sequences."""

    sizes: np.ndarray  # [layers, levels] mean neighbourhood per level
    areas: np.ndarray  # [layers] area under each layer's curve
    maps: np.ndarray  # [layers, n, n] attention of the first sequence, averaged over heads
    empty_rows: float  # share of rows without any weight (ReLA may rectify all); they need the whole sequence

    @property
    def mean_sizes(self) -> np.ndarray:
        return self.sizes.mean(axis=0)

    @property
    def area(self) -> float:
        """Area under the model's mean curve."""
        return float(self.areas.mean())

    def half_area(self, half: Literal["early", "late"]) -> float:
        """:attr:`area` over the first or the second half of the layers, the paper's early and late stage."""
        middle = len(self.areas) // 2
        return float((self.areas[: max(middle, 1)] if half == "early" else self.areas[middle:]).mean())


def model_locality(model: torch.nn.Module, input_ids_BN: Tensor) -> Locality:
    """The locality of a :class:`~transnormer_lib.models.language_model.LanguageModel` on sequences [B, N].

    Holds the weights of all layers, [B, H, N, N] each, in memory at once.
    """
    sizes, maps, empty = [], [], []
    with evaluating(model):
        for weights in model.attention_weights(input_ids_BN):  # type: ignore[operator]
            sizes.append(neighbourhood_sizes(weights).mean(dim=(0, 1)).cpu())
            maps.append(weights[0].mean(dim=0).cpu())
            empty.append((weights.sum(-1) == 0).double().mean().item())
    stacked = torch.stack(sizes)
    layer_maps = torch.stack(maps).float().numpy()
    return Locality(stacked.numpy(), area_under_curve(stacked).numpy(), layer_maps, float(np.mean(empty)))


def curve_distance(a: Locality, b: Locality) -> float:
    """Mean |r_a - r_b| over layers and levels: how much two models' curves differ, layer by layer."""
    return float(np.abs(a.sizes - b.sizes).mean())


@torch.no_grad()
def leak_between_blocks(model: torch.nn.Module, length: int) -> float:
    """The largest change that one block's input causes outside the block in a DiagAttention layer; 0 means no leak.

    Every DiagAttention layer of ``model`` runs on random inputs [1, ``length``, D], then again with one block
    replaced, in the implementation that trains.
    """
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for layer in model.modules():
        if not isinstance(layer, MultiHeadAttention) or not isinstance(layer.attention, DiagAttention):
            continue
        w = layer.attention.config.block_size
        x = torch.randn(1, length, layer.q_proj.in_features, generator=generator)
        y = layer(x)
        for start in range(0, length, w):
            other = x.clone()
            other[:, start : start + w].normal_(generator=generator)
            change = (layer(other) - y).abs()
            change[:, start : start + w] = 0.0
            largest = max(largest, change.max().item())
    return largest
