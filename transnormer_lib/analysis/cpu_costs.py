"""The CPU cost of attention as ratios to an indispensable cost, both measured within one round.

Both sides of a ratio take turns in every round, so a drift of the machine affects both. Shapes: B batch, H heads,
N length, D head_dim.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.analysis.norm_speed import forward_and_backward
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import build_model
from transnormer_lib.progress import Told, tracked

HEADS, HEAD_DIM = 8, 64
BLOCK_SIZES = (64, 128, 256, 512)  # of DiagAttention
DECODER: dict[str, Any] = {"dim": 512, "heads": 8, "layers": 6, "block_size": 64}
VOCABULARIES = (258, 50265)  # bytes, and RoBERTa's, as in the paper's WikiText-103 models
_GEMM = 1024  # rows and columns of the matrices whose product gives the machine's rate


@dataclass(frozen=True)
class Ratio:
    """One cost over another, with a value for each round and its target."""

    name: str
    aim: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{self.name}: {self.median:.2f} ({low:.2f} to {high:.2f}), aim {self.aim}"


def ratios(length: int, rounds: int, told: Told | None = None) -> list[Ratio]:
    """Every ratio of this file, attention at ``length`` tokens, forward and backward, 8 heads of 64.

    ``told`` gets a line of progress for each set of ratios.
    """
    sets = [partial(make, length, rounds) for make in (_over_products, _float32_over_bfloat16, _growth)]
    models = product(VOCABULARIES, ("norm-t2", "transnormer-t2"))
    sets += [partial(_decoding, name, vocabulary, rounds) for vocabulary, name in models]
    return [ratio for make in tracked(sets, "set of ratios", told=told) for ratio in make()]


def _quotients(
    steps: Mapping[str, Callable[[], object]], over: str, rounds: int, repeats: int = 1, **factors: float
) -> dict[str, tuple[float, ...]]:
    """Per step its seconds over those of ``over``, each times its factor (default: 1), round by round."""
    seconds = interleaved(steps, rounds=rounds, repeats=repeats)
    return {
        name: tuple(
            a * factors.get(name, 1.0) / (b * factors.get(over, 1.0)) for a, b in zip(own, seconds[over], strict=True)
        )
        for name, own in seconds.items()
    }


def attention_step(
    module: Callable[..., Tensor], length: int, dtype: torch.dtype = torch.float32
) -> Callable[[], object]:
    """A forward and backward pass on random q, k, v [1, H, ``length``, D]."""
    shape = (4, 1, HEADS, length, HEAD_DIM)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return forward_and_backward(module, *drawn.unbind())


def _build(name: str, **options: Any) -> Any:
    return attention.build(name, {"heads": HEADS, "head_dim": HEAD_DIM, "causal": True, **options})


def _over_products(length: int, rounds: int) -> list[Ratio]:
    """NormAttention over its own matrix products, at the rate of a large product and of batched 64 × 64 products.

    The backward pass counts as two forward passes; recomputation in it does not count.
    """
    norm, batch = _build("norm"), max(1, HEADS * length // HEAD_DIM)
    operations = 3 * norm.flops(length)
    large, large_out = torch.randn(_GEMM, _GEMM), torch.empty(_GEMM, _GEMM)
    small, small_out = torch.randn(batch, HEAD_DIM, HEAD_DIM), torch.empty(batch, HEAD_DIM, HEAD_DIM)
    steps = {
        "norm": attention_step(norm, length),
        "large": lambda: torch.mm(large, large, out=large_out),
        "small": lambda: torch.bmm(small, small, out=small_out),
    }
    factors = {"large": operations / (2 * _GEMM**3), "small": operations / (2 * batch * HEAD_DIM**3)}
    return [
        Ratio(
            f"norm over its products at {length:,}, at the rate of {rate}",
            "<= 2.5",
            _quotients(steps, over, rounds, **factors)["norm"],
        )
        for over, rate in (("large", f"one of {_GEMM} x {_GEMM}"), ("small", "batched 64 x 64"))
    ]


def _float32_over_bfloat16(length: int, rounds: int) -> list[Ratio]:
    """The mechanism on bfloat16 inputs, and the layer with its projections under autocast."""
    norm = _build("norm")
    layer = attention.MultiHeadAttention(HEADS * HEAD_DIM, norm)
    x = torch.randn(1, length, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        torch.autograd.grad(layer(x).sum(), list(layer.parameters()))

    def under_autocast() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step()

    own = {"float32": attention_step(norm, length), "half": attention_step(norm, length, torch.bfloat16)}
    whole = {"float32": step, "half": under_autocast}
    return [
        Ratio(f"{name} at {length:,}, float32 over bfloat16", ">= 1.3", _quotients(steps, "half", rounds)["float32"])
        for name, steps in (("norm", own), ("layer of norm under autocast", whole))
    ]


def _growth(length: int, rounds: int) -> list[Ratio]:
    """NormAttention's cost by length, DiagAttention's by block size."""
    long, norm = 16 * length, _build("norm")
    steps = {str(n): attention_step(norm, n) for n in (length, long)}
    in_length = _quotients(steps, str(length), rounds)[str(long)]
    blocks = {str(w): attention_step(_build("diag", block_size=w), length) for w in BLOCK_SIZES}
    smallest, *larger = BLOCK_SIZES
    in_block = _quotients(blocks, str(smallest), rounds)
    return [Ratio(f"norm at {long:,} over {length:,} tokens", "<= 18", in_length)] + [
        Ratio(f"diag at {length:,}, block {w} over {smallest}", f"<= {w // smallest}", in_block[str(w)]) for w in larger
    ]


def _decoding(name: str, vocabulary: int, rounds: int) -> list[Ratio]:
    """One more token over the matrix-vector products of the same model alone; medians of ten per round."""
    config = architecture(name, kind="decoder", vocab_size=vocabulary, max_length=2**14, **DECODER)
    model = build_model(config, seed=0).eval()
    weights = [module.weight for module in model.modules() if isinstance(module, torch.nn.Linear)]
    weights.append(model.embedding.weight)
    vectors = {weight.shape[1]: torch.randn(1, weight.shape[1]) for weight in weights}
    token, states = torch.tensor([0]), model.initial_state(1)

    @torch.no_grad()
    def step() -> None:
        nonlocal states
        _, states = model.step(token, states)

    @torch.no_grad()
    def products() -> None:
        for weight in weights:
            torch.nn.functional.linear(vectors[weight.shape[1]], weight)

    values = _quotients({"step": step, "products": products}, "products", rounds, repeats=10)["step"]
    return [Ratio(f"decoding, {name}, {vocabulary:,} words, over its matrix-vector products", "<= 1.5", values)]
