"""Forms of the released code and the harnesses that this library has no flag for, transcribed by us.

Only the checks use them; no model does. Sources: OpenNLPLab/fairseq-evo@38fa81f (attention),
OpenNLPLab/lra@dd871ef and google-research/long-range-arena@cd31e5c (harnesses), Appendix F (the window).

Shapes: B batch, H heads, N length, D head_dim.
"""

from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transnormer_lib.attention import Attention
from transnormer_lib.data import listops


def masked_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention until 2022-06-13: a softmax over all keys, then zeros above the diagonal."""
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1).tril() @ v


def zero_padded_blocks(q: Tensor, k: Tensor, v: Tensor, w: int) -> Tensor:
    """T2's blocks: zeros pad the last block, and its softmax counts them as keys with score zero."""
    n = q.shape[2]
    q, k, v = (F.pad(x, (0, 0, 0, -n % w)).unflatten(2, (-1, w)) for x in (q, k, v))
    return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).flatten(2, 3)[:, :, :n]


def without_the_mask(attention: Attention, *tensors: Tensor) -> Tensor:
    """Attention that accepts ``key_padding_mask`` and ignores it; ``tensors`` are q, k, v and the mask."""
    return attention(*tensors[:3])


def without_the_state(attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output of the last token when step-by-step decoding accepts a state and ignores it."""
    return attention(q[:, :, -1:], k[:, :, -1:], v[:, :, -1:])


def causal_product_flops(n: int, d: int) -> int:
    """Operations of one head's masked φ(Q)φ(K)ᵀ times V, over the whole square."""
    return 4 * n * n * d


def batch_norm(x_BND: Tensor) -> Tensor:
    """Normalises each feature over all tokens of a batch, as SyncBatchNorm does in training."""
    mean, variance = x_BND.mean((0, 1)), x_BND.var((0, 1), unbiased=False)
    return (x_BND - mean) / (variance + 1e-5).sqrt()


def mean_over_padded_length(hidden_BND: Tensor, padding_BN: Tensor) -> Tensor:
    """Sum over the real tokens, divided by the length of the padded sequence: [B, D]."""
    return hidden_BND.masked_fill(padding_BN[..., None], 0.0).sum(1) / hidden_BND.shape[1]


def padding_from_ids(ids: Tensor) -> Tensor:
    """Padding as the original harness defines it: every token with id 0."""
    return ids == 0


def read_from_file(source: str) -> NDArray[Any]:
    """The ids of a ListOps line by the first tokenizer, which kept only letters and digits and so dropped brackets."""
    words = [word for word in source.replace("[", "").split() if word.isalnum()]
    return listops.encode(" ".join(word if word.isdigit() else f"[{word}" for word in words))


@dataclass
class Window:
    """What Appendix F's loop does for one row of weights."""

    read: list[int] = field(default_factory=list)  # positions
    counted: list[tuple[int, int]] = field(default_factory=list)  # window length it counts, weights added so far
    ended: bool = False


def printed_window(w: Tensor, centre: int, level: float, steps: int = 100) -> Window:
    """Appendix F as printed, for one row of weights [M] and one level, in at most ``steps`` iterations."""
    m, window, turn = len(w), Window(), "left"
    left, right, length = centre - 1, centre + 1, 1
    window.read.append(centre)
    mass = float(w[centre])
    for _ in range(steps):
        if length >= m or mass >= level:
            window.ended = True
            break
        if turn == "right":
            if right != m:
                window.read.append(right)
                mass, right, turn = mass + float(w[right]), right + 1, "left"
            continue
        if left != 0:
            window.read.append(left)
            mass, left, turn = mass + float(w[left]), max(left - 1, 0), "right"
        length = min(right - left + 1, m)
        window.counted.append((length, len(window.read)))
    return window
