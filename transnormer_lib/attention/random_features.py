"""Random projections ω_1 … ω_M ~ N(0, I): independent or orthogonal in blocks, redrawn in training.

Orthogonal rows are those of Yu et al. (2016, "Orthogonal Random Features"), as Performer takes them: each block of D
rows is a rotation drawn uniformly (Haar), and each row has its own length. With lengths of the χ distribution with D
degrees of freedom every single row is N(0, I), so that an estimator stays unbiased, and its variance falls.

Shapes: H heads, M random vectors, D head_dim.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from transnormer_lib.attention.norms import KeepsFloat32

RowNorms = Literal["chi", "sqrt"]

_SEEDS = 2**31  # torch's generator on the CPU takes 32 bits of a seed


def gaussian_rows(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers, drawn on the CPU, so that a seed gives the same ones for every device."""
    return torch.randn(shape, generator=generator, device="cpu")


def orthogonal_rows(
    count: int, dim: int, row_norms: RowNorms = "chi", generator: torch.Generator | None = None
) -> Tensor:
    """[count, dim]: each block of ``dim`` rows is orthogonal, with χ-distributed lengths or all of sqrt(dim)."""
    blocks = -(-count // dim)
    q, r = torch.linalg.qr(gaussian_rows((blocks, dim, dim), generator).double())
    # QR alone is not uniform: the algorithm chooses between q and −q, until r's diagonal is made positive.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    rows = q.mT.reshape(-1, dim)[:count]
    if row_norms == "sqrt":
        return (rows * dim**0.5).float()
    lengths = torch.linalg.vector_norm(gaussian_rows((count, dim), generator).double(), dim=-1)
    return (rows * lengths[:, None]).float()


class RandomProjection(KeepsFloat32):
    """ω as a buffer, [M, D] for all heads or [H, M, D], and the rule for redrawing it.

    ``advance`` counts a training step and draws a new ω after every ``redraw_interval`` steps (None: never). The new ω
    follows from ``seed``, drawn with the first ω, and the number of draws, so that processes that share a model agree.
    Every forward pass in training calls ``passed``, which advances; a trainer that splits a step into several passes,
    or repeats one, sets ``automatic`` to False and advances itself. ω, seed and counts are in the state dict, so that a
    resumed run draws the same. In evaluation, and in passes that activation checkpointing repeats, ω does not change.
    """

    omega: Tensor
    seed: Tensor
    draws: Tensor
    passes: Tensor

    def __init__(
        self, shape: tuple[int, ...], redraw_interval: int | None, orthogonal: bool = False, row_norms: RowNorms = "chi"
    ) -> None:
        super().__init__()
        self.shape, self.redraw_interval = shape, redraw_interval
        self.orthogonal, self.row_norms = orthogonal, row_norms
        self.register_buffer("omega", torch.empty(shape))
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))  # after the first
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))  # since the last draw
        self.automatic = True  # every forward pass is a step
        # Seed, draws, passes as Python numbers: reading them from a GPU would wait for the GPU.
        self._counts: tuple[int, int, int] | None = None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw ω and the seed of later ones, and restart the counts."""
        if self.omega.is_meta:
            return
        self._take(generator)
        self._counts = int(torch.randint(_SEEDS, (), generator=generator, device="cpu")), 0, 0
        for buffer, value in zip((self.seed, self.draws, self.passes), self._counts, strict=True):
            buffer.fill_(value)

    def passed(self) -> None:
        """Advance, as a forward pass in training begins, unless a trainer does."""
        repeated = torch._C._current_graph_task_id() != -1  # in a backward pass
        if self.automatic and not repeated:
            self.advance()

    def advance(self) -> None:
        if self.redraw_interval is None:
            return
        seed, draws, passes = self._counts or (int(self.seed), int(self.draws), int(self.passes))
        if passes >= self.redraw_interval:
            draws, passes = draws + 1, 0
            self._take(torch.Generator().manual_seed(seed + draws))
            self.draws.fill_(draws)
        self._counts = seed, draws, passes + 1
        self.passes.fill_(passes + 1)

    def _take(self, generator: torch.Generator | None) -> None:
        *heads, count, dim = self.shape
        # A new tensor: an earlier pass may still need the old one for its gradient.
        with torch.inference_mode(False), torch.no_grad():
            if self.orthogonal:
                drawn = [orthogonal_rows(count, dim, self.row_norms, generator) for _ in range(math.prod(heads))]
                omega = torch.stack(drawn).view(self.shape)
            else:
                omega = gaussian_rows(self.shape, generator)
            self.omega = omega.to(self.omega.device, self.omega.dtype)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, *args, **kwargs)
        self._counts = None
