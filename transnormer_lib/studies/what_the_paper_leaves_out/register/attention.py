"""Checks on NormAttention and DiagAttention: masks, padding, cost, and which tokens they see."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib.attention import Attention
from transnormer_lib.attention.norm import magnitude_weights
from transnormer_lib.attention.registry import config_class
from transnormer_lib.ledger.values import shown
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, build, heads, tiny

_W = 16  # tokens per block
_WIDTH = 32  # of built models


@check("mask-after-the-softmax")
def mask_after_softmax() -> Found:
    q, k, v = heads(2, _W, 8)
    other = k.clone()
    other[:, :, -1] *= 3  # only the last key changes, so all earlier outputs should stay
    forms: dict[str, Callable[..., torch.Tensor]] = {
        "released until 2022-06-13": released_forms.masked_after_softmax,
        "ours": build("diag", block_size=_W, causal=True),
    }
    changes = {name: apart(*(form(q, keys, v)[:, :, :-1] for keys in (k, other))) for name, form in forms.items()}
    released, here = changes.values()
    return Found(
        {"change of earlier outputs through the last key": changes},
        {
            "masked after the softmax, earlier outputs depend on future keys": released > 1e-3,
            "ours do not": here == 0.0,
        },
        (Effect("change of earlier outputs through the last key", here, released),),
    )


@check("zeros-in-the-last-block")
def zeros_in_the_last_block() -> Found:
    core = build("diag", block_size=_W)
    changes, sizes = [], []
    lengths = (2 * _W, 2 * _W + 4)
    for n in lengths:
        q, k, v = heads(2, n, 8)
        released, ours = released_forms.zero_padded_blocks(q, k, v, _W), core(q, k, v)
        last = slice(n - (n % _W or _W), n)
        changes.append(apart(released, ours))
        sizes.append(float(released[:, :, last].norm() / ours[:, :, last].norm()))
    (whole, ragged), (kept, shrunk) = changes, sizes
    return Found(
        {
            f"largest difference of an output at {lengths[0]} and {lengths[1]} tokens, blocks of {_W}": changes,
            "size of the last block's outputs over ours": sizes,
        },
        {
            "with full blocks the two forms agree": whole < ROUNDING,
            "with four tokens in the last block they do not": ragged > 0.01,
            "zeros make the outputs of that block smaller": shrunk < 1.0 and abs(kept - 1) < ROUNDING,
        },
        (Effect("difference of an output in a last block of 4 of 16 tokens", whole, ragged),),
    )


@check("padding-mask-ignored")
def padding_mask_ignored() -> Found:
    n, real = 2 * _W, _W + 4
    q, k, v = heads(2, n, 8)
    padding = torch.arange(n)[None] >= real
    others = [torch.where(padding[:, None, :, None], 5 * x, x) for x in (q, k, v)]
    changes = {}
    for core in (build("norm", phi="1+elu"), build("diag", block_size=_W)):
        masked = apart(core(q, k, v, padding)[:, :, :real], core(*others, padding)[:, :, :real])
        unmasked = (released_forms.without_the_mask(core, a, b, c, padding) for a, b, c in ((q, k, v), others))
        changes[core.name] = {"masked": masked, "ignored": apart(*(o[:, :, :real] for o in unmasked))}
    return Found(
        {f"change of real outputs when padding changes; {name}": by for name, by in changes.items()},
        {
            "with the mask ignored, padding changes real outputs": all(by["ignored"] > 0.01 for by in changes.values()),
            "with the mask applied, it does not": all(by["masked"] == 0.0 for by in changes.values()),
        },
        tuple(Effect(f"change of real outputs; {name}", *by.values()) for name, by in changes.items()),
    )


@check("causal-path-is-quadratic")
def causal_path() -> Found:
    core = build("norm", heads=1, head_dim=64, causal=True, phi="elu")
    lengths = (512, 1024, 8192)
    ours = [core.flops(n) for n in lengths]
    released = [released_forms.causal_product_flops(n, 64) for n in lengths]
    growth = [costs[1] / costs[0] for costs in (ours, released)]
    return Found(
        {
            f"operations of a head of width 64 at {', '.join(map(shown, lengths))} tokens; ours": ours,
            "released": released,
            "growth for twice the length; ours, released": growth,
        },
        {"the released causal product is quadratic": growth[1] > 3.9, "ours is linear": growth[0] < 2.1},
        (Effect(f"operations at {lengths[-1]:,} tokens", ours[-1], released[-1]),),
    )


@check("incremental-state-ignored")
def incremental_state() -> Found:
    core = build("norm", phi="1+elu", causal=True)
    q, k, v = heads(2, 24, 8)
    parallel = core(q, k, v)[:, :, -1]
    _, state = core.prefill(*(x[:, :, :-1] for x in (q, k, v)))
    stepped, _ = core.step(q[:, :, -1], k[:, :, -1], v[:, :, -1], state)
    ours = apart(stepped, parallel)
    ignored = apart(released_forms.without_the_state(core, q, k, v)[:, :, -1], parallel)
    return Found(
        {"difference between decoding the last token and the parallel form": {"ours": ours, "state ignored": ignored}},
        {"our two forms agree": ours < ROUNDING, "without the state, a token sees only itself": ignored > 0.01},
        (Effect("error of a decoded output", ours, ignored),),
    )


@check("no-query-scaling")
def no_query_scaling() -> Found:
    q, k, v = heads(2, 24, 8)
    scaled = q * 8**-0.5
    elu, identity = (
        apart(core(scaled, k, v), core(q, k, v)) for core in (build("norm", phi=phi) for phi in ("elu", "identity"))
    )
    blocks = (slice(start, start + 8) for start in (0, 8, 16))
    expected = torch.cat([(scaled[:, :, b] @ k[:, :, b].mT).softmax(-1) @ v[:, :, b] for b in blocks], 2)
    diag = apart(build("diag", block_size=8)(q, k, v), expected)
    return Found(
        {
            "change of NormAttention's output when queries are scaled; φ = elu": elu,
            "φ = identity, for which the norm cancels the factor": identity,
            "difference between DiagAttention and a softmax of scaled queries": diag,
        },
        {
            "NormAttention does not scale queries, and with φ = elu scaling matters": elu > 1e-3,
            "without φ, as Eq. 13 is printed, scaling would not matter": identity < 1e-5,
            "DiagAttention scales queries": diag < ROUNDING,
        },
    )


@check("no-dropout-in-norm-attention")
def no_dropout() -> Found:
    has = {name: "dropout" in config_class(name).__dataclass_fields__ for name in ("softmax", "diag", "norm", "linear")}
    core = build("norm", phi="1+elu").train()
    q, k, v = heads(2, 16, 8)
    twice = apart(core(q, k, v), core(q, k, v))
    return Found(
        {"attention dropout, by mechanism": has, "difference between two training passes of NormAttention": twice},
        {
            "softmax attention and DiagAttention have attention dropout; NormAttention and 1+elu do not": has
            == {"softmax": True, "diag": True, "norm": False, "linear": False},
            "two training passes of NormAttention are equal": twice == 0.0,
        },
    )


@check("weights-of-norm-attention")
def weights_of_norm_attention() -> Found:
    q, k, v = heads(2, 32, 8)
    negative, sums = {}, {}
    for phi in ("elu", "1+elu"):
        s = build("norm", phi=phi).attention_matrix(q, k, None)
        negative[phi] = float((s < 0).double().mean())
        sums[phi] = [float(s.sum(-1).min()), float(s.sum(-1).max())]
    weights = build("norm", phi="elu").weights(q, k, v).sum(-1)
    return Found(
        {
            "share of negative scores": negative,
            "smallest and largest sum of a row of scores": sums,
            "smallest and largest sum of a row of our weights": [float(weights.min()), float(weights.max())],
            "our weights of the scores 1 and −3": magnitude_weights(torch.tensor([[1.0, -3.0]])).tolist()[0],
        },
        {
            "with φ = elu some scores are negative": negative["elu"] > 0.1 and negative["1+elu"] == 0.0,
            "rows of scores do not sum to one": all(abs(edge - 1) > 0.1 for edges in sums.values() for edge in edges),
            "rows of our weights do": float((weights - 1).abs().max()) < ROUNDING,
        },
    )


@check("diag-is-linear-whatever-the-width")
def diag_is_linear() -> Found:
    ratios = {}
    for d in (16, 1024):
        core = build("diag", heads=1, head_dim=d, block_size=_W)
        ratios[f"width {d}"] = core.flops(512) / core.flops(256)
    blocks = [build("diag", heads=1, head_dim=16, block_size=w).flops(512) for w in (16, 512)]
    return Found(
        {
            "operations for 512 tokens over those for 256": ratios,
            "operations with blocks of 16, and with one block of all 512 tokens": blocks,
        },
        {
            "both widths, below and above the length, are linear": all(ratio == 2.0 for ratio in ratios.values()),
            "small blocks are what makes it cheap": blocks[1] / blocks[0] == 32,
        },
    )


def counted(layers: Sequence[nn.Module], n: int) -> int:
    """Operations of layers that run one after another on n tokens, counted during the run."""
    x = torch.zeros(1, n, _WIDTH)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        for layer in layers:
            x = layer(x)
    return int(counter.get_total_flops())


def attentions(**fields: Any) -> list[nn.Module]:
    """The attention layers of a T2 of four layers, projections included."""
    config = tiny("transnormer-t2", layers=4, dim=_WIDTH, block_size=_W, **fields)
    return [block.attention for block in build_model(config, seed=0).eval().stack()]


@check("combination-of-attentions")
def combination_of_attentions() -> Found:
    diag, norm = attentions(early=4), attentions(early=0)
    layers = {
        "TransNormer": attentions(),
        "alternating layers": attentions(arrangement="alternating"),
        "one after the other in every layer": [one for both in zip(diag, norm, strict=True) for one in both],
        "side by side in every layer": attentions(arrangement="parallel"),
    }
    built = {
        name: ["+".join(m.name for m in layer.modules() if isinstance(m, Attention)) for layer in stack]
        for name, stack in layers.items()
    }
    costs = {name: counted(stack, 4 * _W) for name, stack in layers.items()}
    over = {name: cost / costs["TransNormer"] for name, cost in costs.items()}
    _, alternating, *both = over.values()
    return Found(
        {
            "attentions in a model of four layers": built,
            "operations on 64 tokens, counted during the run": costs,
            "operations over TransNormer's": over,
        },
        {
            "the models have stages, alternating layers, and both attentions in every layer": list(built.values())
            == [["diag"] * 2 + ["norm"] * 2, ["diag", "norm"] * 2, ["diag", "norm"] * 4, ["diag+norm"] * 4],
            "alternating layers cost as much as TransNormer": alternating == 1.0,
            "both in every layer, one after the other, cost twice as much": both[0] == 2.0,
            "both side by side cost twice as much, too": both[1] == 2.0,
        },
        (Effect("operations of attention over TransNormer's", alternating, both),),
    )
