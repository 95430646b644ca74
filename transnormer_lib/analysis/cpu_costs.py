"""What the CPU form of attention costs beside what it cannot do without: ratios, each measured within one round.

Both sides of a ratio take turns in every round, so that a drift of the machine meets both. Shapes as in ``benchmarks``.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

HEADS, HEAD_DIM = 8, 64
BLOCK_SIZES = (64, 128, 256, 512)  # of DiagAttention
DECODER: dict[str, Any] = {"dim": 512, "heads": 8, "layers": 6, "block_size": 64}
VOCABULARIES = (258, 50265)  # bytes, and RoBERTa's, of the paper's WikiText-103 models
_GEMM = 1024  # rows and columns of the matrices whose product gives the machine's rate


@dataclass(frozen=True)
class Ratio:
    """A cost over another one, a value for each round, and what it should be."""

    name: str
    aim: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{self.name}: {self.median:.2f} ({low:.2f} to {high:.2f}), aim {self.aim}"


def ratios(length: int, rounds: int) -> list[Ratio]:
    """Every ratio of this file, attention at ``length`` tokens, forward and backward, 8 heads of 64."""
    return [*_over_products(length, rounds), *_float32_over_bfloat16(length, rounds), *_growth(length, rounds)] + [
        _decoding(name, vocabulary, rounds) for vocabulary in VOCABULARIES for name in ("norm-t2", "transnormer-t2")
    ]


def _quotients(
    steps: Mapping[str, Callable[[], object]], over: str, rounds: int, factors: Mapping[str, float] | None = None
) -> dict[str, tuple[float, ...]]:
    """Per step its seconds over those of ``over``, each times its factor, round by round."""
    from transnormer_lib.analysis.norm_speed import interleaved

    factors = factors or {}
    seconds = interleaved(steps, rounds=rounds, repeats=1)
    return {
        name: tuple(
            a * factors.get(name, 1.0) / (b * factors.get(over, 1.0)) for a, b in zip(own, seconds[over], strict=True)
        )
        for name, own in seconds.items()
    }


def forward_and_backward(module: "Callable[..., Tensor]", length: int, dtype: Any = None) -> Callable[[], object]:
    """A step on random q, k, v [1, H, ``length``, D] of ``dtype`` (default: float32)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (4, 1, HEADS, length, HEAD_DIM)
    q, k, v, gradient = torch.randn(shape, generator=generator).to(dtype or torch.float32).unbind()
    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    return lambda: torch.autograd.grad(module(*inputs), inputs, gradient)


def _build(name: str, **options: Any) -> Any:
    from transnormer_lib import attention

    return attention.build(name, {"heads": HEADS, "head_dim": HEAD_DIM, "causal": True, **options})


def _over_products(length: int, rounds: int) -> list[Ratio]:
    """NormAttention over its own matrix products, at the rate of a large product and of batched 64 × 64 ones.

    The backward pass counts as two forward ones; what is computed a second time in it does not count.
    """
    import torch

    norm, batch = _build("norm"), max(1, HEADS * length // HEAD_DIM)
    operations = 3 * norm.flops(length)
    large, large_out = torch.randn(_GEMM, _GEMM), torch.empty(_GEMM, _GEMM)
    small, small_out = torch.randn(batch, HEAD_DIM, HEAD_DIM), torch.empty(batch, HEAD_DIM, HEAD_DIM)
    steps = {
        "norm": forward_and_backward(norm, length),
        "large": lambda: torch.mm(large, large, out=large_out),
        "small": lambda: torch.bmm(small, small, out=small_out),
    }
    factors = {"large": operations / (2 * _GEMM**3), "small": operations / (2 * batch * HEAD_DIM**3)}
    found = {over: _quotients(steps, over, rounds, factors)["norm"] for over in ("large", "small")}
    return [
        Ratio(
            f"norm over its products at {length:,}, at the rate of one of {_GEMM} x {_GEMM}", "<= 2.5", found["large"]
        ),
        Ratio(f"norm over its products at {length:,}, at the rate of batched 64 x 64", "<= 2.5", found["small"]),
    ]


def _float32_over_bfloat16(length: int, rounds: int) -> list[Ratio]:
    """The mechanism on bfloat16 inputs, and the layer with its projections under autocast."""
    import torch

    from transnormer_lib.attention import MultiHeadAttention

    norm = _build("norm")
    layer = MultiHeadAttention(HEADS * HEAD_DIM, norm)
    x = torch.randn(1, length, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        torch.autograd.grad(layer(x).sum(), list(layer.parameters()))

    def under_autocast() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step()

    own = {
        "float32": forward_and_backward(norm, length),
        "half": forward_and_backward(norm, length, torch.bfloat16),
    }
    whole = {"float32": step, "half": under_autocast}
    return [
        Ratio(f"{name} at {length:,}, float32 over bfloat16", ">= 1.3", _quotients(steps, "half", rounds)["float32"])
        for name, steps in (("norm", own), ("layer of norm under autocast", whole))
    ]


def _growth(length: int, rounds: int) -> list[Ratio]:
    """NormAttention in the length, DiagAttention in the block."""
    long, norm = 16 * length, _build("norm")
    steps = {str(n): forward_and_backward(norm, n) for n in (length, long)}
    in_length = _quotients(steps, str(length), rounds)[str(long)]
    blocks = {str(w): forward_and_backward(_build("diag", block_size=w), length) for w in BLOCK_SIZES}
    smallest, *larger = BLOCK_SIZES
    in_block = _quotients(blocks, str(smallest), rounds)
    return [Ratio(f"norm at {long:,} over {length:,} tokens", "<= 18", in_length)] + [
        Ratio(f"diag at {length:,}, block {w} over {smallest}", f"<= {w // smallest}", in_block[str(w)]) for w in larger
    ]


def _decoding(name: str, vocabulary: int, rounds: int) -> Ratio:
    """One more token over the matrix-vector products of the same model alone. Medians of ten in a round."""
    import torch

    from transnormer_lib.models.architectures import architecture
    from transnormer_lib.models.language_model import build_model

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

    from transnormer_lib.analysis.norm_speed import interleaved

    seconds = interleaved({"step": step, "products": products}, rounds=rounds, repeats=10)
    values = tuple(a / b for a, b in zip(seconds["step"], seconds["products"], strict=True))
    return Ratio(f"decoding, {name}, {vocabulary:,} words, over its matrix-vector products", "<= 1.5", values)
