"""Checks on the equations: misprints, loose constants, and terms left undefined."""

import math

import torch

from transnormer_lib.analysis import dilution, gradient_bounds
from transnormer_lib.analysis.attention_gradients import jacobian_softmax
from transnormer_lib.analysis.bounds_attention import softmax_row_norm, softmax_score
from transnormer_lib.analysis.bounds_matrix import cross_entropy_bound, upstream_bound
from transnormer_lib.analysis.bounds_norm import norm_score, published_constant, sharp_constant
from transnormer_lib.analysis.growth import growth
from transnormer_lib.analysis.kernel_maps import kernel
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import ROUNDING, apart, at_worst, build, heads

_EPS = 1e-8


@check("gradients-that-explode")
def gradients_that_explode() -> Found:
    epsilons = [10.0**-power for power in range(2, 9)]
    powers = {}
    for phi in ("1+elu", "relu"):
        curves = growth(kernel(phi), epsilons, n=4, d=8, generator=torch.Generator().manual_seed(0))
        powers[phi] = {name: -round(curves.slope(name), 3) for name in ("p by s", "q", "k")}
    return Found(
        {f"power of 1/ε with which gradients grow as scores shrink like ε; {phi}": by for phi, by in powers.items()},
        {
            "the gradient by the score explodes for both φ": all(by["p by s"] > 0.9 for by in powers.values()),
            "for 1+elu the gradients of queries and keys do not": max(abs(powers["1+elu"][x]) for x in "qk") < 0.1,
            "for relu they do": min(powers["relu"][x] for x in "qk") > 0.4,
        },
    )


@check("slack-of-the-norm-bound")
def slack_of_the_norm_bound() -> Found:
    room = {d: 1 / at_worst(norm_score("rms", "published", _EPS), n=4, d=d) for d in (2, 8, 64)}
    ratios = {d: published_constant(d, _EPS) / sharp_constant("rms", _EPS) for d in room}
    return Found(
        {
            "published bound over the gradient at its worst input, by d": room,
            "published constant over the sharp one": ratios,
        },
        {"the bound is 1.5·d times too large": all(math.isclose(room[d], 1.5 * d, rel_tol=1e-6) for d in room)},
        (Effect("published constant over the sharp one at d = 64", 1.0, ratios[64]),),
    )


@check("eq-10-at-a-zero-score")
def eq_10() -> Found:
    zero = gradient_bounds.zero_score([0.0, 1.0, 3.0])
    return Found(
        {
            "Eq. 10 as printed, at a score of zero": [str(x) for x in zero.printed.tolist()],
            "without the division": zero.division_free.tolist(),
        },
        {
            "as printed it divides zero by zero": bool(zero.printed.isnan().any()),
            "the derivative there is finite": bool(zero.division_free.isfinite().all()),
            "the form without the division equals automatic differentiation": apart(zero.division_free, zero.automatic)
            < 1e-12,
        },
    )


@check("eq-48-and-59-short-sequences")
def eq_48_and_59() -> Found:
    ratios = {n: at_worst(softmax_score("published"), n=n, d=2) for n in (2, 3, 4, 5)}
    row = at_worst(softmax_row_norm("published"), n=2, d=2)
    return Found(
        {"gradient over Eq. 59's bound at the worst input, by n": ratios, "norm of a row over the 1/4 of Eq. 48": row},
        {
            "two and three keys exceed Eq. 59's bound": min(ratios[2], ratios[3]) > 1.0,
            "from four keys on it holds there": max(ratios[4], ratios[5]) <= 1.0 + 1e-9,
            "the step in Eq. 48 is wrong": row > 1.0,
        },
        (Effect("constant that holds for n = 2, in units of c₁c₂", 0.5, math.sqrt(2) / 4),),
    )


@check("eq-53-second-line")
def eq_53() -> Found:
    line = gradient_bounds.eq_53_second_line([1.0, -1.0, 1.0, -1.0], _EPS)
    return Found(
        {"derivative": line.derivative, "the second line": line.second_line, "the bound after it": line.final},
        {
            "the derivative exceeds the second line": line.derivative > line.second_line,
            "it does not exceed the bound that follows": line.derivative <= line.final,
        },
    )


@check("eq-55-sums-to-n")
def eq_55() -> Found:
    errors = [gradient_bounds.eq_55_error(n, 8, _EPS, torch.Generator().manual_seed(0)) for n in (3, 7)]
    return Found(
        {"relative error of the sum to n, for n = 3 and n = 7 with d = 8": errors},
        {"the sum to n is not the gradient": errors[0] > 0.01 and errors[1] > 1e-6},
    )


@check("eq-63-squared")
def eq_63() -> Found:
    sharp = at_worst(cross_entropy_bound("sharp"), m=3)
    printed = at_worst(cross_entropy_bound("published"), m=3)
    largest = sharp * math.sqrt(2)
    return Found(
        {"largest ‖p − y‖": largest, "its square": largest**2, "the printed maximum over the norm": 1 / printed},
        {
            "the printed maximum is that of the square": math.isclose(largest**2, 2.0, rel_tol=1e-6),
            "the norm's maximum is √2": math.isclose(sharp, 1.0, rel_tol=1e-6),
        },
        (Effect("constant a₀", math.sqrt(2), 2.0),),
    )


@check("eq-66-wrong-matrix")
def eq_66() -> Found:
    bound = upstream_bound("published")
    assert bound.extremal is not None
    inputs = bound.extremal({"n": 2, "d": 4, "h": 5, "m": 2})
    both = (inputs, inputs | {"w1": 10 * inputs["w1"]})
    printed = [bound.ratio_at(x) for x in both]
    repaired = [upstream_bound("repaired").ratio_at(x) for x in both]
    return Found(
        {
            "gradient over the printed bound; for W₁, and for W₁ ten times as large": printed,
            "over the repaired bound": repaired,
        },
        {
            "with W₁ ten times as large, the printed bound is exceeded": printed[1] > 1.0,
            "the repaired bound holds": max(repaired) <= 1.0 + 1e-9,
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
    first, last = (released_forms.printed_window(uniform[i], i, level=1.0) for i in (0, 5))
    counted, added = last.counted[0]
    sizes, whole = dilution.appendix_f(uniform, repaired=True), dilution.neighbourhood_sizes(uniform)
    return Found(
        {
            "uniform weights, as printed": stalls,
            "positions that the first token's window reads": first.read,
            "positions that the last token's window reads": last.read,
            "length counted and weights added for the last token after one step": [counted, added],
            "largest difference between the repaired listing and our vectorised form": apart(sizes, whole),
        },
        {
            "as printed it does not end": stalls != "no" and not first.ended,
            "the first token reads position −1": -1 in first.read,
            "the last token never reads position 0": 0 not in last.read,
            "the counted length is too large": counted > added,
            "repaired, it ends and equals our form": bool(torch.allclose(sizes, whole)),
        },
    )


@check("figure-2-what-is-averaged")
def figure_2() -> Found:
    n = 40
    mixed = dilution.uniform_weights(n, causal=False)
    mixed[::2] = torch.eye(n, dtype=torch.float64)[::2]  # every second token attends only to itself
    level = dilution.LEVELS // 2
    share = level / (dilution.LEVELS - 1)
    size = float(dilution.neighbourhood_sizes(mixed)[level])  # as in Appendix F
    reach = max(round(size * n / 2) * 2, 1)
    at = torch.arange(n)
    mass = float((mixed * ((at[:, None] - at[None]).abs() <= reach // 2)).sum(-1).mean())  # as in Section 3.2
    return Found(
        {
            "Appendix F: average neighbourhood that holds half of the mass": size,
            "Section 3.2: average mass in a neighbourhood of that size": mass,
        },
        {"the two curves differ": abs(mass - share) > 0.05},
        (Effect("mass at that neighbourhood", share, mass),),
    )


@check("linear-gradient-without-a-lower-bound")
def no_lower_bound() -> Found:
    sizes = [float(gradient_bounds.appendix_c(kernel("1+elu"), eps, 4, 8).smallest) for eps in (1e-2, 1e-4)]
    return Found(
        {"smallest |∂p/∂s| at Appendix C's points, ε = 0.01 and 10⁻⁴": sizes},
        {"the smallest entry grows as ε shrinks, so there is no upper bound": sizes[1] > 50 * sizes[0]},
    )


@check("eq-28-without-the-scale")
def eq_28() -> Found:
    q, k, v = heads(1, 16, 64)
    ours = build("softmax", heads=1, head_dim=64)(q, k, v)
    scores = [factor * q @ k.mT for factor in (64**-0.5, 1.0)]
    scaled, plain = (s.softmax(-1) for s in scores)
    jacobians = [float(jacobian_softmax(s[0, 0]).abs().max()) for s in scores]
    between, to_eq_2 = apart(scaled @ v, plain @ v), apart(ours, scaled @ v)
    return Found(
        {
            "average largest weight of a row; scaled, not scaled": [float(p.amax(-1).mean()) for p in (scaled, plain)],
            "largest difference of an output": between,
            "largest difference between ours and Eq. 2": to_eq_2,
            "largest derivative of a weight by a score": jacobians,
        },
        {
            "the two forms differ": between > 0.1,
            "ours is Eq. 2": to_eq_2 < ROUNDING,
            "Eq. 9 holds for both": max(jacobians) <= 0.25,
        },
    )
