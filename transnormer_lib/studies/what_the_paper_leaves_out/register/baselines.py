"""Checks on the methods that TransNormer is compared with."""

import torch

from transnormer_lib import attention
from transnormer_lib.attention.flash import Flash, FlashQuad
from transnormer_lib.models.architectures import published
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, build, heads, random


def future_change(name: str, short: int, **fields: object) -> float:
    """How far the first ``short`` outputs of a causal mechanism change when as many tokens follow."""
    torch.manual_seed(0)
    if attention.kind(name) == "attention":
        core = build(name, causal=True, **fields).double()
        q, k, v = heads(2, 2 * short, 8)
        return apart(core(*(x[:, :, :short] for x in (q, k, v))), core(q, k, v)[:, :, :short])
    block = attention.build(name, {"dim": 16, "s": 8, "causal": True} | fields).double().eval()
    torch.nn.init.normal_(block.get_parameter("gamma"))  # its initial values are too small for scores to matter
    x = random(1, 2 * short, 16)
    return apart(block(x[:, :short]), block(x)[:, :short])


@check("cosformer-length")
def cosformer_length() -> Found:
    changes = {by: future_change("cosformer", 32, weights_by=by) for by in ("max_length", "length")}
    return Found(
        {"change of the first 32 outputs when 32 tokens follow, by divisor of the positions": changes},
        {
            "divided by the current length, outputs depend on future tokens": changes["length"] > 1e-4,
            "divided by the longest length, they do not": changes["max_length"] < ROUNDING,
        },
        (Effect("change of earlier outputs through later tokens", changes["max_length"], changes["length"]),),
    )


@check("flash-divisor")
def flash_divisor() -> Found:
    quad = {by: future_change("flash-quad", 32, divide_by=by) for by in ("seen", "max_length", "length")}
    growth = {}
    for by in ("seen", "chunk"):
        torch.manual_seed(0)
        core = attention.build("flash", {"dim": 16, "s": 8, "chunk_size": 8, "divide_by": by, "position_bias": "none"})
        assert isinstance(core, Flash)
        core = core.double().eval()
        sizes = []
        for n in (64, 512):
            ones, values = (torch.ones(1, n, width, dtype=torch.float64) for width in (8, 4))
            sizes.append(float(core.mix((ones, ones, ones, ones), values, None).mean()))
        growth[by] = sizes[1] / sizes[0]
    return Found(
        {
            "FLASH-quad: change of the first 32 outputs when 32 tokens follow, by divisor": quad,
            "FLASH: size of a mixed value at 512 tokens over that at 64, by divisor": growth,
        },
        {
            "divided by the length, FLASH-quad's outputs depend on future tokens": quad["length"] > 1e-4,
            "divided by the tokens seen, or by a constant, they do not": max(quad["seen"], quad["max_length"]) < 1e-12,
            "divided by the chunk size, FLASH's values grow with the length": growth["chunk"] > 2.0,
            "divided by the tokens seen, they do not": abs(growth["seen"] - 1) < 1e-6,
        },
        (Effect("FLASH: size at 512 tokens over that at 64", growth["seen"], growth["chunk"]),),
    )


@check("linear-denominator-clamp")
def linear_clamp() -> Found:
    q, k, v = heads(1, 16, 8)
    outputs, sums = [], []
    for floor in (1e-6, 1e-300):
        core = build("linear", heads=1, denominator_floor=floor)
        sums.append(float(core.weights(q - 12.0, k - 12.0, v).sum(-1).max()))
        outputs.append(core(q, k, v))
    ordinary = apart(*outputs)
    return Found(
        {
            "sum of a row of weights for queries and keys near −12; clamped at 10⁻⁶, not clamped": sums,
            "largest difference of an output for queries and keys of size 1": ordinary,
        },
        {
            "with the clamp, the weights of a row with small scores sum to less than one": sums[0] < 0.5,
            "without it, every row sums to one": abs(sums[1] - 1) < ROUNDING,
            "ordinary rows do not change": ordinary == 0.0,
        },
        (Effect("sum of a row with small scores", *sums),),
    )


def performer_output(features: int, seed: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Performer's output for one head, with this many random features drawn from ``seed``."""
    core = build("performer", heads=1, head_dim=q.shape[-1], features=features).double()
    core.reset_parameters(torch.Generator().manual_seed(seed))
    return core(q, k, v)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())


@check("performer-features")
def performer_features() -> Found:
    q, k, v = heads(1, 64, 16)
    q, k = 0.5 * q, 0.5 * k  # random features are meant for scores of this size
    exact = build("softmax", heads=1, head_dim=16)(q, k, v)
    errors = {
        features: sum(relative(performer_output(features, seed, q, k, v), exact) for seed in range(4)) / 4
        for features in (64, 1024)
    }
    ratio = errors[64] / errors[1024]
    used = published("performer", "encoder").attention_options["performer"]["features"]
    return Found(
        {
            "random features of the baseline": used,
            "relative error against softmax attention, by features": errors,
            "ratio of the two errors": ratio,
        },
        {
            "the baseline has 64": used == 64,
            "with 64 features the error is at least three times as large": ratio >= 3.0,
        },
        (Effect("relative error against softmax attention", errors[64], errors[1024]),),
    )


@check("performer-is-not-1-plus-elu")
def performer_is_not_linear() -> Found:
    q, k, v = heads(1, 32, 8)
    q, k = 0.5 * q, 0.5 * k
    o = performer_output(4096, 0, q, k, v)
    to_softmax, to_linear = (relative(o, build(name, heads=1)(q, k, v)) for name in ("softmax", "linear"))
    return Found(
        {"Performer with 4,096 features, relative distance to softmax": to_softmax, "to 1+elu": to_linear},
        {"it approximates softmax attention, not 1+elu": to_softmax < 0.5 * to_linear},
    )


@check("flash-quad-is-quadratic")
def flash_quad_is_quadratic() -> Found:
    growth = {}
    for name in ("flash-quad", "flash", "linear"):
        gated: dict[str, object] = {"dim": 64, "s": 128, "max_length": 8192}
        core = attention.build(name, {"heads": 1, "head_dim": 64} if name == "linear" else gated)
        flops = core.mix_flops if isinstance(core, Flash | FlashQuad) else core.flops
        growth[name] = flops(8192) / flops(4096)
    return Found(
        {"operations between tokens at 8,192 tokens over those at 4,096": growth},
        {
            "FLASH-quad is quadratic": growth["flash-quad"] == 4.0,
            "FLASH and 1+elu are not": max(growth["flash"], growth["linear"]) < 2.1,
        },
    )
