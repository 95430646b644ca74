"""Checks on positions: LRPE, which the paper does not mention, and the absolute ones."""

import torch

from transnormer_lib.attention.rotary import Rotary
from transnormer_lib.models.architectures import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import (
    ROUNDING,
    apart,
    build,
    heads,
    millions,
    random,
)
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import MODELS, fits, printed


@check("rotation-not-mentioned")
def rotation() -> Found:
    q, k, v = heads(2, 32, 8)
    changes = {}
    for rotary in ("none", "lrpe"):
        torch.manual_seed(0)
        core = build("norm", phi="1+elu", rotary=rotary)
        changes[rotary] = apart(core(*(x.flip(2) for x in (q, k, v))).flip(2), core(q, k, v))
    torch.manual_seed(0)
    lrpe = Rotary(8, learned=True)
    x, y = random(2, 1, 1, 1, 8, seed=1)
    with torch.no_grad():
        scores = [float((lrpe(x, start=i)[0] * lrpe(y, start=i + 3)[0]).sum()) for i in (0, 10)]
    return Found(
        {
            "largest change of an output when the sequence is reversed, by rotation": changes,
            "score of the same two vectors at distance 3, from positions 0 and 10": scores,
        },
        {
            "without LRPE NormAttention ignores the order": changes["none"] < ROUNDING,
            "with LRPE it does not": changes["lrpe"] > 0.01,
            "a score depends only on the distance": abs(scores[0] - scores[1]) < 1e-5,
        },
        (Effect("change of an output when the sequence is reversed", changes["none"], changes["lrpe"]),),
    )


@check("rotation-restarts-in-blocks")
def restarts() -> Found:
    q, k, _ = heads(1, 24, 8)
    torch.manual_seed(0)
    lrpe = Rotary(8, learned=True).double()
    rotated = [lrpe(q, k, period=period) for period in (8, 0)]
    inside, across = (
        apart(*(queries[:, :, 16:] @ keys[:, :, block].mT for queries, keys in rotated))
        for block in (slice(16, 24), slice(0, 8))
    )
    return Found(
        {
            "largest change of a score inside a block": inside,
            "largest change of a score between blocks, which DiagAttention does not use": across,
        },
        {"scores inside a block stay the same": inside < 1e-6, "scores between blocks would change": across > 0.01},
        (Effect("largest change of a score inside a block", 0.0, inside),),
    )


@check("absolute-positions")
def absolute_positions() -> Found:
    kinds = {kind: published("transnormer-t2", kind).positions for kind in MODELS}
    learned, fixed = (millions("transnormer-t2", "encoder", positions=p) for p in ("learned", "sinusoidal"))
    five = printed("encoder", "TransNormer T2")
    return Found(
        {
            "absolute positions": kinds,
            "encoder with learned and with sinusoidal positions (M)": [learned, fixed],
            "Table 5 (M)": five,
        },
        {
            "decoder and encoder differ": kinds == {"decoder": "sinusoidal", "encoder": "learned"},
            "Table 5's count includes a learned table": fits(learned, five) and not fits(fixed, five),
        },
        (Effect("parameters of the encoder (M)", learned, fixed),),
    )
