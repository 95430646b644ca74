"""Checks on positions: LRPE, which the paper does not mention, and the absolute ones."""

import torch

from transnormer_lib import attention
from transnormer_lib.attention.rotary import Rotary
from transnormer_lib.models.architectures import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, heads, millions, random
from transnormer_lib.studies.what_the_paper_leaves_out.table_13 import fits, printed


@check("rotation-not-mentioned")
def rotation() -> Found:
    q, k, v = heads(2, 32, 8)
    order = torch.arange(31, -1, -1)
    outputs, order_blind = {}, {}
    for rotary in ("none", "lrpe"):
        torch.manual_seed(0)
        core = attention.build("norm", {"heads": 2, "head_dim": 8, "phi": "1+elu", "rotary": rotary})
        outputs[rotary] = core(q, k, v)
        turned = core(*(x[:, :, order] for x in (q, k, v)))[:, :, order]
        order_blind[rotary] = apart(turned, outputs[rotary])
    torch.manual_seed(0)
    lrpe = Rotary(8, learned=True)
    x, y = random(2, 1, 1, 1, 8, seed=1)
    with torch.no_grad():
        scores = [float((lrpe(x, start=i)[0] * lrpe(y, start=i + 3)[0]).sum()) for i in (0, 10)]
    return Found(
        {
            "largest change of an output when the sequence is read backwards; without LRPE": order_blind["none"],
            "the same; with LRPE": order_blind["lrpe"],
            "score of the same two vectors 3 apart, at 0 and at 10": scores,
        },
        {
            "without LRPE NormAttention does not see the order": order_blind["none"] < ROUNDING,
            "with it it does": order_blind["lrpe"] > 0.01,
            "a score depends on the distance alone": abs(scores[0] - scores[1]) < 1e-5,
        },
        (Effect("change of an output when the sequence is reversed", order_blind["none"], order_blind["lrpe"]),),
    )


@check("rotation-restarts-in-blocks")
def restarts() -> Found:
    q, k, _ = heads(1, 24, 8)
    torch.manual_seed(0)
    lrpe = Rotary(8, learned=True).double()
    block = slice(16, 24)
    scores = []
    for period in (8, 0):
        turned_q, turned_k = lrpe(q, k, period=period)
        scores.append(turned_q[:, :, block] @ turned_k[:, :, block].mT)
    across = []
    for period in (8, 0):
        turned_q, turned_k = lrpe(q, k, period=period)
        across.append(turned_q[:, :, block] @ turned_k[:, :, :8].mT)
    return Found(
        {
            "largest difference of a score inside a block": apart(*scores),
            "the same between blocks, which DiagAttention does not look at": apart(*across),
        },
        {"inside a block nothing changes": apart(*scores) < 1e-6, "between blocks it would": apart(*across) > 0.01},
        (Effect("largest difference of a score inside a block", 0.0, apart(*scores)),),
    )


@check("absolute-positions")
def absolute_positions() -> Found:
    kinds = {kind: published("transnormer-t2", kind).positions for kind in ("decoder", "encoder")}
    learned, fixed = (millions("transnormer-t2", "encoder", positions=p) for p in ("learned", "sinusoidal"))
    five = printed("encoder", "TransNormer T2")
    return Found(
        {
            "absolute positions": kinds,
            "encoder with learned positions (M)": learned,
            "with sinusoidal ones (M)": fixed,
            "Table 5 (M)": five,
        },
        {
            "the two kinds differ": kinds == {"decoder": "sinusoidal", "encoder": "learned"},
            "Table 5's count has a learned table": fits(learned, five) and not fits(fixed, five),
        },
        (Effect("parameters of the encoder (M)", learned, fixed),),
    )
