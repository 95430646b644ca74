"""Checks on the methods that TransNormer is compared with."""

import torch

from transnormer_lib import attention
from transnormer_lib.attention.flash import Flash, FlashQuad
from transnormer_lib.models.architectures import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, heads, random


def prefix_change(name: str, short: int, **fields: object) -> float:
    """How far the first ``short`` outputs of a causal mechanism change when as many tokens follow."""
    shape: dict[str, object] = {"heads": 2, "head_dim": 8, "causal": True}
    if attention.kind(name) == "block":
        shape = {"dim": 16, "s": 8, "causal": True}
    torch.manual_seed(0)
    core = attention.build(name, shape | fields).double().eval()
    if isinstance(core, attention.Attention):
        q, k, v = heads(2, 2 * short, 8)
        return apart(core(*(x[:, :, :short] for x in (q, k, v))), core(q, k, v)[:, :, :short])
    torch.nn.init.normal_(core.get_parameter("gamma"))  # it starts so small that scores would hardly be seen
    x = random(1, 2 * short, 16)
    return apart(core(x[:, :short]), core(x)[:, :short])


@check("cosformer-length")
def cosformer_length() -> Found:
    changes = {by: prefix_change("cosformer", 32, weights_by=by) for by in ("max_length", "length")}
    return Found(
        {f"change of the first 32 outputs when 32 tokens follow; weights by {by}": c for by, c in changes.items()},
        {
            "by the length, outputs depend on tokens to come": changes["length"] > 1e-4,
            "by the longest length they do not": changes["max_length"] < ROUNDING,
        },
        (Effect("change of earlier outputs by later tokens", changes["max_length"], changes["length"]),),
    )


@check("flash-divisor")
def flash_divisor() -> Found:
    quad = {by: prefix_change("flash-quad", 32, divide_by=by) for by in ("seen", "max_length", "length")}
    size = {}
    for by in ("seen", "chunk"):
        torch.manual_seed(0)
        core = attention.build("flash", {"dim": 16, "s": 8, "chunk_size": 8, "divide_by": by, "position_bias": "none"})
        assert isinstance(core, Flash)
        core = core.double().eval()
        lengths = []
        for n in (64, 512):
            ones, values = (torch.ones(1, n, width, dtype=torch.float64) for width in (8, 4))
            lengths.append(float(core.mix((ones, ones, ones, ones), values, None).mean()))
        size[by] = lengths[1] / lengths[0]
    return Found(
        {
            "FLASH-quad: change of the first 32 outputs when 32 tokens follow": quad,
            "FLASH: size of a mixed value at 512 tokens over that at 64": size,
        },
        {
            "divided by the length, FLASH-quad's outputs depend on tokens to come": quad["length"] > 1e-4,
            "divided by what is seen, or by a constant, they do not": max(quad["seen"], quad["max_length"]) < 1e-12,
            "divided by the chunk, FLASH grows with the length": size["chunk"] > 2.0,
            "divided by what is seen, it does not": abs(size["seen"] - 1) < 1e-6,
        },
        (Effect("FLASH: size at 512 tokens over that at 64", size["seen"], size["chunk"]),),
    )


@check("linear-denominator-clamp")
def linear_clamp() -> Found:
    q, k, v = heads(1, 16, 8)
    outputs, rows = {}, {}
    for floor in (1e-6, 1e-300):
        core = attention.build("linear", {"heads": 1, "head_dim": 8, "denominator_floor": floor})
        assert isinstance(core, attention.Attention)
        small = core.weights(q - 12.0, k - 12.0, v).sum(-1)
        outputs[floor], rows[floor] = core(q, k, v), float(small.max())
    ordinary = apart(*outputs.values())
    return Found(
        {
            "sum of a row of weights where queries and keys are near -12; clamped at 1e-6": rows[1e-6],
            "the same; not clamped": rows[1e-300],
            "largest difference for queries and keys of size 1": ordinary,
        },
        {
            "clamped, a row with small scores fades": rows[1e-6] < 0.5,
            "not clamped, every row sums to one": abs(rows[1e-300] - 1) < ROUNDING,
            "ordinary rows do not notice": ordinary == 0.0,
        },
        (Effect("sum of a row with small scores", rows[1e-6], rows[1e-300]),),
    )


@check("performer-features")
def performer_features() -> Found:
    q, k, v = heads(1, 64, 16)
    q, k = 0.5 * q, 0.5 * k  # scores of the size that random features are made for
    exact = attention.build("softmax", {"heads": 1, "head_dim": 16})(q, k, v)
    errors = {}
    for features in (64, 1024):
        found = []
        for seed in range(4):
            core = attention.build("performer", {"heads": 1, "head_dim": 16, "features": features}).double().eval()
            assert isinstance(core, attention.Attention)
            core.reset_parameters(torch.Generator().manual_seed(seed))
            found.append(float((core(q, k, v) - exact).norm() / exact.norm()))
        errors[features] = sum(found) / len(found)
    rougher = errors[64] / errors[1024]
    used = published("performer", "encoder").attention_options["performer"]["features"]
    return Found(
        {
            "features of the baseline": used,
            "relative error of softmax attention, by features": errors,
            "ratio": rougher,
        },
        {
            "the baseline has 64": used == 64,
            "with 64 features it is several times, at least three, as rough": rougher >= 3.0,
        },
        (Effect("relative error of softmax attention", errors[64], errors[1024]),),
    )


@check("performer-is-not-1-plus-elu")
def performer_is_not_linear() -> Found:
    q, k, v = heads(1, 32, 8)
    q, k = 0.5 * q, 0.5 * k
    shape = {"heads": 1, "head_dim": 8}
    linear = attention.build("linear", shape)(q, k, v)
    softmax = attention.build("softmax", shape)(q, k, v)
    performer = attention.build("performer", shape | {"features": 4096}).double().eval()
    assert isinstance(performer, attention.Attention)
    performer.reset_parameters(torch.Generator().manual_seed(0))
    o = performer(q, k, v)
    to_softmax, to_linear = (float((o - other).norm() / other.norm()) for other in (softmax, linear))
    return Found(
        {"Performer with 4,096 features against softmax, relative": to_softmax, "against 1+elu": to_linear},
        {"it approximates softmax attention, and not 1+elu": to_softmax < 0.5 * to_linear},
    )


@check("flash-quad-is-quadratic")
def flash_quad_is_quadratic() -> Found:
    growth = {}
    for name in ("flash-quad", "flash", "linear"):
        gated: dict[str, object] = {"dim": 64, "s": 128, "max_length": 8192}
        core = attention.build(name, {"heads": 1, "head_dim": 64} if name == "linear" else gated)
        between = core.mix_flops if isinstance(core, Flash | FlashQuad) else core.flops
        growth[name] = between(8192) / between(4096)
    return Found(
        {"times as many operations between tokens at 8,192 as at 4,096": growth},
        {
            "FLASH-quad is quadratic": growth["flash-quad"] == 4.0,
            "FLASH and 1+elu are not": max(growth["flash"], growth["linear"]) < 2.1,
        },
    )
