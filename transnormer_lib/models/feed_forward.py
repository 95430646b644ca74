"""The feed-forward part of a block: the vanilla transformer's FFN and TransNormer's GLU (Table 10).

Shapes: B batch, N length, D model width.
"""

import torch
from torch import Tensor, nn

from transnormer_lib.models.config import Activation, ModelConfig

ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
    "identity": nn.Identity,  # what the release's activation table returns for "swish"
}


class FFN(nn.Module):
    """``W_2 act(W_1 x)``; x and the result are [B, N, D]."""

    def __init__(self, dim: int, hidden: int, activation: Activation, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias)
        self.down = nn.Linear(hidden, dim, bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x_BND))))


class GLU(nn.Module):
    """``W_3 (act(W_1 x) ⊙ W_2 x)`` (Shazeer, 2020); x and the result are [B, N, D]."""

    def __init__(self, dim: int, hidden: int, activation: Activation, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        # W_1 and W_2 share their input: one product is faster than two.
        self.gate_and_value = nn.Linear(dim, 2 * hidden, bias)
        self.down = nn.Linear(hidden, dim, bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor) -> Tensor:
        gate, value = torch.chunk(self.gate_and_value(x_BND), 2, dim=-1)
        return self.down(self.dropout(self.activation(gate) * value))


def feed_forward(config: ModelConfig) -> FFN | GLU:
    module = FFN if config.feed_forward == "ffn" else GLU
    return module(config.dim, config.hidden_width, config.activation, config.activation_dropout, config.biases)
