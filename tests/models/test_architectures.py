"""What the named architectures and the two recipes consist of."""

from dataclasses import fields, replace

import pytest
import torch

from transnormer_lib.attention import RMSNorm
from transnormer_lib.models.architectures import architecture, depth, names, published
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import build_model, count_parameters


@pytest.mark.parametrize(
    ("name", "kind", "millions"),
    [
        ("vanilla", "decoder", 156.00),
        ("linear", "decoder", 156.00),
        ("transnormer-t1", "decoder", 155.99),
        ("transnormer-t2", "decoder", 155.99),
        ("vanilla", "encoder", 124.70),
        ("transnormer-t1", "encoder", 124.67),
        ("transnormer-t2", "encoder", 124.67),
        ("linear", "encoder", 124.70),  # Table 5 prints 124.0, which its own components do not give
        ("performer", "decoder", 156.00),
        ("performer", "encoder", 124.70),
        ("transformer-ls", "decoder", 159.46),
        ("transformer-ls", "encoder", 128.28),
        ("flash", "decoder", 153.52),
        ("flash", "encoder", 127.12),
        ("flash-quad", "decoder", 153.51),
        ("flash-quad", "encoder", 127.11),
    ],
)
@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_parameter_counts_are_those_of_tables_4_and_5(name: str, kind: str, millions: float, recipe: str) -> None:
    assert round(count_parameters(published(name, kind, recipe=recipe)) / 1e6, 2) == millions


def test_flash_divides_as_released_in_the_released_recipe_alone() -> None:
    divisors = {
        (name, recipe): build_model(
            architecture(
                name,
                kind="decoder",
                vocab_size=9,
                max_length=8,
                dim=16,
                heads=2,
                layers=1,
                recipe=recipe,  # type: ignore[arg-type]
            ),
            seed=0,
        )
        .stack()[0]
        .mechanisms[0]
        .config.divide_by  # type: ignore[union-attr]
        for name in ("flash", "flash-quad")
        for recipe in ("paper", "released")
    }
    assert divisors == {
        ("flash", "paper"): "seen",
        ("flash", "released"): "chunk",
        ("flash-quad", "paper"): "seen",
        ("flash-quad", "released"): "max_length",
    }


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("control", ["vanilla-matched", "linear-matched"])
def test_a_matched_control_differs_from_transnormer_in_its_attention_alone(
    control: str, recipe: str, kind: str
) -> None:
    ours, theirs = (published(name, kind, recipe=recipe) for name in (control, "transnormer-t2"))
    different = {f.name for f in fields(ModelConfig) if getattr(ours, f.name) != getattr(theirs, f.name)}
    assert different == {"attention", "attention_options"}
    assert count_parameters(ours) == count_parameters(theirs)


def test_the_released_recipe_rotates_transnormer_and_not_the_published_baselines() -> None:
    rotary = {name: published(name, "decoder", recipe="released").rotary for name in names()}
    assert {name for name, value in rotary.items() if value == "lrpe"} == {
        "transnormer-t1",
        "transnormer-t2",
        "vanilla-matched",
        "linear-matched",
    }
    transnormers = [name for name in names() if not name.startswith("roformer")]  # a RoFormer is rotated by name
    assert {published(name, "decoder").rotary for name in transnormers} == {"none"}


def test_learned_angles_are_one_set_per_layer_and_shared_by_the_heads() -> None:
    config = published("transnormer-t2", "decoder", recipe="released")
    without = published("transnormer-t2", "decoder", recipe="released", rotary="none")
    assert count_parameters(config) - count_parameters(without) == 6 * 64 // 2


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_epsilon_is_outside_the_root_in_every_norm_of_the_released_transnormer(kind: str) -> None:
    for recipe, placement in (("paper", "inside"), ("released", "outside")):
        config = architecture(
            "transnormer-t1",
            kind=kind,  # type: ignore[arg-type]
            vocab_size=9,
            max_length=8,
            dim=16,
            heads=2,
            layers=2,
            recipe=recipe,  # type: ignore[arg-type]
        )
        found = {m.eps_placement for m in build_model(config, seed=0).modules() if isinstance(m, RMSNorm)}
        assert found == {placement}


def test_attention_dropout_of_the_released_encoder_reaches_diag_too() -> None:
    config = architecture(
        "transnormer-t2",
        kind="encoder",
        vocab_size=9,
        max_length=8,
        dim=16,
        heads=2,
        layers=2,
        recipe="released",
    )
    first, second = build_model(config, seed=0).blocks
    assert first.attention.attention.config.dropout == 0.1
    assert not hasattr(second.attention.attention.config, "dropout")


@pytest.mark.parametrize("name", names())
def test_the_first_half_of_the_layers_is_the_early_stage(name: str) -> None:
    whole = published(name, "decoder").attention
    half = depth(name, "decoder", 6) // 2
    assert len(whole) == 2 * half
    assert len(set(whole[:half])) == len(set(whole[half:])) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("diag", "diag", "norm", "norm")),
        ({"early": 0}, ("norm", "norm", "norm", "norm")),
        ({"early": 3}, ("diag", "diag", "diag", "norm")),
        ({"early": 4}, ("diag", "diag", "diag", "diag")),
        ({"arrangement": "stages-reversed"}, ("norm", "norm", "diag", "diag")),
        ({"arrangement": "stages-reversed", "early": 1}, ("norm", "diag", "diag", "diag")),
        ({"arrangement": "alternating"}, ("diag", "norm", "diag", "norm")),
        ({"arrangement": "alternating-reversed"}, ("norm", "diag", "norm", "diag")),
        ({"arrangement": "parallel"}, ("diag+norm",) * 4),
    ],
    ids=lambda value: "-".join(map(str, value.values())) or "default" if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_an_arrangement_lays_out_the_two_mechanisms(kind: str, fields: dict, expected: tuple[str, ...]) -> None:
    size = {"vocab_size": 11, "max_length": 16, "dim": 16, "heads": 2, "layers": 4}
    config = architecture("transnormer-t2", kind=kind, **size, **fields)  # type: ignore[arg-type]
    assert config.attention == expected
    built = build_model(config, seed=0)
    names_of_layers = ["+".join(mechanism.name for mechanism in block.mechanisms) for block in built.stack()]
    assert tuple(names_of_layers) == expected
    loss = built(torch.arange(32).reshape(2, 16) % 11, targets_BN=torch.arange(32).reshape(2, 16) % 11)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.parameters())


SIZE = {"vocab_size": 258, "max_length": 256, "dim": 64, "heads": 4, "layers": 4, "block_size": 16}
# The options of the early layers' mechanism.
LOCALITY = {
    "diag/norm": {"scores": "softmax", "block_size": 16},
    "scattered/norm": {"block_size": 16, "span": 256},
    "window/norm": {"global_tokens": 0, "window": 16},
}


@pytest.mark.parametrize("name", LOCALITY)
def test_a_control_for_locality_differs_from_t2_in_its_early_attention_alone(name: str) -> None:
    ours, t2 = (architecture(pair, kind="decoder", **SIZE) for pair in (name, "transnormer-t2"))
    early = ours.attention[0]
    assert ours.attention == (early, early, "norm", "norm")
    assert ours.attention_options == {early: LOCALITY[name], "norm": t2.attention_options["norm"]}
    same = {"attention": t2.attention, "attention_options": t2.attention_options}
    assert replace(ours, **same) == t2
    assert count_parameters(ours) == count_parameters(t2)


@pytest.mark.parametrize("name", LOCALITY)
def test_a_control_for_locality_trains_and_sees_at_most_a_block_of_keys(name: str) -> None:
    model = build_model(architecture(name, kind="decoder", **SIZE), seed=0)
    ids = torch.randint(258, (2, 256), generator=torch.Generator().manual_seed(0))
    model(ids, targets_BN=ids).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    seen = model.stack()[0].mechanisms[0].allowed(256, None, ids.device).expand(1, 1, 256, 256)[0, 0]
    assert seen.sum(1).max() == 16
    if name == "window/norm":
        assert all(row.nonzero().flatten().tolist() == [*range(i - 15, i + 1)] for i, row in enumerate(seen) if i > 15)
    else:
        assert seen.sum(1).bincount(minlength=17).tolist() == [0] + [16] * 16  # each block's or group's i-th sees i


def test_a_window_in_an_encoder_is_half_on_either_side() -> None:
    model = build_model(architecture("window/norm", kind="encoder", **SIZE), seed=0)
    seen = model.stack()[0].mechanisms[0].allowed(256, None, torch.device("cpu"))[0, 0]
    assert seen[100].nonzero().flatten().tolist() == [*range(92, 109)]


def test_longformer_in_a_pair_keeps_its_published_window() -> None:
    assert not architecture("longformer/norm", kind="decoder", **SIZE).attention_options["longformer"]


@pytest.mark.parametrize(("max_length", "span"), [(256, 256), (16, 16), (10, 16)])
def test_scattered_blocks_are_scattered_over_the_whole_sequence(max_length: int, span: int) -> None:
    config = architecture("scattered/norm", kind="decoder", **{**SIZE, "max_length": max_length})
    assert build_model(config, seed=0).stack()[0].mechanisms[0].config.span == span


def test_a_length_that_scattered_blocks_do_not_divide_is_refused() -> None:
    config = architecture("scattered/norm", kind="decoder", **{**SIZE, "max_length": 100})
    with pytest.raises(ValueError, match=r"^span=100: must be a multiple of block_size=16"):
        build_model(config, seed=0)


def test_a_parallel_layer_has_twice_the_weights_of_an_attention_layer() -> None:
    sizes = {"kind": "encoder", "feed_forward": "ffn", "hidden": 1, "norm": "layer"}
    alone, both = (published("transnormer-t2", **sizes, arrangement=name) for name in ("stages", "parallel"))  # type: ignore[arg-type]
    dim, layers = alone.dim, len(alone.attention)
    # Four projections of dim x dim with biases become eight, of which the last two are one with one bias.
    assert count_parameters(both) - count_parameters(alone) == layers * (4 * dim * dim + 3 * dim)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrangement": "mixed"}, "arrangement='mixed': must be one of"),
        ({"early": 7}, "early=7: must be between 0 and layers=6"),
        ({"early": 2, "arrangement": "parallel"}, "early=2: only stages have a number of early layers"),
    ],
)
def test_an_arrangement_that_does_not_fit_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        published("transnormer-t2", "decoder", **fields)


def test_a_block_is_refused_beside_another_mechanism() -> None:
    with pytest.raises(ValueError, match=r"attention='flash\+flash': only attentions can be side by side"):
        build_model(replace(published("flash", "decoder", arrangement="parallel"), vocab_size=5), seed=0)


@pytest.mark.parametrize(
    ("name", "recipe", "message"),
    [("transnormer", "paper", "architecture='transnormer'"), ("vanilla", "mine", "recipe='mine': must be one of")],
)
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, recipe: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        published(name, "decoder", recipe=recipe)


GAU_PAPER = {"kind": "encoder", "max_length": 512, "dim": 768, "heads": 12}


@pytest.mark.parametrize(
    ("name", "layers", "vocabulary", "changed", "parameters"),
    [
        ("gau", 24, 12_000, {"recipe": "released"}, 96_517_632),
        # with a gain and a bias in the norm of the embeddings: the 96,519k of the GAU paper's Table 4
        ("gau", 24, 12_000, {"recipe": "released", "embedding_norm": "layer"}, 96_519_168),
        ("roformer-v1", 12, 50_000, {}, 124_099_664),
        ("roformer-v2", 12, 12_000, {}, 94_756_320),
    ],
)
def test_the_models_of_the_gau_paper_have_these_parameters(name, layers, vocabulary, changed, parameters) -> None:
    config = architecture(name, layers=layers, vocab_size=vocabulary, **GAU_PAPER, **changed)
    assert count_parameters(config) == parameters


def test_roformer_v2_has_neither_biases_nor_gains_below_its_head() -> None:
    model = build_model(
        architecture("roformer-v2", kind="encoder", vocab_size=9, max_length=8, dim=16, heads=2, layers=2), seed=0
    )
    assert model.head is not None
    below = [name for name, _ in model.named_parameters() if not name.startswith("head.")]
    assert not [name for name in below if name.endswith(("bias", "gain"))]
    assert isinstance(model.embedding_norm, RMSNorm)


def test_every_token_is_in_the_first_segment() -> None:
    model = build_model(
        architecture("roformer-v1", kind="encoder", vocab_size=9, max_length=8, dim=16, heads=2, layers=1), seed=0
    )
    ids = torch.arange(8)[None]
    before = model(ids).detach()
    with torch.no_grad():
        model.segments.weight[1] += 1.0
    assert torch.equal(model(ids), before)
    with torch.no_grad():
        model.segments.weight[0, 0] += 1.0
    assert not torch.equal(model(ids), before)
