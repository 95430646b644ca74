"""Checks on norms, FFN and GLU: where ε stands, what is normalised, which activation there is."""

import torch
from torch import nn

from transnormer_lib import attention
from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.bounds_norm import norm_score, published_constant, sharp_constant
from transnormer_lib.attention.norm import NormConfig
from transnormer_lib.attention.norms import rms_norm
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind
from transnormer_lib.models.feed_forward import FFN, GLU
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.lra import recipes as arena_recipes
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, heads, random, tiny

_SIZES = {"n": 4, "d": 8}


@check("epsilon-outside-the-root")
def epsilon_outside() -> Found:
    eps, d = 1e-8, _SIZES["d"]
    reached = {}
    norms: dict[str, Norm] = {"inside": "rms", "outside": "rms-outside"}
    for name, norm in norms.items():
        bound = norm_score(norm, "published", eps)
        assert bound.extremal is not None
        reached[name] = bound.ratio_at(bound.extremal(_SIZES))
    small = torch.full((1, d), 1e-4, dtype=torch.float64)
    sizes = [float(rms_norm(small, eps, where).abs().max()) for where in ("inside", "outside")]
    return Found(
        {
            f"published bound for d = {d}, ε = 1e-8, c₁c₂ = 1": published_constant(d, eps),
            "largest gradient, ε inside and outside": [sharp_constant("rms", eps), sharp_constant("rms-outside", eps)],
            "times the published bound, at the worst input; inside": reached["inside"],
            "the same; outside": reached["outside"],
            "a row of 1e-4 normalised; inside, outside": sizes,
        },
        {
            "with ε inside the published bound holds there": reached["inside"] <= 1.0,
            "with ε outside it breaks": reached["outside"] > 1.0,
        },
        (Effect("largest gradient, in units of the published bound", reached["inside"], reached["outside"]),),
    )


@check("norm-over-the-embedding")
def norm_over_embedding() -> Found:
    q, k, v = heads(4, 16, 8)
    scaled = v * torch.tensor([1.0, 1.0, 1.0, 10.0], dtype=torch.float64)[:, None, None]
    outputs, sizes = {}, {}
    for over in ("embedding", "head"):
        core = attention.build("norm", {"heads": 4, "head_dim": 8, "phi": "1+elu", "norm_over": over})
        outputs[over] = core(q, k, v)
        sizes[over] = core(q, k, scaled).square().mean((0, 2, 3)).sqrt().tolist()
    return Found(
        {
            "largest difference of an output": apart(outputs["embedding"], outputs["head"]),
            "size of each head, one with values ten times as large; over the embedding": sizes["embedding"],
            "the same; per head": sizes["head"],
        },
        {
            "the two differ": apart(outputs["embedding"], outputs["head"]) > 0.01,
            "over the embedding the large head drowns the others": sizes["embedding"][3]
            > 4 * max(sizes["embedding"][:3]),
            "per head it does not": max(sizes["head"]) < 1.01 * min(sizes["head"]),
        },
        (Effect("size of the large head over the smallest", *(max(s) / min(s) for s in sizes.values())),),
    )


@check("swish-that-is-not-there")
def swish_that_is_not_there() -> Found:
    x = random(64, 16)
    scaling = {}
    for activation in ("swish", "identity"):
        torch.manual_seed(0)
        glu = GLU(16, 32, activation).double()
        for bias in (glu.gate_and_value.bias, glu.down.bias):
            nn.init.zeros_(bias)
        scaling[activation] = apart(glu(2 * x), 4 * glu(x)) / float(glu(x).detach().abs().max())
    acts = {recipe: tiny("transnormer-t2", recipe=recipe).activation for recipe in ("paper", "released")}
    return Found(
        {
            "GLU(2x) against 4·GLU(x), relative; swish": scaling["swish"],
            "the same; identity": scaling["identity"],
            "activation by recipe": acts,
        },
        {
            "with the identity the GLU is a product of two linear maps": scaling["identity"] < ROUNDING,
            "with swish it is not": scaling["swish"] > 0.01,
            "each recipe has its own": acts == {"paper": "swish", "released": "identity"},
        },
        (Effect("GLU(2x) against 4·GLU(x), relative", scaling["swish"], scaling["identity"]),),
    )


@check("ffn-activation")
def ffn_activation() -> Found:
    kinds: tuple[Kind, ...] = ("encoder", "decoder")
    configs = {f"{row}, {kind}": tiny(row, kind=kind) for kind in kinds for row in ("vanilla", "linear")}
    configs["T2 with an FFN (Table 10), encoder"] = tiny("transnormer-t2", **ablations.FIELDS["ffn"])
    built = {name: ffn_activations(build_model(config, seed=0)) for name, config in configs.items()}
    by_choice = {act: build_model(tiny("vanilla", activation=act, init="fairseq"), seed=0) for act in ("gelu", "relu")}
    weights = [sum(p.numel() for p in model.parameters()) for model in by_choice.values()]
    with torch.no_grad():
        outputs = [model.double().eval().hidden(torch.arange(16)[None]) for model in by_choice.values()]
    change = apart(*outputs)
    return Found(
        {
            "activations in the FFNs of our models": built,
            "largest difference of a hidden state, GELU and ReLU, same weights": change,
            "parameters with either": weights,
        },
        {
            "encoders have GELU, decoders ReLU": all(
                found == ["GELU" if name.endswith("encoder") else "ReLU"] for name, found in built.items()
            ),
            "the choice changes outputs": change > 0.01,
            "and no count": weights[0] == weights[1],
        },
        (Effect("activation of the encoder's FFN", *(ffn_activations(model)[0] for model in by_choice.values())),),
    )


def ffn_activations(model: nn.Module) -> list[str]:
    """The activations in a model's FFNs, each once, by torch's names."""
    return sorted({type(part.activation).__name__ for part in model.modules() if isinstance(part, FFN)})


@check("norm-placement")
def norm_placement() -> Found:
    where = {kind: published("transnormer-t2", kind).norm_placement for kind in ("decoder", "encoder")}
    ids = torch.arange(16)[None]
    outputs = {}
    for place in ("pre", "post"):
        config = tiny("transnormer-t2", norm_placement=place, init="fairseq")
        with torch.no_grad():
            hidden = build_model(config, seed=0).double().hidden(ids)
        outputs[place] = hidden
    difference = apart(outputs["pre"], outputs["post"])
    return Found(
        {"placement, by kind": where, "largest difference of a hidden state, same weights": difference},
        {"the two kinds differ": where == {"decoder": "pre", "encoder": "post"}, "it matters": difference > 0.01},
    )


@check("rela-without-a-gate")
def rela_without_a_gate() -> Found:
    q, k, v = heads(2, 16, 8)
    shape = {"heads": 2, "head_dim": 8}
    ours = attention.build("diag", shape | {"scores": "rela", "block_size": 16})
    gated = attention.build("rela", shape).double()
    assert isinstance(gated, attention.Attention)
    gated.reset_parameters(torch.Generator().manual_seed(0))
    t2 = attention.build("diag", shape | {"block_size": 16})
    t2_normed = attention.build("diag", shape | {"block_size": 16, "norm": "rms"})
    weights = [sum(p.numel() for p in core.parameters()) for core in (ours, gated)]
    size = float(t2(q, k, v).square().mean().sqrt())
    return Found(
        {
            "weights in T1's norm, and in ReLA's gated one": weights,
            "largest difference of an output": apart(ours(q, k, v), gated(q, k, v)),
            "size of T2's outputs without and with a norm": [size, float(t2_normed(q, k, v).square().mean().sqrt())],
        },
        {
            "T1's norm has no weight, ReLA's has a gate and a gain": weights == [0, 2 * 16],
            "the gate changes outputs": apart(ours(q, k, v), gated(q, k, v)) > 0.01,
            "T2's outputs are not normalised": abs(size - 1) > 0.1,
        },
        (Effect("weights in the norm of a layer of width 16", *weights),),
    )


@check("lra-rms-epsilon")
def lra_rms_epsilon() -> Found:
    chosen = arena_recipes.setting("listops", "released", {})
    released = arena_recipes.model("transnormer-t2", chosen, "released", 16)
    eps, where = (released.attention_options["norm"][name] for name in ("eps", "eps_placement"))
    ours = NormConfig(heads=1, head_dim=8)
    row = random(1, 8)
    row = row / row.square().mean().sqrt() * 0.1
    forms = ((ours.eps, ours.eps_placement), (eps, where), (eps, "inside"))
    sizes = [float(rms_norm(row, *form).square().mean().sqrt()) for form in forms]
    return Found(
        {
            "ε by default, and in the released arena code": [ours.eps, eps],
            "a row of size 0.1 comes out as; by default, as released, with the released ε inside the root": sizes,
        },
        {
            "the released ε is a million times ours": eps / ours.eps > 0.9e6,
            "outside the root it makes a row of size 0.1 smaller by 9%": abs(1 - sizes[1] / sizes[0] - 0.09) < 0.005,
            "inside, by 29%": abs(1 - sizes[2] / sizes[0] - 0.29) < 0.005,
        },
        (Effect("size of a row of size 0.1 after the norm", *sizes[:2]),),
    )


@check("lra-batch-norm")
def lra_batch_norm() -> Found:
    x = random(4, 16, 8)
    other = x.clone()
    other[1:] = 3 * other[1:] + 1
    batch = apart(released_forms.batch_norm(x)[0], released_forms.batch_norm(other)[0])
    layer = apart(*(nn.functional.layer_norm(y[0], (8,)) for y in (x, other)))
    recipe = arena_recipes.setting("listops", "released", {})
    ours = arena_recipes.model("transnormer-t2", recipe, "released", 16).norm
    return Found(
        {"change of a sequence's output when the others of its batch change; BatchNorm": batch, "LayerNorm": layer},
        {
            "with BatchNorm an output depends on the other sequences": batch > 0.1,
            "with ours it does not": layer == 0.0 and ours == "layer",
        },
        (Effect("change of an output by other sequences", layer, batch),),
    )
