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
        return torch.cat([branch.weights(x, key_padding_mask) for branch in self.side_by_side()], dim=1)

    def attentions(self) -> tuple[Attention, ...]:
        return tuple(branch.attention for branch in self.side_by_side())

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token: each attention's, under names such as ``0.position``, and ``position``."""
        return joined([branch.initial_state(batch, dtype, device) for branch in self.side_by_side()])

    @torch.no_grad()
    def prefill(self, x_BND: Tensor) -> tuple[Tensor, State]:
        """(y [B, N, dim], the state after the last token) for x [B, N, dim]."""
        outputs, states = zip(*(branch.prefill(x_BND) for branch in self.side_by_side()), strict=True)
        return self.out_proj(torch.cat(outputs, dim=-1)), joined(states)

    @torch.no_grad()
    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """(y [B, dim], the state after it) for the next token x [B, dim]."""
        pairs = zip(self.side_by_side(), self.states_of(state), strict=True)
        outputs, states = zip(*(branch.step(x_BD, own) for branch, own in pairs), strict=True)
        return self.out_proj(torch.cat(outputs, dim=-1)), joined(states)

    @torch.no_grad()
    def fixed_step(self, x_BD: Tensor, state: State, position: Tensor) -> Tensor:
        """y [B, dim] of the next token; updates ``state`` in place, as ``MultiHeadAttention.fixed_step``."""
        pairs = zip(self.side_by_side(), self.states_of(state), strict=True)
        return self.out_proj(torch.cat([branch.fixed_step(x_BD, own, position) for branch, own in pairs], dim=-1))

    def states_of(self, state: State) -> list[State]:
        """Each attention's own state, from the layer's."""
        prefixes = [f"{number}." for number in range(len(self.branches))]
        return [
            {name.removeprefix(prefix): held for name, held in state.items() if name.startswith(prefix)}
            for prefix in prefixes
        ]

    def side_by_side(self) -> list[MultiHeadAttention]:
        """The attentions with their projections, in the order of the concatenation."""
        return [branch for branch in self.branches if isinstance(branch, MultiHeadAttention)]


def joined(states: Sequence[State]) -> State:
    """One state of all attentions' states, each name led by the number of its attention."""
    held = {f"{number}.{name}": tensor for number, state in enumerate(states) for name, tensor in state.items()}
    return {**held, "position": states[0]["position"]}
