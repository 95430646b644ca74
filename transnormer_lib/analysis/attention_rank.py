"""Rank and sparsity of attention matrices: Table 3 of the GAU-based model's paper.

The rank of a matrix of floating-point numbers depends on a tolerance: here it is the number of singular values above
``tolerance`` times the largest. Exact statements have the tolerance of float64, N · 2⁻⁵² (as ``numpy.linalg``). What a
framework finds in a matrix of float32 has N · 2⁻²³, the default of ``numpy.linalg`` and ``torch.linalg`` there.
Sparsity is the share of entries whose absolute value is at most a threshold times the mean absolute value of their row;
at zero it counts zeros. Shapes: [..., N, N].
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from transnormer_lib.checks import check_not_negative

FLOAT64, FLOAT32 = 2.0**-52, 2.0**-23


def exact(n: int) -> float:
    """The tolerance below which a singular value of an N × N matrix in float64 is rounding."""
    return n * FLOAT64


def single(n: int) -> float:
    """The default tolerance of ``numpy.linalg`` and ``torch.linalg`` for an N × N matrix in float32."""
    return n * FLOAT32


def ranks(matrices: Tensor, tolerances: Sequence[float]) -> Tensor:
    """The rank of every matrix at every tolerance: [tolerances, ...], int64. A matrix of zeros has rank 0."""
    for tolerance in tolerances:
        check_not_negative("tolerances", tolerance)
    values = torch.linalg.svdvals(matrices.double())
    largest = values[..., :1]
    return torch.stack([((values > t * largest) & (values > 0)).sum(-1) for t in tolerances])


def rank(matrix: Tensor, tolerance: float | None = None) -> int:
    """The rank of one matrix [N, N]; the default tolerance is :func:`exact`."""
    return int(ranks(matrix, [exact(max(matrix.shape)) if tolerance is None else tolerance])[0])


def sparsity(matrices: Tensor, threshold: float = 0.0) -> Tensor:
    """The share of small entries of every matrix, [...]."""
    size = matrices.abs()
    return (size <= threshold * size.mean(-1, keepdim=True)).double().mean((-2, -1))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "scores": lambda a: a,
    "squares": torch.square,
    "ReLU²": lambda a: a.relu().square(),
    "softmax": lambda a: a.softmax(-1),
}


def random_scores(n: int, s: int, size: float, generator: Generator) -> Tensor:
    """Q Kᵀ [N, N] in float64 of queries and keys of width s, with entries of standard deviation ``size``."""
    q, k = torch.randn(2, n, s, generator=generator, dtype=torch.float64).unbind()
    return size * (q @ k.mT) / s**0.5


def squares_bound(s: int) -> int:
    """The largest rank of the elementwise square of a matrix of rank s: the quadratic monomials in s variables."""
    return s * (s + 1) // 2


def bounds(sizes: Sequence[tuple[int, int]], generator: Generator) -> list[dict[str, int]]:
    """One line per (N, s): the ranks of drawn scores and of activations of them, and the bounds of the first two."""
    lines = []
    for n, s in sizes:
        scores = random_scores(n, s, 1.0, generator)
        line = {"N": n, "s": s, "scores": rank(scores), "at most": min(n, s)}
        line |= {"squares": rank(scores.square()), "squares at most": min(n, squares_bound(s))}
        lines.append(line | {name: rank(ACTIVATIONS[name](scores)) for name in ("ReLU²", "softmax")})
    return lines
