"""Attention dilution: locally accumulated attention scores (Section 3.2, Figure 2, Appendix F).

The score ``l(i, r, N)`` is the attention mass inside the neighbourhood of token i that covers the fraction r of the
sequence. Appendix F draws its inverse: for each level P the fraction of the sequence that the neighbourhood must
reach before it holds the mass P. A curve that rises steeply means local attention; the diagonal means that a token
attends to everything alike.

The two differ in what is averaged over the tokens. Section 3.2 means l at a fixed r; Appendix F, which drew the figure,
averages the r that is needed at a fixed level P. The area under the curve is the same either way, up to the steps of
the levels; the shape is not where tokens differ. Everything here follows Appendix F.

:func:`neighbourhood_sizes` is the vectorised form; :func:`appendix_f` transcribes the printed pseudocode, as printed
or with the repairs listed in :data:`REPAIRS`, and exists to prove the two equal.
Shapes: n queries, m keys, P levels; leading dimensions (batch, heads, layers) are free.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

LEVELS = 100  # Appendix F's num
_ROUNDING = 1e-2  # what rounding may add to a row's sum; weights in half precision are the roughest

REPAIRS = (
    "The turn passes to the other side when one side is exhausted; as printed the loop then never ends.",
    "The left side ends after position 0; as printed it stops before it and w[0] is never added from the left.",
    "Nothing is read at position -1; as printed, row 0 wraps around and adds the row's last weight.",
    "The window's length is r - l - 1, the number of weights added so far; as printed, r - l + 1 counts two more,"
    " and only after a step to the left.",
)


class DoesNotEnd(RuntimeError):
    """The pseudocode as printed made more steps than any window needs: it would loop for ever."""


def appendix_f(w_nm: Tensor, *, repaired: bool, levels: int = LEVELS) -> Tensor:
    """Appendix F's loop on one attention matrix [n, m]; returns the mean neighbourhood per level, [levels].

    ``repaired=False`` follows the page (and raises :class:`DoesNotEnd` where it would hang); ``repaired=True``
    applies :data:`REPAIRS` and nothing else. Reference code: a Python loop over tokens.
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
            if to_right:
                if right != right_end:
                    mass += row[right].item()
                    right = min(right_end, right + 1)
                    to_right = False
                elif repaired:
                    to_right = False
            else:
                if left != left_end:
                    mass += row[left].item()
                    left = max(left_end, left - 1)
                    to_right = True
                elif repaired:
                    to_right = True
                if not repaired:
                    length = min(right - left + 1, m)
            if repaired:
                length = right - left - 1
        # The whole row is inside the window: levels it reaches count m, as do those that rounding leaves open.
        count[j:] = m
        count[0] = 0
        total += count
    return total / n / m


def _outward_order(n: int, m: int) -> Tensor:
    """For each query i the keys in the order in which Appendix F's window takes them in, [n, m].

    The window starts at i mod m and grows to the left and to the right in turn, left first; once a side is
    exhausted, the other goes on. That is the order by distance, the left one first at equal distance.
    """
    centre = (torch.arange(n) % m)[:, None]
    key = torch.arange(m)[None, :]
    return torch.argsort(2 * (key - centre).abs() + (key > centre), dim=-1)


def neighbourhood_sizes(w: Tensor, levels: int = LEVELS) -> Tensor:
    """Mean fraction of the sequence that must be taken in around a token to hold each mass level.

    Args:
        w: attention weights [..., n, m], finite, not negative, rows summing to at most 1.
        levels: how many levels P = 0, 1/(levels-1), …, 1.

    Returns:
        float64 [..., levels], averaged over the n queries: Appendix F's curve (its x-axis). A row whose mass stays
        below a level, an empty row above all, counts as needing the whole sequence.

    Raises:
        ValueError: ``w`` has fewer than two dimensions, entries that are no weights, or rows of more than 1;
            ``levels`` is below 2.
    """
    if w.ndim < 2:
        raise ValueError(f"w.shape={tuple(w.shape)}: needs at least the two dimensions [n, m]")
    if levels < 2:
        raise ValueError(f"levels={levels!r}: must be at least 2, the levels 0 and 1")
    if not bool(w.isfinite().all()):
        raise ValueError("w: holds entries that are not finite; weights must be numbers")
    if bool((w < 0).any()):
        raise ValueError(f"w: smallest entry {w.min().item():.3g}; weights must not be negative")
    if bool((w.double().sum(-1) > 1 + _ROUNDING).any()):
        raise ValueError(f"w: largest sum of a row {w.double().sum(-1).max().item():.6g}; must not exceed 1")
    n, m = w.shape[-2:]
    order = _outward_order(n, m).to(w.device).expand(w.shape)
    mass = torch.cumsum(torch.gather(w.double(), -1, order), dim=-1)
    level = torch.linspace(0, 1, levels, dtype=torch.float64, device=w.device)
    # The size of the first window whose mass reaches the level; m where rounding keeps the whole row below it.
    size = torch.searchsorted(mass, level.expand(*mass.shape[:-1], levels).contiguous()) + 1
    size = size.clamp(max=m).double()
    size[..., 0] = 0
    return size.mean(dim=-2) / m


def area_under_curve(sizes: Tensor) -> Tensor:
    """Area under the curve of accumulated score (y) against neighbourhood (x), from [..., P] sizes to [...].

    Figure 2 puts the level on the y-axis, so the area is one minus the mean neighbourhood over the levels
    (trapezoids). Attention of n tokens to themselves alone, one token at every level, comes to just above 1 - 1/n:
    areas at different lengths do not compare.
    """
    levels = sizes.shape[-1]
    return 1.0 - torch.trapezoid(sizes, dx=1.0 / (levels - 1), dim=-1)


def uniform_weights(n: int, *, causal: bool) -> Tensor:
    """Complete dilution: every visible key has the same weight; float64 [n, n]."""
    visible = torch.ones(n, n, dtype=torch.float64)
    if causal:
        visible = visible.tril()
    return visible / visible.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Locality:
    """How local a model's attention is: per layer, averaged over heads and sequences."""

    sizes: np.ndarray  # [layers, levels] mean neighbourhood per level
    areas: np.ndarray  # [layers] area under each layer's curve
    maps: np.ndarray  # [layers, n, n] attention of the first sequence, averaged over heads
    empty_rows: float  # share of rows without any weight (ReLA may rectify all of them); they count as diluted

    @property
    def mean_sizes(self) -> np.ndarray:
        return self.sizes.mean(axis=0)

    @property
    def area(self) -> float:
        """Area under the model's mean curve."""
        return float(self.areas.mean())

    def early_area(self) -> float:
        """The same over the first half of the layers, the paper's early stage."""
        return float(self.areas[: max(len(self.areas) // 2, 1)].mean())

    def late_area(self) -> float:
        """The same over the second half of the layers."""
        return float(self.areas[len(self.areas) // 2 :].mean())


def model_locality(model: torch.nn.Module, input_ids_BN: Tensor) -> Locality:
    """Measure a :class:`~transnormer_lib.models.language_model.LanguageModel` on sequences [B, N].

    The weights of all layers, [B, H, N, N] each, are in memory at once.
    """
    was_training = model.training
    model.eval()
    sizes, maps, empty = [], [], []
    try:
        for weights in model.attention_weights(input_ids_BN):  # type: ignore[operator]
            sizes.append(neighbourhood_sizes(weights).mean(dim=(0, 1)).cpu())
            maps.append(weights[0].mean(dim=0).cpu())
            empty.append((weights.sum(-1) == 0).double().mean().item())
    finally:
        model.train(was_training)
    stacked = torch.stack(sizes)
    return Locality(
        stacked.numpy(),
        area_under_curve(stacked).numpy(),
        torch.stack(maps).float().numpy(),
        float(np.mean(empty)),
    )


def curve_distance(a: Locality, b: Locality) -> float:
    """Mean |r_a - r_b| over layers and levels: how unlike two models' curves are, layer by layer."""
    return float(np.abs(a.sizes - b.sizes).mean())


@torch.no_grad()
def leak_between_blocks(model: torch.nn.Module, length: int, seed: int = 0) -> float:
    """How much of one block's input reaches another block through a model's DiagAttention layers: exactly 0 if none.

    Every DiagAttention layer gets random inputs [1, ``length``, D] twice, the second time with one block replaced, in
    the implementation that trains. The result is the largest change of an output outside that block.
    """
    from transnormer_lib.attention import DiagAttention, MultiHeadAttention

    generator = torch.Generator().manual_seed(seed)
    largest = 0.0
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
