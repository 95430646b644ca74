"""Properties of the decoder and encoder stacks."""

from dataclasses import replace

import pytest
import torch

from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.architectures import architecture, names, published
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.feed_forward import feed_forward
from transnormer_lib.models.language_model import build_model, count_parameters, width_for

# So small that everything in the mechanism takes part at these lengths.
OPTIONS = {"transformer-ls": {"segment_size": 8, "memory": 16}}


def small(name: str, kind: str = "decoder", **fields: object) -> ModelConfig:
    if name in OPTIONS:
        fields = {"attention_options": {name: OPTIONS[name]}, **fields}
    return architecture(
        name, kind=kind, vocab_size=19, max_length=24, dim=16, heads=2, layers=4, block_size=4, **fields
    )  # type: ignore[arg-type]


def tokens(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(19, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", names())
def test_the_future_does_not_change_the_past_of_a_decoder(name: str) -> None:
    model = build_model(small(name), seed=1).double().eval()
    ids = tokens(2, 19)
    changed = ids.clone()
    changed[:, 11:] = (changed[:, 11:] + 7) % 19
    torch.testing.assert_close(model(ids)[:, :11], model(changed)[:, :11], rtol=0, atol=1e-12)
    assert not torch.allclose(model(ids)[:, 11:], model(changed)[:, 11:])


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_padding_changes_nothing_before_it(name: str, kind: str) -> None:
    model = build_model(small(name, kind), seed=2).double().eval()
    ids = tokens(2, 24)
    mask = torch.zeros(2, 24, dtype=torch.bool)
    mask[:, 13:] = True
    torch.testing.assert_close(model(ids, mask)[:, :13], model(ids[:, :13]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", names())
def test_one_seed_one_model_whatever_the_global_state(name: str) -> None:
    torch.manual_seed(11)
    first = build_model(small(name), seed=5)
    torch.manual_seed(12)
    second = build_model(small(name), seed=5)
    other = build_model(small(name), seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_every_parameter_gets_a_finite_gradient(name: str, kind: str) -> None:
    model = build_model(small(name, kind), seed=3)
    model(tokens(2, 24), targets_BN=tokens(2, 24, seed=1)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.isfinite().all()), parameter_name
        # A bias on the keys shifts all of a query's softmax scores alike, one on LS's columns all of a column's;
        # nothing else may be without effect.
        if not parameter_name.endswith(("k_proj.bias", "to_columns.bias")):
            assert bool((parameter.grad != 0).any()), parameter_name


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_ignored_targets_do_not_count_in_the_loss(kind: str) -> None:
    model = build_model(small("vanilla", kind), seed=4).double().eval()
    ids, targets = tokens(1, 10), tokens(1, 10, seed=1)
    partly = targets.clone()
    partly[:, 4:] = IGNORE
    log_p = model(ids).log_softmax(-1)
    expected = -log_p[0, :4].gather(-1, targets[0, :4, None]).mean()
    torch.testing.assert_close(model(ids, targets_BN=partly), expected)


# Without its denominator 1+elu attention has scores and no weights, and so has FLASH.
@pytest.mark.parametrize("name", sorted({*names()} - {"linear-unscaled", "flash", "flash-quad"}))
def test_attention_weights_are_rows_of_mass_one_inside_the_mask(name: str) -> None:
    model = build_model(small(name), seed=6).double().eval()
    weights = model.attention_weights(tokens(2, 10))
    assert len(weights) == 4
    for w in weights:
        assert w.shape in ((2, 2, 10, 10), (2, 1, 10, 10))  # a block has one head
        assert bool((w.triu(1) == 0).all())
        rows = w.sum(-1)
        # A ReLA row whose scores are all negative attends to nothing.
        assert bool(((rows - 1).abs().lt(1e-9) | rows.eq(0)).all())


def test_transnormer_early_layers_never_look_outside_their_block() -> None:
    weights = build_model(small("transnormer-t2"), seed=7).attention_weights(tokens(1, 12))
    block = torch.arange(12) // 4
    outside = block[:, None] != block[None, :]
    assert all(bool((w[..., outside] == 0).all()) for w in weights[:2])
    assert all(bool((w[..., outside] != 0).any()) for w in weights[2:])


def test_dropout_acts_in_training_alone_and_activation_dropout_inside_the_feed_forward_alone() -> None:
    ids = tokens(2, 12)
    for fields in ({"dropout": 0.5}, {"attention_dropout": 0.5}, {"activation_dropout": 0.5}):
        model = build_model(small("vanilla", **fields), seed=8)
        plain = build_model(small("vanilla"), seed=8)
        assert torch.equal(model.eval()(ids), plain.eval()(ids))
        assert not torch.equal(model.train()(ids), plain(ids))
    assert feed_forward(small("vanilla", dropout=0.5)).dropout.p == 0.0


def test_an_untied_output_has_weights_of_its_own() -> None:
    model = build_model(small("linear", tied=False), seed=9)
    ids = tokens(1, 6)
    before = model(ids)
    with torch.no_grad():
        model.output.zero_()
    assert not torch.equal(before, model(ids))
    assert bool((model(ids) == 0).all())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 15}, "heads=2: must divide dim=15"),
        ({"kind": "both"}, "kind='both': must be one of"),
        ({"dropout": 1.0}, r"dropout=1.0: must be in \[0, 1\)"),
        ({"attention": ()}, "attention="),
        ({"attention_options": {"norm": {}}}, "names no mechanism"),
        ({"hidden": -1}, "hidden=-1"),
        ({"attention_dropout": -0.1}, "attention_dropout=-0.1"),
        ({"rotary": "alibi"}, "rotary='alibi': must be one of"),
        ({"norm_eps_placement": "outside"}, "norm_eps_placement='outside'"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_field_is_named_with_its_rule(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(small("vanilla"), **fields)  # type: ignore[arg-type]


def test_a_sequence_beyond_the_position_table_is_refused() -> None:
    with pytest.raises(ValueError, match="length=25: exceeds the model's max_length=24"):
        build_model(small("vanilla"), seed=0)(tokens(1, 25))


def test_a_width_gives_the_parameters_asked_for() -> None:
    base = published("transnormer-t2", "encoder")
    for width in (1, 255, 2048):
        assert width_for(base, count_parameters(replace(base, hidden=width))) == width


def test_a_model_without_feed_forward_parts_has_no_width() -> None:
    with pytest.raises(ValueError, match="attention='flash': these layers have no FFN or GLU"):
        width_for(published("flash", "encoder"), 1e8)


def test_positions_beside_the_embedding_are_the_second_half_of_the_input() -> None:
    model = build_model(small("linear", positions="beside", tied=False), seed=0)
    ids = tokens(2, 9)
    x_BND = model.embed(ids)
    assert model.embedding.weight.shape == (19, 8)
    torch.testing.assert_close(x_BND[..., :8], model.embedding(ids) * 8**0.5)
    torch.testing.assert_close(x_BND[..., 8:], model.embed(ids.flip(0))[..., 8:])
    angles = x_BND[0, :, 8:].square().unflatten(-1, (2, 4)).sum(1)  # sin² + cos²
    torch.testing.assert_close(angles, torch.ones_like(angles))


@pytest.mark.parametrize("fields", [{"tied": True}, {"tied": False, "dim": 18}], ids=["tied", "width"])
def test_positions_beside_a_tied_or_odd_embedding_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positions='beside': needs dim=1[68] divisible by 4, and tied=False"):
        replace(small("linear"), positions="beside", **fields)  # type: ignore[arg-type]
