"""Several attentions side by side in one layer: each reads the same tokens, one projection reads all outputs.

Section 5.4 of "The Devil in Linear Transformer" (Table 12) uses DiagAttention and NormAttention "in parallel in each
attention layer" and concatenates "their embedding output". It does not say how the concatenation becomes as wide as the
model again; here the output projection does that.

Shapes: B batch, H heads, N length, P attentions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.multihead import MultiHeadAttention
from transnormer_lib.attention.recurrent import State


class ParallelAttention(nn.Module):
    """P multi-head attentions on [B, N, dim], their outputs concatenated to [B, N, P·dim] and projected to dim.

    Each has its own projections of queries, keys and values; ``out_proj`` is one ``nn.Linear`` of P·dim × dim. Its
    methods are those of ``MultiHeadAttention``. Raises ValueError for fewer than two attentions.
    """

    def __init__(self, dim: int, attentions: Sequence[Attention], bias: bool = True) -> None:
        super().__init__()
        if len(attentions) < 2:
            raise ValueError(f"attentions={len(attentions)}: must be at least two, side by side")
        self.branches = nn.ModuleList(MultiHeadAttention(dim, one, bias, projected=False) for one in attentions)
        self.out_proj = nn.Linear(len(attentions) * dim, dim, bias)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """y [B, N, dim] for x [B, N, dim]; ``key_padding_mask`` [B, N] is True on padding."""
        return self.out_proj(torch.cat([branch(x, key_padding_mask) for branch in self.branches], dim=-1))

    def weights(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The weights [B, P·H, N, N] for x [B, N, dim], the first attention's heads first."""
        return torch.cat([branch.weights(x, key_padding_mask) for branch in self._branches()], dim=1)

    def attentions(self) -> tuple[Attention, ...]:
        return tuple(branch.attention for branch in self._branches())

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token: each attention's, under names such as ``0.position``, and ``position``."""
        return _joined([branch.initial_state(batch, dtype, device) for branch in self._branches()])

    @torch.no_grad()
    def prefill(self, x_BND: Tensor) -> tuple[Tensor, State]:
        """(y [B, N, dim], the state after the last token) for x [B, N, dim]."""
        outputs, states = zip(*(branch.prefill(x_BND) for branch in self._branches()), strict=True)
        return self.out_proj(torch.cat(outputs, dim=-1)), _joined(states)

    @torch.no_grad()
    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """(y [B, dim], the state after it) for the next token x [B, dim]."""
        outputs, states = [], []
        for number, branch in enumerate(self._branches()):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): held for name, held in state.items() if name.startswith(prefix)}
            output, after = branch.step(x_BD, own)
            outputs.append(output)
            states.append(after)
        return self.out_proj(torch.cat(outputs, dim=-1)), _joined(states)

    def _branches(self) -> list[MultiHeadAttention]:
        return [branch for branch in self.branches if isinstance(branch, MultiHeadAttention)]


def _joined(states: Sequence[State]) -> State:
    """One state of all attentions' states, each name led by the number of its attention."""
    held = {f"{number}.{name}": tensor for number, state in enumerate(states) for name, tensor in state.items()}
    return {**held, "position": states[0]["position"]}
