"""What the sparse mechanisms share: real tokens at the front, and blocks of tokens with their neighbours.

Windows, blocks and first tokens are counted by *rank*, a token's number among the real tokens of its sequence, so that
padding, wherever it is, moves none of them.

Shapes: B batch (or 1: the same for all), H heads, N length, D head_dim, G blocks, C tokens per block,
S = before + C + after keys of a block.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def ranks(n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
    """The number of real tokens before each token, [B, N]; at padding it means nothing."""
    if key_padding_mask is None:
        return torch.arange(n, device=device)[None]
    real_BN = (~key_padding_mask).long()
    return real_BN.cumsum(1) - real_BN


def counts(n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
    return torch.full((1,), n, device=device) if key_padding_mask is None else (~key_padding_mask).sum(1)


def real_pairs(n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
    """[B, 1, N, N]: True where query and key are both real."""
    if key_padding_mask is None:
        return torch.ones(1, 1, n, n, dtype=torch.bool, device=device)
    real_BN = ~key_padding_mask
    return real_BN[:, None, :, None] & real_BN[:, None, None, :]


def on_real_tokens(
    compute: Callable[..., Tensor], tensors: tuple[Tensor, ...], key_padding_mask: Tensor | None
) -> Tensor:
    """``compute(*tensors, count_B)`` on tensors [B, H, N, D] with each sequence's real tokens in front.

    ``count_B`` counts the real tokens; zeros follow them. The result [B, H, N, D] is put back, zero on padding.
    """
    count_B = counts(tensors[0].shape[2], key_padding_mask, tensors[0].device)
    if key_padding_mask is None:
        return compute(*tensors, count_B)
    padding_B1N1 = key_padding_mask[:, None, :, None]
    order_BN = key_padding_mask.byte().argsort(dim=1, stable=True)
    packed = [_taken(t.masked_fill(padding_B1N1, 0.0), order_BN) for t in tensors]
    return _taken(compute(*packed, count_B), order_BN.argsort(dim=1)).masked_fill(padding_B1N1, 0.0)


def _taken(x: Tensor, order_BN: Tensor) -> Tensor:
    return x.gather(2, order_BN[:, None, :, None].expand_as(x))


def blocks(x: Tensor, size: int) -> Tensor:
    """x [B, H, N, D] as [B, H, G, C, D], with zeros at the end of the last block."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))


def neighbourhoods(x: Tensor, size: int, before: int, after: int) -> Tensor:
    """Each block of x [B, H, N, D] with the tokens ``before`` and ``after`` it, zeros beyond the ends: [B, H, G, S, D].

    A token occurs S / C times.
    """
    n = x.shape[2]
    padded = F.pad(x, (0, 0, before, -n % size + after))
    return padded.unfold(2, before + size + after, size).transpose(-1, -2)


def distances(size: int, before: int, after: int, device: torch.device) -> Tensor:
    """How far a neighbourhood's keys are behind the block's queries, negative if they are in front: [C, S]."""
    query_C = torch.arange(size, device=device)
    key_S = torch.arange(-before, size + after, device=device)
    return query_C[:, None] - key_S[None, :]


def key_ranks(count: int, size: int, before: int, after: int, device: torch.device) -> Tensor:
    """The rank of each key of ``count`` neighbourhoods: [G, S]; negative before the first token."""
    first_G = torch.arange(count, device=device) * size - before
    return first_G[:, None] + torch.arange(before + size + after, device=device)[None, :]
