"""How the next token is drawn from the logits: temperature, top-k, top-p. Shapes: B sequences, V vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transnormer_lib.attention.norms import widen
from transnormer_lib.checks import check_count, check_not_negative, is_number

_LEAST = torch.finfo(torch.float32).tiny  # a smaller temperature is this one


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the logits: the fields apply in this order. Raises ``ValueError`` for a bad field."""

    temperature: float = 1.0  # divides the logits; 0: always the likeliest token
    top_k: int = 0  # keep the k likeliest tokens; 0: all
    top_p: float = 1.0  # keep the fewest likeliest tokens whose probabilities reach p (Holtzman et al., 2020)

    def __post_init__(self) -> None:
        check_not_negative("temperature", self.temperature)
        check_count("top_k", self.top_k, least=0)
        if not is_number(self.top_p) or not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p!r}: must be in (0, 1]")

    def probabilities(self, logits_BV: Tensor) -> Tensor:
        """The distribution [B, V] that tokens are drawn from, in float32 or wider. Rows sum to one."""
        logits_BV = widen(logits_BV)
        if self.temperature == 0.0:
            return torch.zeros_like(logits_BV).scatter(-1, logits_BV.argmax(-1, keepdim=True), 1.0)
        # Relative to the likeliest, whose quotient is 0 however small the temperature is.
        logits_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / max(self.temperature, _LEAST)
        ordered_BV, index_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
        keep_BV = torch.ones_like(ordered_BV, dtype=torch.bool)
        if self.top_k:
            keep_BV[:, self.top_k :] = False
        if self.top_p < 1.0:
            p_BV = ordered_BV.masked_fill(~keep_BV, -torch.inf).softmax(-1)
            # A token stays while those before it have not reached p; the likeliest one also where p rounds to zero.
            keep_BV &= p_BV.cumsum(-1) - p_BV < self.top_p
            keep_BV[:, 0] = True
        keep_BV = torch.zeros_like(keep_BV).scatter(-1, index_BV, keep_BV)
        return logits_BV.masked_fill(~keep_BV, -torch.inf).softmax(-1)

    def draw(self, logits_BV: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.temperature == 0.0:
            return logits_BV.argmax(-1)
        return torch.multinomial(self.probabilities(logits_BV), 1, generator=generator)[:, 0]
