"""What a masked language model does at the places that it has to predict: its loss, its guesses, the side it reads.

Shapes: B batch, N length, C counted places, V vocabulary.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.language_model import LanguageModel

# What a model can see at a selected place. A random token that happens to be right counts as the token itself.
INPUTS = ("the mask", "another token", "the token itself")


def inputs_at_places(batch: Batch, mask_id: int) -> tuple[Tensor, Tensor]:
    """(targets [C], which of :data:`INPUTS` the model sees there [C]) at the selected places of a masked batch."""
    counted = batch["targets"] != IGNORE
    targets, seen = batch["targets"][counted], batch["input_ids"][counted]
    return targets, torch.where(seen == mask_id, 0, torch.where(seen == targets, 2, 1))


def shares(batch: Batch, mask_id: int) -> dict[str, float]:
    """The share of tokens that are selected, and among these the share of each of :data:`INPUTS`."""
    targets, seen = inputs_at_places(batch, mask_id)
    kinds = {name: (seen == number).double().mean().item() for number, name in enumerate(INPUTS)}
    return {"selected": len(targets) / batch["targets"].numel()} | kinds


def without_context(train_N: ArrayLike, held_out_N: ArrayLike, ids: int, masking: MaskingConfig) -> float:
    """Mean bits at the selected places of the best guess from that place alone, in a vocabulary of ``ids`` tokens.

    The guess knows how often each token occurs in the training text (plus one, so that none is impossible). At a mask
    it has nothing else. At a token x, either x was kept, or x is random and any token may be right. With k and r the
    shares of kept and random tokens, Bayes' rule gives the probability k·p(x) / (k·p(x) + r/ids) that x was kept.
    """
    counts = np.bincount(np.asarray(train_N), minlength=ids) + 1.0
    p, q = counts / counts.sum(), np.bincount(np.asarray(held_out_N), minlength=ids) / np.size(held_out_N)
    kept, random = 1.0 - masking.masked - masking.random, masking.random / ids
    bits = -masking.masked * (q @ np.log2(p))
    if masking.masked < 1.0:
        trust = kept * p / (kept * p + random) if kept else np.zeros(ids)
        itself, other = _log2(trust + (1.0 - trust) * p), _log2(1.0 - trust)  # the guess at the seen token; at others
        bits -= kept * (q @ itself)
        # All x are seen equally often, whatever the right token y: other(x) + log p(y), except where x is y.
        at_random = other.sum() + ids * np.log2(p) - (other + np.log2(p)) + itself
        bits -= random * (q @ at_random) if random else 0.0
    return float(bits)


def _log2(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log2(np.maximum(values, np.finfo(float).tiny))


@torch.no_grad()
def losses_at(model: LanguageModel, input_ids_BN: Tensor, places_BN: Tensor, targets_C: Tensor) -> Tensor:
    """Cross-entropy in bits [C], float64, at the places where ``places_BN`` is True."""
    return F.cross_entropy(_logits(model, input_ids_BN, places_BN).double(), targets_C, reduction="none") / math.log(2)


def losses_by_input(model: LanguageModel, batches: Iterable[Batch], mask_id: int) -> dict[str, float]:
    """Mean bits at the selected places by what the model sees there; NaN for a kind that never occurs."""
    losses, kinds = [], []
    for batch in batches:
        targets, seen = inputs_at_places(batch, mask_id)
        losses.append(losses_at(model, batch["input_ids"], batch["targets"] != IGNORE, targets))
        kinds.append(seen)
    bits, kind = torch.cat(losses), torch.cat(kinds)
    return {name: bits[kind == number].mean().item() for number, name in enumerate(INPUTS)}


@dataclass(frozen=True)
class Sides:
    """Mean bits at single masked places: with the whole sequence, and with the tokens before the place only."""

    both: float
    left: float


def sides(model: LanguageModel, windows_BN: Tensor, mask_id: int, places: int = 4) -> Sides:
    """The loss at one masked place per sequence, with the whole sequence and with the sequence cut after the place.

    The places are spread evenly over the sequence and taken in turn by the windows. Raises ValueError for fewer windows
    than places, or more places than tokens.
    """
    windows, length = windows_BN.shape
    if not 1 <= places <= min(windows, length):
        raise ValueError(f"places={places!r}: must be at least 1, at most windows={windows} and length={length}")
    both, left = [], []
    for number in range(places):
        at = (2 * number + 1) * length // (2 * places)
        ids, masked = windows_BN[number::places], windows_BN[number::places].clone()
        masked[:, at] = mask_id
        here = torch.zeros_like(ids, dtype=torch.bool)
        here[:, at] = True
        both.append(losses_at(model, masked, here, ids[:, at]))
        left.append(losses_at(model, masked[:, : at + 1], here[:, : at + 1], ids[:, at]))
    return Sides(torch.cat(both).mean().item(), torch.cat(left).mean().item())


@dataclass(frozen=True)
class Guess:
    """A model's guess at one gap: its likeliest tokens, and the probability and rank of the right one."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    right: float  # probability of the right token
    rank: int  # 1: the right token is the likeliest


@torch.no_grad()
def guesses(model: LanguageModel, ids_N: Tensor, gaps: Sequence[int], mask_id: int, count: int) -> list[Guess]:
    """The ``count`` likeliest tokens at every gap of a sequence, with all gaps masked at once."""
    places = torch.zeros_like(ids_N, dtype=torch.bool)
    places[list(gaps)] = True
    probabilities_CV = _logits(model, ids_N.masked_fill(places, mask_id)[None], places[None]).double().softmax(-1)
    found = {}
    for gap, probabilities_V in zip(sorted(gaps), probabilities_CV, strict=True):
        top, right = probabilities_V.topk(count), probabilities_V[ids_N[gap]]
        rank = int((probabilities_V > right).sum()) + 1
        found[gap] = Guess(tuple(top.indices.tolist()), tuple(top.values.tolist()), right.item(), rank)
    return [found[gap] for gap in gaps]


def with_form(model: LanguageModel, impl: str) -> LanguageModel:
    """The model in float64 with another ``impl`` of attention: only ``reference`` makes the N x N scores."""
    config = model.config
    options = {name: {**config.attention_options.get(name, {}), "impl": impl} for name in config.mechanisms}
    twin = LanguageModel(replace(config, attention_options=options))
    twin.load_state_dict(model.state_dict())
    return twin.double().eval()


@torch.no_grad()
def difference_of_forms(model: LanguageModel, input_ids_BN: Tensor) -> float:
    """The largest difference of any logit between the two implementations of :func:`with_form`."""
    linear, quadratic = (with_form(model, impl)(input_ids_BN) for impl in ("chunked", "reference"))
    return (linear - quadratic).abs().max().item()


def _logits(model: LanguageModel, input_ids_BN: Tensor, places_BN: Tensor) -> Tensor:
    """Logits [C, V] at the places only; with a large vocabulary those of a whole batch would not fit."""
    if model.config.kind != "encoder":
        raise ValueError(f"kind={model.config.kind!r}: only an encoder fills gaps")
    hidden = model.hidden(input_ids_BN)
    return model.logits(hidden[places_BN])
