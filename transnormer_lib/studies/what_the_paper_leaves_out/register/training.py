"""Checks on training settings: what Table 13, the text and the scripts say, and the effect of each choice."""

import math
from dataclasses import fields

import torch

from transnormer_lib import attention
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import build_model
from transnormer_lib.papers import settings
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import apart, build, heads, said, tiny
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import MODELS
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.schedules import factor


@check("learning-rate")
def learning_rate() -> Found:
    by_source = {
        source: [said(source, model, "learning_rate") for model in MODELS.values()]
        for source in ("Section 5.1", "Table 13", settings.SCRIPTS)
    }
    text, table, scripts = by_source.values()
    return Found(
        {f"{source}: autoregressive, bidirectional": rates for source, rates in by_source.items()},
        {
            "the table and the scripts agree": table == scripts,
            "the rate in the text is ten times as high": all(map(math.isclose, text, [10 * rate for rate in table])),
            "ours is the table's": OptimizerConfig().learning_rate == table[0],
        },
    )


@check("warm-up-start")
def warm_up_start() -> Found:
    rate, warmup = (said("Table 13", "autoregressive", name) for name in ("learning_rate", "warmup"))
    rates = []
    for start in (said(settings.SCRIPTS, "autoregressive", "warmup_start"), 0.0):
        config = OptimizerConfig(learning_rate=rate, warmup=warmup, warmup_start=start)
        rates.append([rate * factor(config, 100_000)(step) for step in (0, warmup // 2, warmup)])
    scripts, other = rates
    return Found(
        {
            "rate at step 0, halfway and at the end of the warm-up; scripts": scripts,
            "if the first step is one increment above zero": other,
        },
        {
            "in the scripts the rate starts at their warm-up start": math.isclose(
                scripts[0], said(settings.SCRIPTS, "autoregressive", "warmup_start")
            ),
            "from halfway on, the two rates differ by at most a thousandth": all(
                math.isclose(a, b, rel_tol=1e-3) for a, b in zip(scripts[1:], other[1:], strict=True)
            ),
        },
        (Effect("rate of the first step", scripts[0], other[0]),),
    )


@check("attention-dropout")
def attention_dropout() -> Found:
    table, scripts = (
        said(source, "bidirectional", "attention_dropout_of") for source in ("Table 13", settings.SCRIPTS)
    )
    rates = {}
    for recipe in ("paper", "released"):
        model = build_model(tiny("transnormer-t2", recipe=recipe), seed=0)
        rates[recipe] = {core.name: core.dropout.p for core in model.modules() if isinstance(core, attention.Attention)}
    core = build("diag", block_size=16, dropout=0.1)
    q, k, v = heads(2, 32, 8)
    torch.manual_seed(0)
    changed = apart(core.train()(q, k, v), core.eval()(q, k, v))
    ours = [rates[recipe]["diag"] for recipe in ("paper", "released")]
    return Found(
        {
            "models with attention dropout in Table 13": table,
            "in the released bidirectional model": scripts,
            "rates in our recipes": rates,
            "largest change of a training output at a rate of 0.1": changed,
        },
        {
            "the release has it in DiagAttention, the table does not": "diag" in scripts and "diag" not in table,
            "our released recipe has it in DiagAttention, our paper recipe does not": ours == [0.0, 0.1],
            "it changes outputs": changed > 0.01,
        },
        (Effect("dropout of DiagAttention's matrix", *ours),),
    )


@check("initial-weights")
def initial_weights() -> Found:
    spread = {}
    for init in ("fairseq", "normal-0.02"):
        model = build_model(tiny("transnormer-t2", dim=64, init=init), seed=0)
        layers = [m for m in model.modules() if isinstance(m, attention.MultiHeadAttention)]
        output = dict(layers[0].named_parameters())["out_proj.weight"]
        spread[init] = [*(layer.q_proj.weight.std().item() for layer in layers), output.std().item()]
    by_kind = {kind: published("transnormer-t2", kind).init for kind in MODELS}
    xavier = math.sqrt(2 / (64 + 64))
    expected = {"fairseq": [xavier, xavier / math.sqrt(2), xavier], "normal-0.02": [0.02] * 3}
    near = {
        init: all(math.isclose(a, b, rel_tol=0.05) for a, b in zip(spread[init], stds, strict=True))
        for init, stds in expected.items()
    }
    return Found(
        {
            **{f"std of q in DiagAttention, q in NormAttention, output; {init}": stds for init, stds in spread.items()},
            "scheme by kind of model": by_kind,
        },
        {
            "decoder and encoder start differently": by_kind == {"decoder": "fairseq", "encoder": "normal-0.02"},
            "the decoder's weights are Xavier's, with NormAttention's smaller by √2": near["fairseq"],
            "the encoder's are N(0, 0.02²)": near["normal-0.02"],
        },
        (Effect("std of q in DiagAttention at width 64", *(stds[0] for stds in spread.values())),),
    )


@check("unmatched-baseline")
def unmatched_baseline() -> Found:
    t2, *others = (tiny(name, recipe="released") for name in ("transnormer-t2", "linear", "linear-matched"))
    baseline, control = (differing(t2, other) for other in others)
    return Found(
        {
            "fields in which T2 and 1+elu differ, as released": baseline,
            "fields in which T2 and the matched control differ": control,
        },
        {
            "the baseline differs in rotation, feed-forward part and norm": {"rotary", "feed_forward", "norm"}
            <= set(baseline),
            "the control differs only in its attention": set(control) == {"attention", "attention_options"},
        },
    )


def differing(a: ModelConfig, b: ModelConfig) -> list[str]:
    """The fields in which two configs differ."""
    return [field.name for field in fields(a) if getattr(a, field.name) != getattr(b, field.name)]


@check("hyperparameters-elsewhere")
def hyperparameters_elsewhere() -> Found:
    stated, found = (said(source, "bidirectional", "hyperparameters_in") for source in ("Section 5.1", "Appendix E"))
    listed = {
        record.source
        for record in settings.load("transnormer")
        if "warmup" in record.values and record.source.startswith(("Table", "Appendix"))
    }
    return Found(
        {
            "where Section 5.1 says the hyperparameters are": stated,
            "where they are introduced": found,
            "where they are printed": sorted(listed),
        },
        {"the two places differ": stated != found, "they are printed in Table 13": listed == {"Table 13"}},
    )
