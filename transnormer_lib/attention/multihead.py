"""Multi-head attention on [B, N, dim]: projections, an attention mechanism, output projection.

Shapes: B batch, H heads, N length, D head_dim.
"""

import torch
from torch import Tensor, nn

from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.recurrent import State


class MultiHeadAttention(nn.Module):
    """q, k, v projections → heads → ``attention`` → concatenated heads → output projection.

    ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj`` are ``nn.Linear`` layers of dim × dim with torch's own
    initialisation; the models set theirs. With ``projected=False`` there is no output projection, and the result is the
    concatenated heads. A position encoding that depends on the mechanism belongs to ``attention``.
    """

    def __init__(self, dim: int, attention: Attention, bias: bool = True, projected: bool = True) -> None:
        super().__init__()
        config = attention.config
        if dim != config.heads * config.head_dim:
            raise ValueError(f"dim={dim}: must equal heads × head_dim = {config.heads} × {config.head_dim}")
        self.q_proj = nn.Linear(dim, dim, bias)
        self.k_proj = nn.Linear(dim, dim, bias)
        self.v_proj = nn.Linear(dim, dim, bias)
        self.attention = attention
        self.out_proj: nn.Module = nn.Linear(dim, dim, bias) if projected else nn.Identity()

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """y [B, N, dim] for x [B, N, dim]; ``key_padding_mask`` [B, N] is True on padding.

        Raises ValueError for an x of another shape.
        """
        return self.out_proj(self.attention(*self._heads(x), key_padding_mask).transpose(1, 2).flatten(2))

    def weights(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The mechanism's weights [B, H, N, N] for x [B, N, dim], as ``Attention.weights``."""
        return self.attention.weights(*self._heads(x), key_padding_mask)

    def _check(self, x: Tensor, shape: str) -> None:
        dim = self.q_proj.in_features
        if x.ndim != shape.count(",") + 1 or x.shape[-1] != dim:
            raise ValueError(f"x.shape={tuple(x.shape)}: must be {shape.format(dim=dim)}")

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._check(x, "[B, N, {dim}]")
        heads = self.attention.config.heads
        q, k, v = (
            project(x).unflatten(-1, (heads, -1)).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def initial_state(
        self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> State:
        """The state before the first token, as ``Attention.initial_state``: ``dtype`` is that of the projections."""
        return self.attention.initial_state(batch, dtype, device)

    @torch.no_grad()
    def prefill(self, x_BND: Tensor) -> tuple[Tensor, State]:
        """(y [B, N, dim], the state after the last token) for x [B, N, dim], as ``Attention.prefill``."""
        o_BHND, state = self.attention.prefill(*self._heads(x_BND))
        return self.out_proj(o_BHND.transpose(1, 2).flatten(2)), state

    @torch.no_grad()
    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """(y [B, dim], the state after it) for the next token x [B, dim], as ``Attention.step``."""
        self._check(x_BD, "[B, {dim}]")
        q_BHD, k_BHD, v_BHD = (x[:, :, 0] for x in self._heads(x_BD[:, None]))
        o_BHD, state = self.attention.step(q_BHD, k_BHD, v_BHD, state)
        return self.out_proj(o_BHD.flatten(1)), state

    @torch.no_grad()
    def fixed_step(self, x_BD: Tensor, state: State, position: Tensor) -> Tensor:
        """y [B, dim] of the next token, as ``Attention.fixed_recurrence``; updates ``state`` in place."""
        o_BH1D = self.attention.fixed_recurrence(*self._heads(x_BD[:, None]), state, position)
        return self.out_proj(self.attention.normed(o_BH1D)[:, :, 0].flatten(1).to(x_BD.dtype))
