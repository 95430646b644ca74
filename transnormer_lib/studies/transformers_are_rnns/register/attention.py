"""Checks on the Reformer of the paper's comparisons."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from transnormer_lib.analysis.tensor_memory import peak_bytes
from transnormer_lib.attention.reformer import ReformerAttention
from transnormer_lib.papers.settings import Model, said
from transnormer_lib.studies.transformers_are_rnns.register.checks import (
    PAPER,
    RELEASE,
    ROUNDING,
    Effect,
    Found,
    build,
    check,
    heads,
)

_SMALL = {"buckets": 4, "chunk_size": 4, "causal": True}


def averaged(core: ReformerAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The rounds of ``core``, each by itself, averaged with equal weights: our transcription of the release."""
    outputs = []
    for number in range(core.config.hashes):
        alone = build("reformer", **_SMALL, hashes=1)
        assert isinstance(alone, ReformerAttention)
        alone.rotations_HRDb = core.rotations_HRDb[:, number : number + 1]
        outputs.append(alone(q, k, v))
    return torch.stack(outputs).mean(0)


@check("lsh-rounds-averaged")
def rounds_averaged() -> Found:
    q, k, v = heads(32)
    differences = {}
    for hashes in (1, 4):
        core = build("reformer", **_SMALL, hashes=hashes)
        assert isinstance(core, ReformerAttention)
        differences[hashes] = float((averaged(core, q, k, v) - core(q, k, v)).abs().max())
    return Found(
        {"largest difference of an output, by rounds": differences},
        {
            "with one round there is nothing to weigh": differences[1] < ROUNDING,
            "with four, equal weights give other outputs": differences[4] > 0.01,
        },
        (Effect("an output with four rounds, difference", 0.0, differences[4]),),
    )


def mask_of_all_pairs(n: int) -> Tensor:
    """The released mask: zeros for every pair of tokens, and a term for each token with itself."""
    return torch.eye(n)[None]


@check("lsh-mask-is-quadratic")
def mask_is_quadratic() -> Found:
    lengths = (512, 1024, 2048, 4096)
    core = build("reformer", buckets=16, chunk_size=8, causal=True).float()

    def peak(n: int, mask: Callable[[int], Tensor] | None) -> int:
        q, k, v = (x.float() for x in heads(n))

        def call() -> object:
            held = None if mask is None else mask(n)  # alive while the chunks are computed
            return core(q, k, v), held

        return peak_bytes(call)

    peaks = {name: [peak(n, mask) for n in lengths] for name, mask in (("ours", None), ("with", mask_of_all_pairs))}
    growth = {name: [b / a for a, b in pairwise(by)] for name, by in peaks.items()}
    return Found(
        {
            "peak of ours at 512, 1,024, 2,048, 4,096 tokens, bytes": peaks["ours"],
            "with a mask of all pairs beside it": peaks["with"],
            "growth from length to length": growth,
        },
        {
            "with the mask memory grows faster the longer the sequence": growth["with"] == sorted(growth["with"]),
            "at last more than three times for twice the length": growth["with"][-1] > 3.0,
            "ours takes about twice at every length": max(growth["ours"]) < 2.3,
        },
        (Effect("peak at 4,096 tokens, bytes", peaks["ours"][-1], peaks["with"][-1]),),
    )


@check("lsh-chunks-see-the-future")
def chunks_see_the_future() -> Found:
    q, k, v = heads(64)
    other = q.clone()
    other[:, :, 40:] = heads(64, seed=1)[0][:, :, 40:]
    changes = {}
    for chunking in ("bucket", "across"):
        core = build("reformer", **(_SMALL | {"chunking": chunking}))
        changes[chunking] = float((core(q, k, v) - core(other, k, v))[:, :, :40].abs().max())
    return Found(
        {"change of the first 40 outputs when later tokens change, by chunking": changes},
        {
            "with chunks of the sorted order they change": changes["across"] > 1e-3,
            "with chunks of each bucket they do not": changes["bucket"] < ROUNDING,
        },
        (Effect("change of earlier outputs", changes["bucket"], changes["across"]),),
    )


@check("lsh-keys-of-length-one")
def keys_of_length_one() -> Found:
    q, k, v = heads(32)
    flat, sharp = (
        build("reformer", buckets=2, chunk_size=32, chunking="across", scaled=scaled).weights(q, k, v)
        for scaled in (True, False)
    )
    # Shared keys give the score of a token with itself no weight, so all weights are of other tokens.
    logits = [w.clamp(min=1e-300).log() for w in (flat, sharp)]
    spread = [float((x[..., 5, 6] - x[..., 5, 7]).abs().mean()) for x in logits]
    entropy = [float(-(w * w.clamp(min=1e-300).log()).sum(-1).mean()) for w in (flat, sharp)]
    return Found(
        {"difference of two scores, keys of length 1 and √D": spread, "entropy of the weights": entropy},
        {
            "scores are √D times smaller": abs(spread[1] / spread[0] - 8**0.5) < 1e-3,
            "the weights are flatter": entropy[0] > entropy[1],
        },
        (Effect("entropy of the weights", entropy[1], entropy[0]),),
    )


@check("lsh-chunks-that-divide")
def chunks_that_divide() -> Found:
    products, rule = {}, {}
    sources: tuple[tuple[Model, str], ...] = (("mnist", "Section 4.2.1"), ("cifar", "Section 4.2.2"), ("copy", RELEASE))
    for model, section in sources:
        size, length = (said(PAPER, section, model, name) for name in ("chunk_size", "length"))
        rule[model] = 2 * length // size
        if model != "copy":
            products[model] = [said(PAPER, section, model, "chunks") * size, length]
    q, k, v = heads(61)
    fields = {"buckets": 64, "chunk_size": 32, "causal": True}
    chunked, of_all_pairs = (build("reformer", **fields, impl=impl)(q, k, v) for impl in ("chunked", "reference"))
    return Found(
        {"chunks times their size, and the length": products, "two buckets to a chunk give so many buckets": rule},
        {
            "the chunks divide the lengths": all(product == length for product, length in products.values()),
            "the rule gives 54, 166 and 8 buckets, and nowhere 64": list(rule.values()) == [54, 166, 8],
            "here 61 tokens in chunks of 32 give what all pairs give": bool(torch.allclose(chunked, of_all_pairs)),
        },
    )
