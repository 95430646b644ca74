"""Checks on norms, FFN and GLU: the place of ε, what is normalised, and the activations."""

import torch
from torch import nn

from transnormer_lib.analysis.attention_gradients import Norm
from transnormer_lib.analysis.bounds_norm import norm_score, published_constant, sharp_constant
from transnormer_lib.attention.norm import NormConfig
from transnormer_lib.attention.norms import rms_norm
from transnormer_lib.choices import EpsPlacement
from transnormer_lib.models.architectures import published
from transnormer_lib.models.feed_forward import FFN, GLU
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import (
    ROUNDING,
    apart,
    arena_model,
    at_worst,
    build,
    heads,
    random,
    tiny,
)
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import MODELS


@check("epsilon-outside-the-root")
def epsilon_outside() -> Found:
    eps, d = 1e-8, 8
    norms: dict[EpsPlacement, Norm] = {"inside": "rms", "outside": "rms-outside"}
    reached = {where: at_worst(norm_score(norm, "published", eps), n=4, d=d) for where, norm in norms.items()}
    small = torch.full((1, d), 1e-4, dtype=torch.float64)
    return Found(
        {
            f"published bound for d = {d}, ε = 10⁻⁸, c₁c₂ = 1": published_constant(d, eps),
            "largest gradient by place of ε": {where: sharp_constant(norm, eps) for where, norm in norms.items()},
            "gradient over the published bound, at the worst input": reached,
            "a row of 10⁻⁴ after the norm": {where: float(rms_norm(small, eps, where).abs().max()) for where in norms},
        },
        {
            "with ε inside the root, the published bound holds there": reached["inside"] <= 1.0,
            "with ε outside, it is exceeded": reached["outside"] > 1.0,
        },
        (Effect("largest gradient over the published bound", reached["inside"], reached["outside"]),),
    )


@check("norm-over-the-embedding")
def norm_over_embedding() -> Found:
    q, k, v = heads(4, 16, 8)
    scaled = v * torch.tensor([1.0, 1.0, 1.0, 10.0], dtype=torch.float64)[:, None, None]
    outputs, sizes = {}, {}
    for over in ("embedding", "head"):
        core = build("norm", heads=4, phi="1+elu", norm_over=over)
        outputs[over] = core(q, k, v)
        sizes[over] = core(q, k, scaled).square().mean((0, 2, 3)).sqrt().tolist()
    difference = apart(*outputs.values())
    return Found(
        {
            "largest difference of an output between the two norms": difference,
            "size of each head when the last has values ten times as large, by norm": sizes,
        },
        {
            "the two norms give different outputs": difference > 0.01,
            "over the embedding, the large head makes the others small": sizes["embedding"][3]
            > 4 * max(sizes["embedding"][:3]),
            "per head, all heads keep their size": max(sizes["head"]) < 1.01 * min(sizes["head"]),
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
    by_recipe = {recipe: tiny("transnormer-t2", recipe=recipe).activation for recipe in ("paper", "released")}
    return Found(
        {"difference of GLU(2x) and 4·GLU(x), relative": scaling, "activation by recipe": by_recipe},
        {
            "with the identity the GLU is a product of two linear maps": scaling["identity"] < ROUNDING,
            "with swish it is not": scaling["swish"] > 0.01,
            "the recipes have different activations": by_recipe == {"paper": "swish", "released": "identity"},
        },
        (Effect("difference of GLU(2x) and 4·GLU(x), relative", scaling["swish"], scaling["identity"]),),
    )


@check("ffn-activation")
def ffn_activation() -> Found:
    configs = {f"{row}, {kind}": tiny(row, kind=kind) for kind in MODELS for row in ("vanilla", "linear")}
    configs["T2 with an FFN (Table 10), encoder"] = tiny("transnormer-t2", **ablations.FIELDS["ffn"])
    built = {name: ffn_activations(build_model(config, seed=0)) for name, config in configs.items()}
    models = [build_model(tiny("vanilla", activation=act, init="fairseq"), seed=0) for act in ("gelu", "relu")]
    weights = [sum(p.numel() for p in model.parameters()) for model in models]
    with torch.no_grad():
        change = apart(*(model.double().eval().hidden(torch.arange(16)[None]) for model in models))
    return Found(
        {
            "activations in the FFNs of our models": built,
            "largest difference of a hidden state between GELU and ReLU, same weights": change,
            "parameters with GELU and with ReLU": weights,
        },
        {
            "encoders have GELU, decoders ReLU": all(
                found == ["GELU" if name.endswith("encoder") else "ReLU"] for name, found in built.items()
            ),
            "the choice changes outputs": change > 0.01,
            "it changes no parameter count": weights[0] == weights[1],
        },
        (Effect("activation of the encoder's FFN", *(ffn_activations(model)[0] for model in models)),),
    )


def ffn_activations(model: nn.Module) -> list[str]:
    """The distinct activations in a model's FFNs, by torch's names."""
    return sorted({type(part.activation).__name__ for part in model.modules() if isinstance(part, FFN)})


@check("norm-placement")
def norm_placement() -> Found:
    where = {kind: published("transnormer-t2", kind).norm_placement for kind in MODELS}
    configs = [tiny("transnormer-t2", norm_placement=place, init="fairseq") for place in ("pre", "post")]
    with torch.no_grad():
        difference = apart(*(build_model(c, seed=0).double().hidden(torch.arange(16)[None]) for c in configs))
    return Found(
        {"placement by kind of model": where, "largest difference of a hidden state, same weights": difference},
        {
            "decoder and encoder differ": where == {"decoder": "pre", "encoder": "post"},
            "the placement changes hidden states": difference > 0.01,
        },
    )


@check("rela-without-a-gate")
def rela_without_a_gate() -> Found:
    q, k, v = heads(2, 16, 8)
    ours = build("diag", scores="rela", block_size=16)
    gated = build("rela").double()
    gated.reset_parameters(torch.Generator().manual_seed(0))
    weights = [sum(p.numel() for p in core.parameters()) for core in (ours, gated)]
    difference = apart(ours(q, k, v), gated(q, k, v))
    t2 = [build("diag", block_size=16, **norm)(q, k, v).square().mean().sqrt() for norm in ({}, {"norm": "rms"})]
    return Found(
        {
            "weights in T1's norm and in ReLA's gated norm": weights,
            "largest difference of an output": difference,
            "size of T2's outputs without and with a norm": [float(size) for size in t2],
        },
        {
            "T1's norm has no weights; ReLA's has a gate and a gain": weights == [0, 2 * 16],
            "the gate changes outputs": difference > 0.01,
            "T2's outputs are not normalised": abs(float(t2[0]) - 1) > 0.1,
        },
        (Effect("weights in the norm of a layer of width 16", *weights),),
    )


@check("lra-rms-epsilon")
def lra_rms_epsilon() -> Found:
    released = arena_model("listops", "released").attention_options["norm"]
    eps, where = released["eps"], released["eps_placement"]
    ours = NormConfig(heads=1, head_dim=8)
    row = random(1, 8)
    row = row / row.square().mean().sqrt() * 0.1
    forms = ((ours.eps, ours.eps_placement), (eps, where), (eps, "inside"))
    sizes = [float(rms_norm(row, *form).square().mean().sqrt()) for form in forms]
    return Found(
        {
            "ε by default and in the released arena code": [ours.eps, eps],
            "size of a row of 0.1 after the norm: by default, as released, released ε inside the root": sizes,
        },
        {
            "the released ε is a million times ours": eps / ours.eps > 0.9e6,
            "outside the root it makes this row 9% smaller": abs(1 - sizes[1] / sizes[0] - 0.09) < 0.005,
            "inside the root it would make it 29% smaller": abs(1 - sizes[2] / sizes[0] - 0.29) < 0.005,
        },
        (Effect("size of a row of 0.1 after the norm", *sizes[:2]),),
    )


@check("lra-batch-norm")
def lra_batch_norm() -> Found:
    x = random(4, 16, 8)
    other = x.clone()
    other[1:] = 3 * other[1:] + 1
    batch = apart(released_forms.batch_norm(x)[0], released_forms.batch_norm(other)[0])
    layer = apart(*(nn.functional.layer_norm(y[0], (8,)) for y in (x, other)))
    ours = arena_model("listops", "released").norm
    return Found(
        {"change of a sequence's output when the rest of its batch changes": {"BatchNorm": batch, "LayerNorm": layer}},
        {
            "with BatchNorm an output depends on the other sequences": batch > 0.1,
            "with our norm it does not": layer == 0.0 and ours == "layer",
        },
        (Effect("change of an output through other sequences", layer, batch),),
    )
