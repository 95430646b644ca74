"""Checks on what the paper says about time and memory. Operations and allocations are counted; no clock is read."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from transnormer_lib.analysis.operation_counts import counted
from transnormer_lib.analysis.tensor_memory import allocations, peak_bytes
from transnormer_lib.attention import Attention
from transnormer_lib.attention.feature_maps import degree_two, one_plus_elu
from transnormer_lib.studies.common import lsh
from transnormer_lib.studies.transformers_are_rnns import gradients
from transnormer_lib.studies.transformers_are_rnns.register.checks import Effect, Found, build, check, heads


def one_more(core: Attention, n: int) -> int:
    """Operations of one decoding step after n tokens, all heads of one sequence."""
    q, k, v = (x[:, : core.config.heads] for x in heads(n + 1, core.config.head_dim))
    _, state = core.prefill(q[:, :, :-1], k[:, :, :-1], v[:, :, :-1])
    return counted(lambda: core.step(q[:, :, -1], k[:, :, -1], v[:, :, -1], state))


def learning(core: Attention, n: int) -> Callable[[], Tensor]:
    """Forward and backward pass on n tokens."""
    q, k, v = (x.float().requires_grad_() for x in heads(n))
    core = core.float()

    def run() -> Tensor:
        return torch.autograd.grad(core(q, k, v).sum(), v)[0]

    return run


@check("constant-memory-that-is-linear")
def constant_memory() -> Found:
    lengths = (512, 1024, 2048)
    core = build("linear", causal=True)
    peaks = [peak_bytes(learning(core, n)) for n in lengths]
    per_token = [peak / n for peak, n in zip(peaks, lengths, strict=True)]
    return Found(
        {"peak of forward and backward, bytes, at 512, 1,024, 2,048 tokens": peaks, "bytes per token": per_token},
        {
            "memory grows with the length": peaks[2] > 3 * peaks[0],
            "and per token it does not": max(per_token) < 1.2 * min(per_token),
        },
    )


@check("min-and-not-max")
def min_and_not_max() -> Found:
    n, ratios = 32, {}
    for c, m in ((8, 8), (16, 4), (4, 16)):
        phi_q, phi_k = (one_plus_elu(heads(n, c, seed)[0][0, 0]).requires_grad_() for seed in (0, 1))
        v = heads(n, m)[2][0, 0]
        states = max(allocations(partial(gradients.states_kept, phi_q, phi_k, v)))
        ratios[c, m] = states / (n * max(c, m) * v.element_size())
    return Found(
        {f"all S_i over N max(C, M), C = {c}, M = {m}": ratio for (c, m), ratio in ratios.items()},
        {
            "it is min(C, M) for all three": all(ratio == min(size) for size, ratio in ratios.items()),
            "it is not max(C, M) where they differ": all(ratios[s] != max(s) for s in ratios if s[0] != s[1]),
        },
    )


@check("step-cost-without-a-cache")
def step_without_cache() -> Found:
    softmax, linear = build("softmax", causal=True, impl="reference"), build("linear", causal=True)
    lengths = (256, 512)
    again = [counted(partial(softmax, *heads(n + 1))) for n in lengths]
    cached = [one_more(softmax, n) for n in lengths]
    state = [one_more(linear, n) for n in lengths]
    return Found(
        {
            "operations of a step after 256 and 512 tokens, softmax, everything again": again,
            "softmax with a cache": cached,
            "linear": state,
        },
        {
            "without a cache twice the length costs four times": 3.9 < again[1] / again[0] < 4.1,
            "with one it costs twice": 1.9 < cached[1] / cached[0] < 2.1,
            "linear attention's step costs the same": state[0] == state[1],
        },
        (Effect("operations of a step after 512 tokens, softmax", cached[1], again[1]),),
    )


@check("pixels-of-reformer-and-softmax")
def pixels() -> Found:
    softmax = build("softmax", heads=1, causal=True, impl="reference").float()
    reformer = build("reformer", heads=1, **lsh.options("lsh-1", buckets=64, chunk_size=32, decoder=False)).float()
    lengths = (783, 3071)
    quadruple = lengths[1] / lengths[0]

    def again(core: Attention, n: int) -> int:
        """Everything computed again for one pixel: the whole prefix, read once."""
        return counted(partial(core, *(x[:, :1].float() for x in heads(n))))

    costs = {
        "Reformer, everything again": [again(reformer, n) for n in lengths],
        "softmax, everything again": [again(softmax, n) for n in lengths],
        "softmax with a cache": [one_more(softmax, n) for n in lengths],
    }
    growth = {name: by[1] / by[0] for name, by in costs.items()}
    return Found(
        {"operations of a pixel after 783 and 3,071; " + name: by for name, by in costs.items()}
        | {"their growth": growth, "growth of the length": quadruple},
        {
            "softmax that computes everything again is quadratic": growth["softmax, everything again"] > 14,
            "Reformer is not, even so": growth["Reformer, everything again"] < 1.1 * quadruple,
            "softmax with a cache is not either": growth["softmax with a cache"] < 1.1 * quadruple,
        },
    )


@check("matrix-that-need-not-be-stored")
def matrix_not_stored() -> Found:
    lengths = (1024, 2048)
    peaks = {
        name: [peak_bytes(learning(build("softmax", causal=True, **fields), n)) for n in lengths]
        for name, fields in (("stored", {"impl": "reference"}), ("computed again", {}))
    }
    growth = {name: by[1] / by[0] for name, by in peaks.items()}
    return Found(
        {f"peak of forward and backward at 1,024 and 2,048 tokens, {name}": by for name, by in peaks.items()},
        {
            "with the matrix stored, twice the length takes nearly four times the memory": growth["stored"] > 3.5,
            "without it, at most about twice": growth["computed again"] < 2.5,
        },
        (Effect("peak at 2,048 tokens", peaks["computed again"][1], peaks["stored"][1]),),
    )


@check("polynomial-needs-half")
def polynomial_needs_half() -> Found:
    q, k, _ = heads(20)
    ours = degree_two(q) @ degree_two(k).mT
    all_products = (q[..., :, None] * q[..., None, :]).flatten(-2) @ (k[..., :, None] * k[..., None, :]).flatten(-2).mT
    kernel = (q @ k.mT).square()
    features = [degree_two(q).shape[-1], q.shape[-1] ** 2]
    return Found(
        {
            "features, ours and all products": features,
            "largest difference from the kernel": [
                float((ours - kernel).abs().max()),
                float((all_products - kernel).abs().max()),
            ],
        },
        {
            "both are the kernel": bool(torch.allclose(ours, kernel) and torch.allclose(all_products, kernel)),
            "ours are D (D + 1) / 2": features == [36, 64],
        },
    )
