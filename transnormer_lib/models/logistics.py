"""A discretised mixture of logistics: the distribution of a pixel, and the head that predicts it.

Salimans et al., 2017 (PixelCNN++), Section 2.1. A pixel x in 0 … V − 1 stands for the point y = 2x/(V − 1) − 1 of
[−1, 1] and for the bin of half width h = 1/(V − 1) around it; the first bin takes the left tail, the last the right:

    P(x) = Σ_k π_k [σ((y + h − μ_k)/s_k) − σ((y − h − μ_k)/s_k)],  s_k = exp(max(log s_k, −7))

A scale beyond e^20, at which all values but the ends have no weight, is held there, so that gradients stay finite.

With a = (y + h − μ)/s and b = (y − h − μ)/s, σ(a) − σ(b) = σ(a) σ(−b) (1 − e^(b−a)), and a − b = 2h/s is the same for
every bin. So the logarithm is a sum of three exact terms and the bins sum to one in every precision; PixelCNN++'s code
and its descendants replace a small difference by the density at the bin's centre, and do not quite.

Shapes: … any leading dimensions, K components, V values.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.norms import widen
from transnormer_lib.checks import check_count

LEAST_LOG_SCALE = -7.0  # as in PixelCNN++
MOST_LOG_SCALE = 20.0


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of K logistics over the values 0 … V − 1."""

    log_weights: Tensor  # log π […, K]
    means: Tensor  # μ […, K]
    log_scales: Tensor  # log s […, K], clamped
    values: int  # V

    @classmethod
    def of(cls, outputs: Tensor, values: int) -> "Mixtures":
        """Those that a head's outputs […, 3K] describe: logits of the weights, means and log scales, K of each.

        Raises ValueError for another last dimension, and for fewer than two values.
        """
        check_count("values", values, 2)
        if not outputs.shape[-1] or outputs.shape[-1] % 3:
            raise ValueError(f"outputs.shape={tuple(outputs.shape)}: its last dimension must be three per component")
        logits, means, log_scales = outputs.chunk(3, dim=-1)
        return cls(logits.log_softmax(-1), means, log_scales.clamp(LEAST_LOG_SCALE, MOST_LOG_SCALE), values)

    def log_probability(self, x: Tensor) -> Tensor:
        """log P(x) […], in nats, for values x […], int64."""
        half = 1.0 / (self.values - 1)
        centred = (2.0 * half * x.to(self.means.dtype) - 1.0)[..., None] - self.means
        inverse = (-self.log_scales).exp()
        above, below = F.logsigmoid((centred + half) * inverse), F.logsigmoid((half - centred) * inverse)
        width = torch.log(-torch.expm1(-2.0 * half * inverse))
        first, last = (x == 0)[..., None], (x == self.values - 1)[..., None]
        inside = above + below + width
        of_component = torch.where(first, above, torch.where(last, below, inside))
        return (self.log_weights + of_component).logsumexp(-1)

    def log_probabilities(self) -> Tensor:
        """log P of every value: […, V]."""
        every = torch.arange(self.values, device=self.means.device)
        log_weights, means, log_scales = (
            part[..., None, :] for part in (self.log_weights, self.means, self.log_scales)
        )
        return Mixtures(log_weights, means, log_scales, self.values).log_probability(every)

    def draw(self, generator: torch.Generator | None = None) -> Tensor:
        """One value […], int64, per mixture: a component, a point of its logistic, and the bin that holds it.

        Rounding to the nearest bin and clipping to the ends give each bin the probability above.
        """
        weights, shape = self.log_weights.exp().reshape(-1, self.means.shape[-1]), self.means.shape[:-1]
        component = torch.multinomial(weights, 1, generator=generator).view(*shape, 1)
        mean, log_scale = (part.gather(-1, component)[..., 0] for part in (self.means, self.log_scales))
        u = torch.rand(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        tiny = torch.finfo(mean.dtype).tiny
        y = mean + log_scale.exp() * (u.clamp(min=tiny).log() - torch.log1p(-u))
        return ((y + 1.0) / 2.0 * (self.values - 1)).round().clamp(0, self.values - 1).long()


class LogisticHead(nn.Module):
    """From hidden states […, D] to the mixtures over ``values`` values."""

    def __init__(self, dim: int, components: int, values: int) -> None:
        super().__init__()
        self.values = values
        self.project = nn.Linear(dim, 3 * components)

    def forward(self, hidden: Tensor) -> Tensor:
        """The outputs […, 3K] that describe the mixtures."""
        return self.project(hidden)

    def mixtures(self, hidden: Tensor) -> Mixtures:
        """The mixtures, in float32 or wider."""
        return Mixtures.of(widen(self(hidden)), self.values)
