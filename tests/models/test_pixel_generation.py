"""Images are the same whether they are written by recurrence, from a cache or by reading the prefix anew."""

import pytest
import torch
from pixel_cases import decoder

from transnormer_lib.models.language_model import build_model
from transnormer_lib.models.pixel_generation import completed, with_attention


@pytest.mark.parametrize("mechanism", ["linear", "softmax"])
def test_a_state_writes_what_reading_the_prefix_anew_writes(mechanism: str) -> None:
    model = build_model(decoder(attention=(mechanism,) * 2), 0).double()
    given = torch.randint(256, (3, 4), generator=torch.Generator().manual_seed(1))
    made = [completed(model, given, 13, torch.Generator().manual_seed(2), recompute=again) for again in (False, True)]
    assert torch.equal(*made)
    assert torch.equal(made[0][:, :4], given)
    assert made[0].min() >= 0
    assert made[0].max() <= 255


@pytest.mark.parametrize(("given", "pixels"), [(0, 5), (6, 5), (2, 14)])
def test_images_that_the_model_cannot_write_are_refused(given: int, pixels: int) -> None:
    with pytest.raises(ValueError, match="1 <= M <= pixels <= 13"):
        completed(build_model(decoder(), 0), torch.zeros(1, given, dtype=torch.long), pixels)


def test_a_model_with_logits_draws_no_pixels() -> None:
    model = build_model(decoder(logistics=0, tied=True), 0)
    with pytest.raises(ValueError, match=r"logistics=0"):
        completed(model, torch.zeros(1, 1, dtype=torch.long), 3)


def test_another_mechanism_takes_over_every_weight() -> None:
    model = build_model(decoder(), 0)
    other = with_attention(model, "softmax", 40)
    assert other.config.attention == ("softmax", "softmax")
    assert other.config.max_length == 40
    for (name, mine), (_, theirs) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(mine, theirs), name


def test_learned_positions_cannot_be_prolonged() -> None:
    with pytest.raises(ValueError, match="positions='learned'"):
        with_attention(build_model(decoder(positions="learned"), 0), "softmax", 40)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
@pytest.mark.parametrize("again", [False, True])
def test_values_of_every_integer_type_are_read(dtype: torch.dtype, again: bool) -> None:
    model, given = build_model(decoder(), 0), torch.tensor([[3, 200]])
    made = completed(model, given.to(dtype), 6, torch.Generator().manual_seed(2), recompute=again)
    assert made.dtype == torch.int64
    assert torch.equal(made, completed(model, given, 6, torch.Generator().manual_seed(2), recompute=again))
    assert completed(model, given[:0], 6, recompute=again).shape == (0, 6)


@pytest.mark.parametrize(
    ("given", "message"),
    [(torch.tensor([[300]]), r"given_BM: holds a value outside \[0, 256\)"), (torch.zeros(1, 1), "must be integers")],
    ids=["outside", "floats"],
)
def test_values_that_are_no_pixels_are_refused(given: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        completed(build_model(decoder(), 0), given, 5)


def test_another_mechanism_has_the_weights_in_their_own_precision() -> None:
    assert with_attention(build_model(decoder(), 0).double(), "softmax", 40).embedding.weight.dtype == torch.float64
