"""Checks on the equations: misprints, loose constants, and what is left undefined."""

import math

import torch

from transnormer_lib import attention
from transnormer_lib.analysis import dilution, gradient_bounds
from transnormer_lib.analysis.attention_gradients import jacobian_softmax
from transnormer_lib.analysis.bounds_attention import softmax_row_norm, softmax_score
from transnormer_lib.analysis.bounds_matrix import cross_entropy_bound, upstream_bound
from transnormer_lib.analysis.bounds_norm import norm_score, published_constant, sharp_constant
from transnormer_lib.analysis.growth import growth
from transnormer_lib.analysis.kernel_maps import kernel
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, heads

_EPS = 1e-8


@check("gradients-that-explode")
def gradients_that_explode() -> Found:
    epsilons = [10.0**-power for power in range(2, 9)]
    slopes: dict[str, dict[str, float]] = {}
    for phi in ("1+elu", "relu"):
        generator = torch.Generator().manual_seed(0)
        curves = growth(kernel(phi), epsilons, n=4, d=8, generator=generator)
        slopes[phi] = {name: round(curves.slope(name), 3) for name in ("p by s", "q", "k")}
    return Found(
        {
            f"power of 1/ε with which gradients grow as scores fall like ε; {phi}": {name: -s for name, s in by.items()}
            for phi, by in slopes.items()
        },
        {
            "by the score they explode for both": all(by["p by s"] < -0.9 for by in slopes.values()),
            "by queries and keys they do not for 1+elu": max(abs(slopes["1+elu"][x]) for x in "qk") < 0.1,
            "they do for relu": min(-slopes["relu"][x] for x in "qk") > 0.4,
        },
    )


@check("slack-of-the-norm-bound")
def slack_of_the_norm_bound() -> Found:
    room = {}
    for d in (2, 8, 64):
        bound = norm_score("rms", "published", _EPS)
        assert bound.extremal is not None
        room[d] = 1 / bound.ratio_at(bound.extremal({"n": 4, "d": d}))
    ratios = {d: published_constant(d, _EPS) / sharp_constant("rms", _EPS) for d in room}
    return Found(
        {"published bound over the gradient at its worst input, by d": room, "the two constants' ratio": ratios},
        {"the room is 1.5·d": all(math.isclose(room[d], 1.5 * d, rel_tol=1e-6) for d in room)},
        (Effect("published over sharp constant at d = 64", 1.0, ratios[64]),),
    )


@check("eq-10-at-a-zero-score")
def eq_10() -> Found:
    zero = gradient_bounds.zero_score([0.0, 1.0, 3.0])
    exact = float((zero.division_free - zero.automatic).abs().max())
    return Found(
        {
            "Eq. 10 as printed at a score of zero": [str(x) for x in zero.printed.tolist()],
            "without the division": zero.division_free.tolist(),
        },
        {
            "as printed it divides zero by zero": bool(zero.printed.isnan().any()),
            "the derivative is finite there": bool(zero.division_free.isfinite().all()),
            "the other form is autograd's": exact < 1e-12,
        },
    )


@check("eq-48-and-59-short-sequences")
def eq_48_and_59() -> Found:
    step, bound = softmax_row_norm("published"), softmax_score("published")
    assert step.extremal is not None
    assert bound.extremal is not None
    ratios = {n: bound.ratio_at(bound.extremal({"n": n, "d": 2})) for n in (2, 3, 4, 5)}
    of_step = step.ratio_at(step.extremal({"n": 2, "d": 2}))
    return Found(
        {
            "gradient over Eq. 59's bound at the worst input, by n": ratios,
            "norm of a row over the 1/4 of Eq. 48": of_step,
        },
        {
            "Eq. 59 is exceeded by two and by three keys": min(ratios[2], ratios[3]) > 1.0,
            "from four on it holds there": max(ratios[4], ratios[5]) <= 1.0 + 1e-9,
            "the step in Eq. 48 is wrong": of_step > 1.0,
        },
        (Effect("constant that holds for n = 2, in units of c₁c₂", 0.5, math.sqrt(2) / 4),),
    )


@check("eq-53-second-line")
def eq_53() -> Found:
    line = gradient_bounds.eq_53_second_line([1.0, -1.0, 1.0, -1.0], _EPS)
    return Found(
        {"derivative": line.derivative, "the second line": line.second_line, "the bound after it": line.final},
        {
            "the derivative is above the second line": line.derivative > line.second_line,
            "and below the bound that follows": line.derivative <= line.final,
        },
    )


@check("eq-55-sums-to-n")
def eq_55() -> Found:
    error = gradient_bounds.eq_55_error(3, 8, _EPS, torch.Generator().manual_seed(0))
    nearly = gradient_bounds.eq_55_error(7, 8, _EPS, torch.Generator().manual_seed(0))
    return Found(
        {"relative error of the sum to n, n = 3 and d = 8": error, "n = 7 and d = 8": nearly},
        {"the sum to n is not the gradient": error > 0.01 and nearly > 1e-6},
    )


@check("eq-63-squared")
def eq_63() -> Found:
    bound = cross_entropy_bound("sharp")
    assert bound.extremal is not None
    inputs = bound.extremal({"m": 3})
    printed, sharp = (cross_entropy_bound(form).ratio_at(inputs) for form in ("published", "sharp"))
    largest = sharp * math.sqrt(2)
    return Found(
        {"largest ‖p − y‖": largest, "its square": largest**2, "the printed maximum over it": 1 / printed},
        {
            "the printed maximum is the square's": math.isclose(largest**2, 2.0, rel_tol=1e-6),
            "the norm's is √2": math.isclose(sharp, 1.0, rel_tol=1e-6),
        },
        (Effect("constant a₀", math.sqrt(2), 2.0),),
    )


@check("eq-66-wrong-matrix")
def eq_66() -> Found:
    bound = upstream_bound("published")
    assert bound.extremal is not None
    inputs = bound.extremal({"n": 2, "d": 4, "h": 5, "m": 2})
    scaled = inputs | {"w1": 10 * inputs["w1"]}
    printed = [bound.ratio_at(x) for x in (inputs, scaled)]
    repaired = [upstream_bound("repaired").ratio_at(x) for x in (inputs, scaled)]
    return Found(
        {
            "gradient over the printed bound; W₁ as it is, and ten times as large": printed,
            "over the repaired bound": repaired,
        },
        {
            "with W₁ ten times as large the printed bound breaks": printed[1] > 1.0,
            "the repaired one holds": max(repaired) <= 1.0 + 1e-9,
        },
    )


@check("appendix-f-listing")
def appendix_f() -> Found:
    uniform = dilution.uniform_weights(6, causal=False)
    try:
        dilution.appendix_f(uniform, repaired=False)
        stalls = "no"
    except dilution.DoesNotEnd as fault:
        stalls = str(fault)
    first = released_forms.printed_window(uniform[0], 0, level=1.0)
    last = released_forms.printed_window(uniform[5], 5, level=1.0)
    counted, added = last.counted[0]
    sizes = dilution.appendix_f(uniform, repaired=True)
    whole = dilution.neighbourhood_sizes(uniform)
    return Found(
        {
            "uniform weights, as printed": stalls,
            "positions that the window of the first token reads": first.read,
            "of the last token": last.read,
            "of the last token, after one step: length counted, weights added": [counted, added],
            "repaired, largest distance from our vectorised form": float((sizes - whole).abs().max()),
        },
        {
            "as printed it does not end": stalls != "no" and not first.ended,
            "the first token reads position -1": -1 in first.read,
            "the last token never reads position 0": 0 not in last.read,
            "the window is counted too long": counted > added,
            "repaired it ends and is our form": bool(torch.allclose(sizes, whole)),
        },
    )


@check("figure-2-what-is-averaged")
def figure_2() -> Found:
    n = 40
    local = torch.eye(n, dtype=torch.float64)
    mixed = dilution.uniform_weights(n, causal=False)
    mixed[::2] = local[::2]  # every second token looks at itself alone
    half = dilution.neighbourhood_sizes(mixed)  # Appendix F: mean neighbourhood by level
    level = dilution.LEVELS // 2
    at_half = float(half[level])
    reach = max(round(at_half * n / 2) * 2, 1)  # the same neighbourhood, read the other way
    centre = torch.arange(n)
    inside = (centre[:, None] - centre[None]).abs() <= reach // 2
    score = float((mixed * inside).sum(-1).mean())
    return Found(
        {
            "Appendix F: neighbourhood that holds half of the mass, on average": at_half,
            "Section 3.2: mass in a neighbourhood of that size, on average": score,
        },
        {"the two curves are not one": abs(score - level / (dilution.LEVELS - 1)) > 0.05},
        (Effect("mass at that neighbourhood", level / (dilution.LEVELS - 1), score),),
    )


@check("linear-gradient-without-a-lower-bound")
def no_lower_bound() -> Found:
    sizes = [float(gradient_bounds.appendix_c(kernel("1+elu"), eps, 4, 8).smallest) for eps in (1e-2, 1e-4)]
    return Found(
        {"smallest |∂p/∂s| at Appendix C's points, ε = 1e-2 and 1e-4": sizes},
        {"as ε falls the smallest entry rises: there is no upper bound": sizes[1] > 50 * sizes[0]},
    )


@check("eq-28-without-the-scale")
def eq_28() -> Found:
    q, k, v = heads(1, 16, 64)
    ours = attention.build("softmax", {"heads": 1, "head_dim": 64})(q, k, v)
    scaled, plain = ((factor * q @ k.mT).softmax(-1) for factor in (64**-0.5, 1.0))
    jacobians = [float(jacobian_softmax(s[0, 0]).abs().max()) for s in (64**-0.5 * q @ k.mT, q @ k.mT)]
    return Found(
        {
            "largest weight of a row, on average; scaled, not scaled": [
                float(p.amax(-1).mean()) for p in (scaled, plain)
            ],
            "largest difference of an output": apart(scaled @ v, plain @ v),
            "ours against Eq. 2": apart(ours, scaled @ v),
            "largest derivative of a weight by a score": jacobians,
        },
        {
            "the two forms differ": apart(scaled @ v, plain @ v) > 0.1,
            "ours is Eq. 2": apart(ours, scaled @ v) < ROUNDING,
            "Eq. 9 holds for both": max(jacobians) <= 0.25,
        },
    )
