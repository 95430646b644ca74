"""Checks on the equations of Section 3, as printed."""

import torch

from transnormer_lib.attention.feature_maps import one_plus_elu
from transnormer_lib.studies.transformers_are_rnns import gradients
from transnormer_lib.studies.transformers_are_rnns.register.checks import ROUNDING, Effect, Found, build, check, heads


@check("eq-15-without-its-transpose")
def transpose_of_eq_15() -> Found:
    errors = {}
    for c, m in ((4, 4), (4, 3)):
        phi_q, phi_k = (one_plus_elu(heads(9, c, seed)[0][0, 0]) for seed in (0, 1))
        v, g = (heads(9, m, seed)[2][0, 0] for seed in (0, 1))
        wanted = v.clone().requires_grad_()
        (dv,) = torch.autograd.grad(gradients.forward(phi_q, phi_k, wanted), wanted, g)
        printed = gradients.equation_15_as_printed(phi_q, phi_k, g) if c == m else None
        repaired = gradients.algorithm_1(phi_q, phi_k, v, g)[2]
        fits = printed is not None
        errors[f"C = {c}, M = {m}"] = {
            "printed": float((printed - dv).abs().max()) if printed is not None else "no such product",
            "transposed": float((repaired - dv).abs().max()),
        }
        if fits:
            wrong = float(errors[f"C = {c}, M = {m}"]["printed"])
    return Found(
        {f"largest difference from autograd, {size}": error for size, error in errors.items()},
        {
            "as printed it is not the gradient where C = M": wrong > 1e-3,
            "transposed it is, for both sizes": all(float(e["transposed"]) < ROUNDING for e in errors.values()),
        },
    )


@check("similarity-of-zero")
def similarity_of_zero() -> Found:
    q, k, v = heads(6)
    q = -q.abs()  # φ = relu of such a query is zero
    raw = torch.relu(q) @ torch.relu(k).mT
    unclamped = (raw / raw.sum(-1, keepdim=True)) @ v
    clamped = build("linear", phi="relu")(q, k, v)
    positive = one_plus_elu(q) @ one_plus_elu(k).mT
    return Found(
        {
            "share of outputs that are not numbers without a clamp, φ = relu": float(unclamped.isnan().double().mean()),
            "largest output with the clamp": float(clamped.abs().max()),
            "smallest similarity, φ = elu + 1": float(positive.min()),
        },
        {
            "no similarity is negative": bool((raw >= 0).all()),
            "without a clamp 0/0 comes out": bool(unclamped.isnan().all()),
            "the clamp gives zeros": bool((clamped == 0).all()),
            "with φ = elu + 1 every similarity is positive": bool((positive > 0).all()),
        },
        (Effect("the output of such a query", 0.0, "not a number"),),
    )


@check("epsilon-in-the-denominator")
def epsilon_in_the_denominator() -> Found:
    found = {}
    q, k, v = heads(12)
    for size, shift in (("usual", 0.0), ("small", -6.0)):
        phi_q, phi_k = one_plus_elu(q + shift), one_plus_elu(k + shift)
        s = (phi_q @ phi_k.mT).tril()
        z = s.sum(-1, keepdim=True)
        weights = {"added": s / (z + 1e-6), "clamped": s / z.clamp(min=1e-6)}
        found[size] = {name: float((w.sum(-1) - 1).abs().max()) for name, w in weights.items()}
        ours = build("linear", causal=True).weights(q + shift, k + shift, v)
        found[size]["this library"] = float((ours.sum(-1) - 1).abs().max())
    return Found(
        {f"distance of a row of weights from one, {size} features": by for size, by in found.items()},
        {
            "for usual features both are right to 10⁻⁶": max(found["usual"].values()) < 1e-6,
            "for small features the added term shrinks the weights": found["small"]["added"] > 1e-3,
            "our clamp does not": found["small"]["this library"] < ROUNDING,
        },
        (Effect("lost weight of a row with small features", found["small"]["this library"], found["small"]["added"]),),
    )


@check("softmax-is-not-a-finite-rnn")
def softmax_as_rnn() -> Found:
    sizes = {}
    for name in ("softmax", "linear"):
        core = build(name, causal=True)
        sizes[name] = [
            sum(x.numel() for x in core.prefill(*heads(n))[1].values() if x.ndim) // 2 for n in (64, 256, 1024)
        ]
    return Found(
        {f"numbers in the state of a head after 64, 256, 1,024 tokens, {name}": by for name, by in sizes.items()},
        {
            "the state of softmax attention grows with every token": sizes["softmax"][2] >= 16 * sizes["softmax"][0],
            "that of linear attention does not grow": len(set(sizes["linear"])) == 1,
        },
    )
