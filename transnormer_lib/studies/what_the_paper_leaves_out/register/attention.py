"""Checks on NormAttention and DiagAttention: masks, padding, cost, what they see."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib import attention
from transnormer_lib.attention.norm import magnitude_weights
from transnormer_lib.attention.registry import config_class
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, heads, tiny

_W = 16  # tokens per block
_WIDTH = 32  # of built models
_SHAPE = {"heads": 2, "head_dim": 8}


def build(name: str, **fields: object) -> attention.Attention:
    """A mechanism of two heads of eight numbers."""
    core = attention.build(name, _SHAPE | fields)
    assert isinstance(core, attention.Attention)
    return core.eval()


@check("mask-after-the-softmax")
def mask_after_softmax() -> Found:
    q, k, v = heads(2, _W, 8)
    future = k.clone()
    future[:, :, -1] *= 3  # the last key alone; all outputs before it should stay
    ours = build("diag", block_size=_W, causal=True)
    changes = {
        "released until 2022-06-13": apart(
            *(released_forms.masked_after_softmax(q, keys, v)[:, :, :-1] for keys in (k, future))
        ),
        "ours": apart(*(ours(q, keys, v)[:, :, :-1] for keys in (k, future))),
    }
    released, here = changes.values()
    return Found(
        {f"change of earlier outputs by the last key; {name}": change for name, change in changes.items()},
        {"masked after the softmax, the future is seen": released > 1e-3, "ours does not see it": here == 0.0},
        (Effect("change of earlier outputs by the last key", here, released),),
    )


@check("zeros-in-the-last-block")
def zeros_in_the_last_block() -> Found:
    ours = build("diag", block_size=_W)
    figures, changes, sizes = {}, {}, {}
    for n in (2 * _W, 2 * _W + 4):
        q, k, v = heads(2, n, 8)
        released, here = released_forms.zero_padded_blocks(q, k, v, _W), ours(q, k, v)
        last = slice(n - (n % _W or _W), n)
        changes[n] = apart(released, here)
        sizes[n] = float(released[:, :, last].norm() / here[:, :, last].norm())
        figures[f"n = {n}: largest difference of an output; size of the last block's outputs over ours"] = [
            changes[n],
            sizes[n],
        ]
    whole, ragged = changes.values()
    kept, shrunk = sizes.values()
    return Found(
        figures,
        {
            "where blocks are whole the two agree": whole < ROUNDING,
            "with four tokens in the last block they do not": ragged > 0.01,
            "there the outputs shrink, and in a whole block they do not": shrunk < 1.0 and abs(kept - 1) < ROUNDING,
        },
        (Effect("difference of an output in a last block of 4 of 16 tokens", whole, ragged),),
    )


@check("padding-mask-ignored")
def padding_mask_ignored() -> Found:
    n, real = 2 * _W, _W + 4
    q, k, v = heads(2, n, 8)
    padding = torch.arange(n)[None] >= real
    q2, k2, v2 = (torch.where(padding[:, None, :, None], 5 * x, x) for x in (q, k, v))
    changes: dict[str, dict[str, float]] = {}
    for name, fields in (("norm", {"phi": "1+elu"}), ("diag", {"block_size": _W})):
        core = build(name, **fields)
        unmasked = released_forms.without_the_mask
        changes[name] = {
            "masked": apart(core(q, k, v, padding)[:, :, :real], core(q2, k2, v2, padding)[:, :, :real]),
            "ignored": apart(
                unmasked(core, q, k, v, padding)[:, :, :real], unmasked(core, q2, k2, v2, padding)[:, :, :real]
            ),
        }
    return Found(
        {f"change of real outputs by what stands on padding; {name}": by for name, by in changes.items()},
        {
            "ignored, padding reaches the real tokens": all(by["ignored"] > 0.01 for by in changes.values()),
            "masked, it does not": all(by["masked"] == 0.0 for by in changes.values()),
        },
        tuple(Effect(f"change of real outputs; {name}", by["masked"], by["ignored"]) for name, by in changes.items()),
    )


@check("causal-path-is-quadratic")
def causal_path() -> Found:
    core = attention.build("norm", {"heads": 1, "head_dim": 64, "causal": True, "phi": "elu"})
    lengths = (512, 1024, 8192)
    ours = [core.flops(n) for n in lengths]
    released = [released_forms.causal_product_flops(n, 64) for n in lengths]
    growth = [costs[1] / costs[0] for costs in (ours, released)]
    return Found(
        {
            f"operations of a head of 64 at {', '.join(map(str, lengths))} tokens; ours": ours,
            "the same; released": released,
            "times as many for twice the length; ours, released": growth,
        },
        {"the released causal product is quadratic": growth[1] > 3.9, "ours is linear": growth[0] < 2.1},
        (Effect(f"operations at {lengths[-1]} tokens", ours[-1], released[-1]),),
    )


@check("incremental-state-ignored")
def incremental_state() -> Found:
    core = build("norm", phi="1+elu", causal=True)
    q, k, v = heads(2, 24, 8)
    parallel = core(q, k, v)[:, :, -1]
    _, state = core.prefill(*(x[:, :, :-1] for x in (q, k, v)))
    stepped, _ = core.step(q[:, :, -1], k[:, :, -1], v[:, :, -1], state)
    alone = released_forms.without_the_state(core, q, k, v)[:, :, -1]
    return Found(
        {
            "decoding the last token against the parallel form; ours": apart(stepped, parallel),
            "with the state ignored": apart(alone, parallel),
        },
        {
            "ours agrees": apart(stepped, parallel) < ROUNDING,
            "without the state the token sees itself alone": apart(alone, parallel) > 0.01,
        },
        (Effect("error of a decoded output", apart(stepped, parallel), apart(alone, parallel)),),
    )


@check("no-query-scaling")
def no_query_scaling() -> Found:
    q, k, v = heads(2, 24, 8)
    norm, diag = build("norm", phi="elu"), build("diag", block_size=8)
    scaled = q * 8**-0.5
    by_norm, homogeneous = (
        apart(norm(scaled, k, v), norm(q, k, v)),
        apart(build("norm", phi="identity")(scaled, k, v), build("norm", phi="identity")(q, k, v)),
    )
    expected = torch.cat(
        [
            (scaled[:, :, b] @ k[:, :, b].mT).softmax(-1) @ v[:, :, b]
            for b in (slice(0, 8), slice(8, 16), slice(16, 24))
        ],
        2,
    )
    return Found(
        {
            "change of NormAttention's output when queries are scaled; φ = elu": by_norm,
            "the same; φ = identity, where the norm takes the factor out": homogeneous,
            "DiagAttention against a softmax of scaled queries": apart(diag(q, k, v), expected),
        },
        {
            "NormAttention does not scale, and with elu that matters": by_norm > 1e-3,
            "as Eq. 13 is printed, without φ, it would not": homogeneous < 1e-5,
            "DiagAttention scales": apart(diag(q, k, v), expected) < ROUNDING,
        },
    )


@check("no-dropout-in-norm-attention")
def no_dropout() -> Found:
    has = {name: "dropout" in config_class(name).__dataclass_fields__ for name in ("softmax", "diag", "norm", "linear")}
    core = build("norm", phi="1+elu").train()
    q, k, v = heads(2, 16, 8)
    twice = apart(core(q, k, v), core(q, k, v))
    return Found(
        {"mechanisms with dropout of the matrix": has, "two passes of NormAttention in training differ by": twice},
        {
            "softmax and DiagAttention have it, NormAttention and 1+elu have not": has
            == {"softmax": True, "diag": True, "norm": False, "linear": False},
            "NormAttention is the same twice": twice == 0.0,
        },
    )


@check("weights-of-norm-attention")
def weights_of_norm_attention() -> Found:
    q, k, v = heads(2, 32, 8)
    negative, sums = {}, {}
    for phi in ("elu", "1+elu"):
        core = build("norm", phi=phi)
        s = core.attention_matrix(q, k, None)
        negative[phi] = float((s < 0).double().mean())
        sums[phi] = [float(s.sum(-1).min()), float(s.sum(-1).max())]
    shown = build("norm", phi="elu").weights(q, k, v).sum(-1)
    plain = magnitude_weights(torch.tensor([[1.0, -3.0]])).tolist()[0]
    return Found(
        {
            "share of scores below zero": negative,
            "smallest and largest sum of a row": sums,
            "sums of a row of our weights": [float(shown.min()), float(shown.max())],
            "our weights of the scores 1 and -3": plain,
        },
        {
            "with elu scores are negative": negative["elu"] > 0.1 and negative["1+elu"] == 0.0,
            "no row sums to one by itself": all(abs(edge - 1) > 0.1 for edges in sums.values() for edge in edges),
            "ours do": float((shown - 1).abs().max()) < ROUNDING,
        },
    )


@check("diag-is-linear-whatever-the-width")
def diag_is_linear() -> Found:
    ratios = {}
    for d in (16, 1024):
        core = attention.build("diag", {"heads": 1, "head_dim": d, "block_size": _W})
        ratios[f"width {d}"] = core.flops(512) / core.flops(256)
    blocks = [attention.build("diag", {"heads": 1, "head_dim": 16, "block_size": w}).flops(512) for w in (16, 512)]
    return Found(
        {
            "times as many operations for 512 tokens as for 256": ratios,
            "operations with blocks of 16, and of all 512 tokens": blocks,
        },
        {
            "linear in the length at both widths, one above the length": all(ratio == 2.0 for ratio in ratios.values()),
            "what makes it cheap is the block": blocks[1] / blocks[0] == 32,
        },
    )


def counted(layers: Sequence[nn.Module], n: int) -> int:
    """Operations of layers that run one after the other on n tokens, counted while they run."""
    x = torch.zeros(1, n, _WIDTH)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        for layer in layers:
            x = layer(x)
    return int(counter.get_total_flops())


def attentions(**fields: Any) -> list[nn.Module]:
    """The attentions of a built T2 of four layers, projections included."""
    config = tiny("transnormer-t2", layers=4, dim=_WIDTH, block_size=_W, **fields)
    return [block.attention for block in build_model(config, seed=0).eval().stack()]


def mechanisms(layers: Sequence[nn.Module]) -> list[str]:
    """What each layer holds, by name."""
    return ["+".join(m.name for m in layer.modules() if isinstance(m, attention.Attention)) for layer in layers]


@check("combination-of-attentions")
def combination_of_attentions() -> Found:
    diag, norm = attentions(early=4), attentions(early=0)  # four layers of each
    layers = {
        "TransNormer": attentions(),
        "in turns": attentions(arrangement="alternating"),
        "one after the other in every layer": [one for both in zip(diag, norm, strict=True) for one in both],
        "side by side in every layer": attentions(arrangement="parallel"),
    }
    costs = {name: counted(stack, 4 * _W) for name, stack in layers.items()}
    over = {name: cost / costs["TransNormer"] for name, cost in costs.items()}
    built = {name: mechanisms(stack) for name, stack in layers.items()}
    return Found(
        {
            "attentions of four layers as built": built,
            "operations counted while they run on 64 tokens": costs,
            "over TransNormer's": over,
        },
        {
            "built are stages, turns, and both in every layer": list(built.values())
            == [["diag"] * 2 + ["norm"] * 2, ["diag", "norm"] * 2, ["diag", "norm"] * 4, ["diag+norm"] * 4],
            "in turns costs what TransNormer costs": over["in turns"] == 1.0,
            "both in every layer cost twice that, one after the other": over["one after the other in every layer"]
            == 2.0,
            "and side by side": over["side by side in every layer"] == 2.0,
        },
        (
            Effect(
                "operations of attention over TransNormer's",
                over["in turns"],
                [over["one after the other in every layer"], over["side by side in every layer"]],
            ),
        ),
    )
