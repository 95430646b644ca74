"""Absolute positions, added to the token embeddings or beside them. Shapes: N length, D model width."""

import math

import torch
from torch import Tensor, nn

from transnormer_lib.models.config import ModelConfig


def sinusoidal(length: int, dim: int) -> Tensor:
    """Sines in the first half of the features, cosines in the second, wavelengths from 2π to 10000·2π; [N, D]."""
    frequencies = torch.exp(-math.log(10_000.0) * torch.arange(dim // 2) / max(dim // 2 - 1, 1))
    angles_ND = torch.arange(length)[:, None] * frequencies[None, :]
    return torch.cat([angles_ND.sin(), angles_ND.cos()], dim=-1)


class Positions(nn.Module):
    """Adds N rows of the position table to x [B, N, D]; ``none`` adds nothing.

    ``beside`` makes [B, N, D] of x [B, N, D/2]: the embeddings, then the sines and cosines, all of unit size.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.max_length = config.max_length
        self.beside = config.positions == "beside"
        self.table: Tensor | None
        if config.positions == "learned":
            self.table = nn.Parameter(torch.empty(config.max_length, config.dim))
        elif config.positions in ("sinusoidal", "beside"):
            width = config.dim // 2 if self.beside else config.dim
            self.register_buffer("table", sinusoidal(config.max_length, width), persistent=False)
        else:
            self.table = None

    def forward(self, x_BND: Tensor, start: int = 0) -> Tensor:
        """``start`` is the position of the first token of x. Raises ValueError beyond ``max_length``."""
        length = start + x_BND.shape[1]
        if length > self.max_length:
            raise ValueError(f"length={length}: exceeds the model's max_length={self.max_length}")
        if self.table is None:
            return x_BND
        return self._joined(x_BND, self.table[start:length])

    def one(self, x_BD: Tensor, position: Tensor) -> Tensor:
        """``forward`` for one token each, at a position [] on the device, which nobody checks."""
        return x_BD if self.table is None else self._joined(x_BD, self.table.index_select(0, position[None]))

    def _joined(self, x: Tensor, rows: Tensor) -> Tensor:
        return torch.cat([x, rows.expand(*x.shape[:-1], -1)], -1) if self.beside else x + rows
