"""Losses, sides and guesses of masked language models are what they say, and both forms of attention agree."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from transnormer_lib.data.batches import IGNORE, Batch
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.studies.bidirectional_lm import places as masked_places
from transnormer_lib.studies.bidirectional_lm.places import INPUTS

MASK = 19


def encoder(name: str = "transnormer-t2", **fields: Any) -> LanguageModel:
    size: dict[str, Any] = {"vocab_size": 20, "max_length": 12, "dim": 8, "heads": 2, "layers": 2, "block_size": 4}
    model = build_model(architecture(name, kind="encoder", **size | {"init": "fairseq"} | fields), seed=1)
    return model.eval()


def batch() -> Batch:
    """Of eight tokens four are selected: a mask, another token, two of them as they were."""
    targets = torch.tensor([[IGNORE, 3, IGNORE, 5], [7, IGNORE, 9, IGNORE]])
    return {"input_ids": torch.tensor([[1, MASK, 2, 6], [7, 4, 9, 8]]), "targets": targets}


def windows(count: int = 6, length: int = 12) -> torch.Tensor:
    return torch.randint(18, (count, length), generator=torch.Generator().manual_seed(2))


def test_the_places_are_sorted_by_what_the_model_sees_there() -> None:
    targets, seen = masked_places.inputs_at_places(batch(), MASK)
    assert targets.tolist() == [3, 5, 7, 9]
    assert [INPUTS[number] for number in seen] == ["the mask", "another token", "the token itself", "the token itself"]
    assert masked_places.shares(batch(), MASK) == {"selected": 0.5} | dict(zip(INPUTS, (0.25, 0.25, 0.5), strict=True))


def test_the_losses_by_input_weighted_by_their_places_are_the_loss() -> None:
    model, given = encoder(), batch()
    losses = masked_places.losses_by_input(model, [given, given], MASK)
    whole = model(given["input_ids"], targets_BN=given["targets"]).item() / math.log(2)
    assert (losses["the mask"] + losses["another token"] + 2 * losses["the token itself"]) / 4 == pytest.approx(whole)


def test_a_kind_that_never_occurs_has_no_loss() -> None:
    given = {"input_ids": torch.tensor([[1, MASK]]), "targets": torch.tensor([[IGNORE, 3]])}
    losses = masked_places.losses_by_input(encoder(), [given], MASK)
    assert math.isfinite(losses["the mask"])
    assert math.isnan(losses["another token"])


def test_a_model_that_ignores_what_follows_has_the_same_loss_without_it() -> None:
    model = encoder("transnormer-t1", layers=1, block_size=4)  # one layer, NormAttention
    with torch.no_grad():
        for block in model.stack():
            block.attention.out_proj.weight.zero_()  # type: ignore[union-attr]
    blind = masked_places.sides(model, windows(), MASK)
    assert blind.both == pytest.approx(blind.left, abs=1e-5)
    seeing = masked_places.sides(encoder("linear"), windows(), MASK)
    assert abs(seeing.both - seeing.left) > 1e-4


def test_the_left_side_is_the_sequence_cut_after_the_gap() -> None:
    model, ids = encoder("vanilla"), windows(count=3)
    at = ids.shape[1] // 2
    cut = ids[:, : at + 1].clone()
    cut[:, at] = MASK
    expected = F.cross_entropy(model(cut)[:, at], ids[:, at]).item() / math.log(2)
    assert masked_places.sides(model, ids, MASK, places=1).left == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("places", [0, 7, 13])
def test_places_that_do_not_fit_are_refused(places: int) -> None:
    with pytest.raises(ValueError, match=f"places={places}: must be"):
        masked_places.sides(encoder(), windows(), MASK, places=places)


def test_guesses_are_the_likeliest_tokens_with_all_gaps_masked_at_once() -> None:
    model, ids, gaps = encoder(), windows(count=1)[0], (9, 2)
    found = masked_places.guesses(model, ids, gaps, MASK, count=3)
    masked = ids.clone()
    masked[list(gaps)] = MASK
    for gap, guess in zip(gaps, found, strict=True):
        probabilities = model(masked[None])[0, gap].softmax(-1)
        assert guess.tokens == tuple(probabilities.topk(3).indices.tolist())
        assert list(guess.probabilities) == sorted(guess.probabilities, reverse=True)
        assert guess.right == pytest.approx(probabilities[ids[gap]].item(), rel=1e-4)
        assert guess.rank == int((probabilities > probabilities[ids[gap]]).sum()) + 1


@pytest.mark.parametrize("name", ["linear", "performer", "transnormer-t1", "transnormer-t2", "flash", "transformer-ls"])
@pytest.mark.parametrize("length", [3, 12])
def test_both_forms_of_an_encoder_give_the_same_logits(name: str, length: int) -> None:
    model = encoder(name)
    assert masked_places.difference_of_forms(model, windows(length=length)) < 1e-12
    exact = masked_places.with_form(model, "reference")(windows(length=length))
    torch.testing.assert_close(exact.float(), model(windows(length=length)), atol=1e-4, rtol=1e-4)


def test_a_decoder_fills_no_gaps() -> None:
    config = architecture("linear", kind="decoder", vocab_size=20, max_length=12, dim=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="kind='decoder': only an encoder fills gaps"):
        masked_places.guesses(build_model(config, seed=0), windows(count=1)[0], (2,), MASK, count=1)


def test_without_context_a_mask_costs_the_cross_entropy_of_single_tokens() -> None:
    train, held_out = [0] * 5 + [1] * 2, [0, 0, 1, 2]  # counted once more each: 6, 3, 1 of 10
    masks_alone = MaskingConfig(masked=1.0, random=0.0)
    expected = -(0.5 * math.log2(0.6) + 0.25 * math.log2(0.3) + 0.25 * math.log2(0.1))
    assert masked_places.without_context(train, held_out, 3, masks_alone) == pytest.approx(expected)


def test_without_context_a_token_that_is_never_random_is_free() -> None:
    kept = MaskingConfig(masked=0.5, random=0.0)
    masks = masked_places.without_context([0, 1], [0, 1], 4, MaskingConfig(masked=1.0, random=0.0))
    assert masked_places.without_context([0, 1], [0, 1], 4, kept) == pytest.approx(masks / 2)


def test_no_other_trust_in_what_is_seen_costs_less() -> None:
    ids, masking = 6, MaskingConfig(masked=0.6, random=0.2)
    train = np.repeat(np.arange(ids), [9, 5, 3, 2, 1, 0])
    counts = np.bincount(train, minlength=ids) + 1.0
    p = counts / counts.sum()
    held_out = np.repeat(np.arange(ids), counts.astype(int))  # distributed as the model believes
    best = masked_places.without_context(train, held_out, ids, masking)

    def cost(trust: float) -> float:
        guess = (1 - trust) * np.tile(p, (ids, 1)) + trust * np.eye(ids)  # [seen, right]
        at_random = sum(p[y] * np.log2(guess[x, y]) / ids for x in range(ids) for y in range(ids))
        return -0.6 * p @ np.log2(p) - 0.2 * p @ np.log2(np.diagonal(guess)) - 0.2 * at_random

    assert best <= min(cost(trust) for trust in np.linspace(0, 0.99, 50))
