"""The counted operations are those that PyTorch's own counter sees."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.architectures import architecture, names
from transnormer_lib.models.classifier import build_classifier, with_head
from transnormer_lib.models.config import ClassifierHead, Kind, ModelConfig
from transnormer_lib.models.flops import attention_flops, forward_flops, training_flops
from transnormer_lib.models.language_model import build_model

LENGTH = 48
# Within one chunk of the causal product; several chunks, the last chunk and the last block of DiagAttention ragged.
LENGTHS = (LENGTH, 150)


def config(name: str, kind: Kind, **fields: object) -> ModelConfig:
    return architecture(
        name,
        kind=kind,
        vocab_size=37,
        max_length=max(LENGTHS),
        dim=16,
        heads=2,
        layers=2,
        block_size=12,
        **fields,  # type: ignore[arg-type]
    )


def countable(config: ModelConfig) -> ModelConfig:
    """torch's counter does not know the fused attention of the CPU: the eager form has the same products."""
    if "softmax" not in config.attention:
        return config
    return replace(config, attention_options={**config.attention_options, "softmax": {"impl": "reference"}})


def counted(config: ModelConfig, length: int, backward: bool) -> tuple[int, float]:
    """Operations on one sequence of which a sixth of the positions is predicted by an encoder."""
    model = build_model(countable(config), seed=0)
    ids = torch.randint(37, (1, length), generator=torch.Generator().manual_seed(0))
    targets = ids.clone()
    if config.kind == "encoder":
        targets[:, length // 6 :] = IGNORE
    with FlopCounterMode(display=False) as counter:
        loss = model(ids, targets_BN=targets)
        if backward:
            loss.backward()
    return counter.get_total_flops(), (targets != IGNORE).double().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rotary", ["none", "lrpe"])
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("name", names())
def test_forward_operations_equal_torchs_count(name: str, kind: Kind, rotary: str, length: int) -> None:
    model = config(name, kind, rotary=rotary)
    measured, share = counted(model, length, backward=False)
    assert forward_flops(model, length, predicted_share=share) == measured


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_operations_of_layers_side_by_side_equal_torchs_count(kind: Kind, length: int) -> None:
    model = config("transnormer-t2", kind, arrangement="parallel")
    measured, share = counted(model, length, backward=False)
    assert forward_flops(model, length, predicted_share=share) == measured


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("name", ["vanilla", "transnormer-t1", "transnormer-t2", "flash"])
def test_attention_and_the_rest_make_up_all_operations(name: str, kind: Kind) -> None:
    narrow, wide = (replace(config(name, kind), hidden=width) for width in (1, 2))
    # Every unit of width costs the same.
    feed_forward = forward_flops(wide, LENGTH, 0.0) - forward_flops(narrow, LENGTH, 0.0)
    logits = forward_flops(narrow, LENGTH, 1.0) if kind == "decoder" else forward_flops(narrow, LENGTH, 1.0 / LENGTH)
    rest = feed_forward + vocabulary(narrow, LENGTH if kind == "decoder" else 1)
    assert attention_flops(narrow, LENGTH) == logits - rest


def vocabulary(model: ModelConfig, predicted: int) -> int:
    """Operations of the logits of so many positions; an encoder's head is as wide as the model."""
    per_position = model.vocab_size * model.dim + (model.dim * model.dim if model.kind == "encoder" else 0)
    return 2 * predicted * per_position


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_a_backward_pass_costs_two_forward_ones(name: str, kind: Kind, length: int) -> None:
    model = config(name, kind)
    measured, share = counted(model, length, backward=True)
    forward = forward_flops(model, length, predicted_share=share)
    if name == "vanilla" or kind == "encoder":
        assert measured == 3 * forward
    else:  # the causal block-wise form recomputes some products to save memory
        assert 3 * forward < measured < 3.5 * forward


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_training_is_forward_and_backward_over_all_sequences(kind: Kind) -> None:
    model = config("transnormer-t2", kind)
    assert training_flops(model, LENGTH, sequences=5) == 15 * forward_flops(model, LENGTH)


def test_an_encoder_predicts_at_one_position_at_least_and_at_no_more_than_all() -> None:
    model = config("transnormer-t2", "encoder")
    few, one, every = (forward_flops(model, LENGTH, share) for share in (0.0, 1 / LENGTH, 1.0))
    assert few == one
    assert every - one == (LENGTH - 1) * 2 * 16 * (16 + 37)  # the head's dense layer and the vocabulary
    with pytest.raises(ValueError, match=r"predicted_share=1.5: must be in \[0, 1\]"):
        forward_flops(model, LENGTH, predicted_share=1.5)


@pytest.mark.parametrize("name", ["vanilla", "transnormer-t2"])
def test_layers_add_up(name: str) -> None:
    two, four, six = (forward_flops(with_layers(name, layers), LENGTH) for layers in (2, 4, 6))
    assert six - four == four - two > 0


def with_layers(name: str, layers: int) -> ModelConfig:
    return architecture(
        name, kind="decoder", vocab_size=37, max_length=LENGTH, dim=16, heads=2, layers=layers, block_size=12
    )


@pytest.mark.parametrize("pairs", [False, True], ids=["one", "pairs"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2", "flash"])
def test_operations_of_a_classifier_equal_torchs_count(name: str, pairs: bool) -> None:
    model, head = config(name, "encoder"), ClassifierHead(classes=3, pairs=pairs)
    classifier = build_classifier(with_head(countable(model), head), seed=0)
    ids = torch.randint(model.vocab_size, (1, 2, LENGTH) if pairs else (1, LENGTH))
    with FlopCounterMode(display=False) as counter:
        classifier(ids)
    assert forward_flops(model, LENGTH, head=head) == counter.get_total_flops()


def test_a_masked_head_without_a_layer_costs_its_projection_alone() -> None:
    dense, projection = (config("vanilla", "encoder", masked_head=head) for head in ("dense", "projection"))
    predicted = max(round(LENGTH * 0.15), 1)
    difference = forward_flops(dense, LENGTH, predicted_share=0.15) - forward_flops(
        projection, LENGTH, predicted_share=0.15
    )
    assert difference == 2 * predicted * dense.dim**2
