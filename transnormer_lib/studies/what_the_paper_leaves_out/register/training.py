"""Checks on the settings of training: what Table 13, the text and the scripts say, and what the choice does."""

import math
from dataclasses import fields

import torch

from transnormer_lib import attention
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import build_model
from transnormer_lib.papers import settings
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import apart, heads, tiny
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.schedules import factor

_BOTH: tuple[settings.Model, ...] = ("autoregressive", "bidirectional")


@check("learning-rate")
def learning_rate() -> Found:
    by_source = {
        source: [settings.said("transnormer", source, model, "learning_rate") for model in _BOTH]
        for source in ("Section 5.1", "Table 13", settings.SCRIPTS)
    }
    text, table, scripts = by_source.values()
    return Found(
        {f"{source}: autoregressive, bidirectional": rates for source, rates in by_source.items()},
        {
            "the table and the scripts agree": table == scripts,
            "the text is ten times as high": all(math.isclose(t, 10 * s) for t, s in zip(text, table, strict=True)),
            "ours is the table's": OptimizerConfig().learning_rate == table[0],
        },
    )


@check("warm-up-start")
def warm_up_start() -> Found:
    start = settings.said("transnormer", settings.SCRIPTS, "autoregressive", "warmup_start")
    rate, warmup = (
        settings.said("transnormer", "Table 13", "autoregressive", name) for name in ("learning_rate", "warmup")
    )
    first = {}
    for name, value in (("scripts", start), ("from one rise above zero", 0.0)):
        config = OptimizerConfig(learning_rate=rate, warmup=warmup, warmup_start=value)
        first[name] = [rate * factor(config, 100_000)(step) for step in (0, warmup // 2, warmup)]
    scripts, other = first.values()
    return Found(
        {f"rate at step 0, halfway, at the end; {name}": rates for name, rates in first.items()},
        {
            "the scripts begin at their start": math.isclose(scripts[0], start),
            "from halfway on the two are within a thousandth": all(
                math.isclose(a, b, rel_tol=1e-3) for a, b in zip(scripts[1:], other[1:], strict=True)
            ),
        },
        (Effect("rate of the first step", scripts[0], other[0]),),
    )


@check("attention-dropout")
def attention_dropout() -> Found:
    table = settings.said("transnormer", "Table 13", "bidirectional", "attention_dropout_of")
    scripts = settings.said("transnormer", settings.SCRIPTS, "bidirectional", "attention_dropout_of")
    rates = {}
    for recipe in ("paper", "released"):
        model = build_model(tiny("transnormer-t2", recipe=recipe), seed=0)
        rates[recipe] = {core.name: core.dropout.p for core in model.modules() if isinstance(core, attention.Attention)}
    core = attention.build("diag", {"heads": 2, "head_dim": 8, "block_size": 16, "dropout": 0.1})
    assert isinstance(core, attention.Attention)
    q, k, v = heads(2, 32, 8)
    torch.manual_seed(0)
    changed = apart(core.train()(q, k, v), core.eval()(q, k, v))
    return Found(
        {
            "attention dropout, by Table 13": table,
            "in the released bidirectional model": scripts,
            "rates by our recipes": rates,
            "largest change of an output in training by a rate of 0.1": changed,
        },
        {
            "the release has it where the table has not": "diag" in scripts and "diag" not in table,
            "our released recipe has it in DiagAttention, our paper recipe has not": rates["released"]["diag"] == 0.1
            and rates["paper"]["diag"] == 0.0,
            "it changes outputs": changed > 0.01,
        },
        (Effect("dropout of DiagAttention's matrix", rates["paper"]["diag"], rates["released"]["diag"]),),
    )


@check("initial-weights")
def initial_weights() -> Found:
    spread = {}
    for init in ("fairseq", "normal-0.02"):
        model = build_model(tiny("transnormer-t2", dim=64, init=init), seed=0)
        layers = [m for m in model.modules() if isinstance(m, attention.MultiHeadAttention)]
        output = dict(layers[0].named_parameters())["out_proj.weight"]
        spread[init] = [*(layer.q_proj.weight.std().item() for layer in layers), output.std().item()]
    by_kind = {kind: published("transnormer-t2", kind).init for kind in ("decoder", "encoder")}
    xavier = math.sqrt(2 / (64 + 64))
    diag, norm, out = spread["fairseq"]
    return Found(
        {f"std of q in DiagAttention, q in NormAttention, output; {init}": values for init, values in spread.items()}
        | {"used in": by_kind},
        {
            "decoder and encoder start differently": by_kind == {"decoder": "fairseq", "encoder": "normal-0.02"},
            "the decoder's are Xavier's, NormAttention's smaller by √2": math.isclose(diag, xavier, rel_tol=0.05)
            and math.isclose(norm, xavier / math.sqrt(2), rel_tol=0.05)
            and math.isclose(out, xavier, rel_tol=0.05),
            "the encoder's are N(0, 0.02²)": all(math.isclose(s, 0.02, rel_tol=0.05) for s in spread["normal-0.02"]),
        },
        (Effect("std of q in DiagAttention at width 64", diag, spread["normal-0.02"][0]),),
    )


@check("unmatched-baseline")
def unmatched_baseline() -> Found:
    t2, baseline, matched = (tiny(name, recipe="released") for name in ("transnormer-t2", "linear", "linear-matched"))
    against_baseline, against_matched = differing(t2, baseline), differing(t2, matched)
    return Found(
        {
            "fields in which T2 and 1+elu differ, as released": against_baseline,
            "fields in which T2 and the matched control differ": against_matched,
        },
        {
            "the baseline differs in rotation, feed-forward part and norm": {"rotary", "feed_forward", "norm"}
            <= set(against_baseline),
            "the control differs in its attention alone": set(against_matched) == {"attention", "attention_options"},
        },
    )


def differing(a: ModelConfig, b: ModelConfig) -> list[str]:
    """The fields in which two configs differ."""
    return [field.name for field in fields(a) if getattr(a, field.name) != getattr(b, field.name)]


@check("hyperparameters-elsewhere")
def hyperparameters_elsewhere() -> Found:
    said = settings.said("transnormer", "Section 5.1", "bidirectional", "hyperparameters_in")
    found = settings.said("transnormer", "Appendix E", "bidirectional", "hyperparameters_in")
    listed = [
        s.source
        for s in settings.load("transnormer")
        if "warmup" in s.values and s.source.startswith(("Table", "Appendix"))
    ]
    return Found(
        {
            "Section 5.1 sends the reader to": said,
            "they are introduced in": found,
            "and printed in": sorted(set(listed)),
        },
        {"the two places differ": said != found, "they are in Table 13": set(listed) == {"Table 13"}},
    )
