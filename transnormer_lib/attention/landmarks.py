"""What the landmark mechanisms share: real tokens by rank, segment means, an iterative inverse, one specification.

A landmark represents a part of a sequence. Parts are cut by a token's rank among the real tokens of its own sequence,
never by the padded length, so that padding anywhere changes nothing. A sequence of fewer tokens than landmarks has as
many landmarks as tokens; the remaining places are marked as not real.

Shapes: B batch, H heads, N length, D head_dim, M landmarks, L real tokens of one sequence.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from transnormer_lib.attention.windows import counts, ranks

NormsOf = Literal["matrix", "batch"]  # bounds of the iterative inverse: each matrix's norms, or the batch's largest


def real_tokens(allowed: Tensor | None, q: Tensor) -> Tensor:
    """[B, N], True on real tokens, from a bidirectional mechanism's ``allowed``: None or [B, 1, 1, N]."""
    if allowed is None:
        return torch.ones(q.shape[0], q.shape[2], dtype=torch.bool, device=q.device)
    return allowed[:, 0, 0].expand(q.shape[0], -1)


def segment_means(
    landmarks: int, key_padding_mask: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(P [B, 1, M, N], which landmarks are real [B, 1, 1, M], which pairs with a key are [B, 1, M, N]).

    P @ x are the means over segments of real tokens. Without a mask all are real, which None says.

    M = min(landmarks, N). The L real tokens are cut into min(M, L) segments of length ⌊L/M⌋, the last L mod M of them
    longer by one, as in the released LARA; if M divides L this is the cut of Nyströmformer's Section 3.
    """
    n = like.shape[2]
    rank, count = ranks(n, key_padding_mask, like.device), counts(n, key_padding_mask, like.device)[:, None]
    m = min(landmarks, n)
    used = count.clamp(min=1, max=m)
    size, longer = count // used, count % used
    in_short = (used - longer) * size  # tokens in the segments of length `size`
    segment = torch.where(rank < in_short, rank // size.clamp(min=1), used - longer + (rank - in_short) // (size + 1))
    at = torch.arange(m, device=like.device)
    member = segment[:, None, :] == at[:, None]
    if key_padding_mask is not None:
        member = member & ~key_padding_mask[:, None, :]
    means = member.to(like.dtype)
    means = means / means.sum(-1, keepdim=True).clamp(min=1.0)
    means = means[:, None]  # the same for all heads
    if key_padding_mask is None:
        return means, None, None
    is_landmark = (at < count)[:, None, None, :]
    return means, is_landmark, is_landmark.mT & ~key_padding_mask[:, None, None, :]


def segment_sizes(landmarks: int, count: int) -> list[int]:
    """The lengths of the segments that ``segment_means`` cuts ``count`` tokens into."""
    used = min(landmarks, count)
    size, longer = divmod(count, used)
    return [size] * (used - longer) + [size + 1] * longer


def mean_of_segments(landmarks: int, x: Tensor) -> Tensor:
    """The means [H, M, D] over the segments of one sequence x [H, L, D] without padding: the specification."""
    parts = x.split(segment_sizes(landmarks, x.shape[1]), dim=1)
    return torch.stack([part.mean(1) for part in parts], dim=1)


def sequence_by_sequence(
    matrix: Callable[..., Tensor], q: Tensor, k: Tensor, real_BN: Tensor, *others: Tensor
) -> Tensor:
    """[B, H, N, N]: the matrices [H, L, L] of each sequence's real tokens alone, zero on padding.

    ``matrix`` gets q and k of the real tokens, [H, L, D], and the sequence's entry of each of ``others``.
    """
    b, h, n, _ = q.shape
    result = []
    for i in range(b):
        places = real_BN[i].nonzero()[:, 0]
        if len(places) == 0:
            result.append(q.new_zeros(h, n, n))
            continue
        inner = matrix(q[i][:, places], k[i][:, places], *(x[i] for x in others))
        at_place = torch.eye(n, dtype=inner.dtype, device=inner.device)[places]  # [L, N]
        result.append(at_place.mT @ inner @ at_place)
    return torch.stack(result)


def schulz_inverse(a: Tensor, bound: Tensor, iterations: int) -> Tensor:
    """Z ≈ A⁺ of A [..., M, M] by Z ← ¼ Z (13 I − AZ (15 I − AZ (7 I − AZ))), Eq. 14 of Nyströmformer, third order.

    It starts at Aᵀ / ``bound`` and converges if the bound is at least the largest singular value squared. Rows and
    columns of zeros, which are missing landmarks, stay zero.
    """
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    z = a.mT / bound.clamp(min=torch.finfo(a.dtype).tiny)
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return z


def column_norm(a: Tensor) -> Tensor:
    """‖A‖₁, the largest column sum of |A|, [..., 1, 1]."""
    return a.abs().sum(-2).amax(-1)[..., None, None]


def row_norm(a: Tensor) -> Tensor:
    """‖A‖∞, the largest row sum of |A|, [..., 1, 1]."""
    return a.abs().sum(-1).amax(-1)[..., None, None]


def schulz_flops(m: int, iterations: int) -> int:
    """Floating-point operations of ``schulz_inverse``: four products of M × M matrices an iteration."""
    return 8 * iterations * m**3
