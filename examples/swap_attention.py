"""Replace softmax attention in a torch model of your own by NormAttention and DiagAttention.

    python examples/swap_attention.py --steps 200

An attention maps q, k, v [B, H, N, D] to o [B, H, N, D], as torch's ``scaled_dot_product_attention`` does. The model
below is plain torch; only what happens between its projections is exchanged. All three learn the same toy task: to
repeat the symbols of the first half.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention import DiagAttention, DiagConfig, NormAttention, NormConfig

SYMBOLS, LENGTH, DIM, HEADS = 8, 32, 32, 4


class Layer(nn.Module):
    """A pre-norm transformer layer around ``attention``."""

    def __init__(self, attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.attention = attention  # a Module is registered with its weights, a function is called as it is
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # each [B, H, N, D]
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, *attentions: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, DIM), nn.Embedding(LENGTH, DIM)
        self.layers = nn.Sequential(*map(Layer, attentions))
        self.logits = nn.Linear(DIM, SYMBOLS)

    def forward(self, ids_BN: Tensor) -> Tensor:
        return self.logits(self.layers(self.symbols(ids_BN) + self.positions.weight[: ids_BN.shape[1]]))


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def diag() -> nn.Module:
    return DiagAttention(DiagConfig(heads=HEADS, head_dim=DIM // HEADS, causal=True, block_size=8))


def norm() -> nn.Module:
    return NormAttention(NormConfig(heads=HEADS, head_dim=DIM // HEADS, causal=True, phi="1+elu"))


MODELS = {  # the attention of each layer
    "softmax": lambda: (softmax, softmax),
    "NormAttention": lambda: (norm(), norm()),
    "TransNormer: DiagAttention, then NormAttention": lambda: (diag(), norm()),
}


def train(model: nn.Module, steps: int) -> tuple[float, float]:
    """The first and the last loss, in nats per repeated symbol."""
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        half = torch.randint(SYMBOLS, (32, LENGTH // 2), generator=generator)
        ids = torch.cat([half, half], dim=1)
        logits = model(ids[:, :-1])[:, LENGTH // 2 - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), half.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Three attentions in one plain torch model.")
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    for name, attentions in MODELS.items():
        torch.manual_seed(0)
        first, last = train(Model(*attentions()), steps)
        print(f"{name}: {first:.3f} nats, after {steps} steps {last:.3f}")


if __name__ == "__main__":
    main()
