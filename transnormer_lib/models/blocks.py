"""The layers of a stack: attention and a feed-forward part, or one block that replaces both.

Shapes: B batch, N length, D width, H heads.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.models.config import ModelConfig, side_by_side
from transnormer_lib.models.feed_forward import FFN, GLU, feed_forward


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm of ``config.norm`` over the model's width."""
    rms = config.norm == "rms"
    eps = 1e-8 if rms else 1e-5
    return attention.build_norm(config.norm, config.dim, eps, config.norm_eps_placement, affine=not rms)


def _options(config: ModelConfig, mechanism: str) -> dict[str, Any]:
    """The model's fields that the mechanism has, overridden by the mechanism's own options."""
    shared = {name: getattr(config, name) for name in ("dim", "heads", "head_dim", "rotary", "max_length")}
    shared |= {"causal": config.kind == "decoder", "dropout": config.attention_dropout}
    known = {field.name for field in fields(attention.config_class(mechanism))}
    own = config.attention_options.get(mechanism, {})
    return {name: value for name, value in shared.items() if name in known} | dict(own)


class Block(nn.Module):
    """One layer of a stack; each of its parts has a residual connection and a norm.

    The parts are attention and a feed-forward part, or one block such as FLASH in place of both. ``layer`` is an entry
    of ``config.attention``. Raises ValueError if it names a block beside another mechanism.
    """

    def __init__(self, config: ModelConfig, layer: str) -> None:
        super().__init__()
        built = [attention.build(name, _options(config, name)) for name in side_by_side(layer)]
        attentions = [one for one in built if isinstance(one, attention.Attention)]
        if len(attentions) < len(built) > 1:
            raise ValueError(f"attention={layer!r}: only attentions can be side by side, and one of these is a block")
        self.mechanisms = tuple(built)
        self.attention: attention.MultiHeadAttention | attention.ParallelAttention | attention.AttentionBlock
        self.feed_forward: FFN | GLU | None = None
        if isinstance(built[0], attention.AttentionBlock):
            self.attention = built[0]
        else:
            self.attention = (
                attention.MultiHeadAttention(config.dim, attentions[0], config.biases)
                if len(attentions) == 1
                else attention.ParallelAttention(config.dim, attentions, config.biases)
            )
            self.feed_forward = feed_forward(config)
        self.attention_norm = build_norm(config)
        self.feed_forward_norm = None if self.feed_forward is None else build_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm_placement == "pre"

    def forward(self, x_BND: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The block's output [B, N, D]."""
        return self._rest(x_BND, self.attention(self._seen(x_BND), key_padding_mask))

    def weights(self, x_BND: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The block's attention weights [B, H, N, N], as its mechanism defines them."""
        return self.attention.weights(self._seen(x_BND), key_padding_mask)

    def prefill(self, x_BND: Tensor) -> tuple[Tensor, attention.State]:
        """The block's output and the state after its last token; decoders only."""
        attended, state = self.attention.prefill(self._seen(x_BND))
        return self._rest(x_BND, attended), state

    def step(self, x_BD: Tensor, state: attention.State) -> tuple[Tensor, attention.State]:
        attended, state = self.attention.step(self._seen(x_BD), state)
        return self._rest(x_BD, attended), state

    def fixed_step(self, x_BD: Tensor, state: attention.State, position: Tensor) -> Tensor:
        """The output [B, D] of the next token, its position on the device; updates ``state`` in place."""
        return self._rest(x_BD, self.attention.fixed_step(self._seen(x_BD), state, position))

    def _seen(self, x: Tensor) -> Tensor:
        return self.attention_norm(x) if self.pre_norm else x

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """All of the block after its attention, token by token: x and the result are [..., D]."""
        x = x + self.dropout(attended)
        if not self.pre_norm:
            x = self.attention_norm(x)
        if self.feed_forward is None or self.feed_forward_norm is None:
            return x
        if self.pre_norm:
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
