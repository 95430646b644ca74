"""Is the mixture of logistics a distribution, does the sampler follow it, and what does the release draw from?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.data.pixels import PixelSet
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.logistics import Mixtures
from transnormer_lib.models.pixel_generation import head_of

LEAST_EXPECTED = 5.0  # draws that a bin of the chi-square test must expect; smaller bins are joined


def random_mixtures(trials: int, components: int, values: int, generator: torch.Generator) -> Mixtures:
    """Mixtures [trials] in float64 with means far beyond the ends and scales from the clamp to the whole range."""
    logits = 3 * torch.randn(trials, components, dtype=torch.float64, generator=generator)
    means = 4 * torch.rand(trials, components, dtype=torch.float64, generator=generator) - 2
    log_scales = 11 * torch.rand(trials, components, dtype=torch.float64, generator=generator) - 9
    return Mixtures.of(torch.cat([logits, means, log_scales], -1), values)


def sum_error(mixtures: Mixtures) -> float:
    """The largest distance of the sum over all values from one."""
    return float((mixtures.log_probabilities().exp().sum(-1) - 1).abs().max())


def chi_square_p(mixture: Mixtures, draws: Tensor) -> float:
    """The p-value of Pearson's test that ``draws`` [n] come from one mixture; neighbouring rare values are joined."""
    from scipy.stats import chisquare

    expected = (mixture.log_probabilities().exp() * len(draws)).numpy()
    observed = np.bincount(draws.numpy(), minlength=mixture.values)
    joined: list[list[float]] = [[0.0, 0.0]]
    for seen, due in zip(observed, expected, strict=True):
        joined[-1][0] += seen
        joined[-1][1] += due
        if joined[-1][1] >= LEAST_EXPECTED:
            joined.append([0.0, 0.0])
    rest = joined.pop()
    joined[-1] = [joined[-1][0] + rest[0], joined[-1][1] + rest[1]]
    found = np.array(joined)
    return float(chisquare(found[:, 0], found[:, 1] * found[:, 0].sum() / found[:, 1].sum()).pvalue)


def as_released(outputs: Tensor, values: int) -> Mixtures:
    """The mixtures that the released sampler draws from, for outputs that were trained as :meth:`Mixtures.of`.

    It reads the third part of the outputs as elu(x) + 1.0001, not as the logarithm of the scale
    (idiap/linear-transformer-experiments@0a54093, image-generation/utils.py).
    """
    scales = F.elu(outputs.chunk(3, dim=-1)[2]) + 1.0001
    return replace(Mixtures.of(outputs, values), log_scales=scales.log())


def apart(outputs: Tensor, values: int) -> Tensor:
    """The total variation distance [...] between the trained distribution and that of the released sampler."""
    p, q = (
        mixture.log_probabilities().exp() for mixture in (Mixtures.of(outputs, values), as_released(outputs, values))
    )
    return 0.5 * (p - q).abs().sum(-1)


@dataclass(frozen=True)
class Samplers:
    """Bits per dimension of held-out images under the trained distribution and under that of the released sampler."""

    trained: float
    released: float
    distance: float  # mean total variation distance between the two, per pixel


@torch.no_grad()
def samplers(model: LanguageModel, pixels: PixelSet, images: int) -> Samplers:
    """Both distributions on ``images`` validation images."""
    head, values = head_of(model), model.config.vocab_size
    sums = np.zeros(3)
    count = 0
    for ids_BN, targets_BN in _batches(pixels, images):
        outputs = head(model.hidden(ids_BN))
        trained, released = Mixtures.of(outputs, values), as_released(outputs, values)
        bits = [-mixture.log_probability(targets_BN).sum().item() / np.log(2) for mixture in (trained, released)]
        sums += np.array([*bits, apart(outputs, values).sum().item()])
        count += targets_BN.numel()
    return Samplers(*(sums / count))


def _batches(pixels: PixelSet, images: int) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in pixels.held_out("validation", images, 4):
        yield batch["input_ids"], batch["targets"]
