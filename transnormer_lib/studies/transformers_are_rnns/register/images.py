"""Checks on images: the mixture of logistics, its sampler, and the recipe."""

import torch
from torch import Tensor

from transnormer_lib.data.pixels import VALUES
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.logistics import Mixtures
from transnormer_lib.models.pixel_generation import completed, head_of
from transnormer_lib.studies.image_generation.mixtures import apart, as_released
from transnormer_lib.studies.transformers_are_rnns.register.checks import Effect, Found, check, said

_TRAINING_IMAGES = 60_000  # of MNIST
_RELEASED_BATCH, _RELEASED_STEPS = 16, 937_500  # image-generation/run.txt
_SMALL = 1e-5  # probability of a bin below which the release takes the density


def one_logistic(log_scales: Tensor, mean: float = 0.0) -> Tensor:
    """Outputs [n, 3] of one logistic each."""
    return torch.stack([torch.zeros_like(log_scales), torch.full_like(log_scales, mean), log_scales], -1)


def deviation(mixtures: Mixtures) -> Tensor:
    """The standard deviation of a pixel's value under each mixture."""
    p, values = mixtures.log_probabilities().exp(), torch.arange(VALUES, dtype=torch.float64)
    mean = (p * values).sum(-1, keepdim=True)
    return (p * (values - mean).square()).sum(-1).sqrt()


@check("sampler-of-another-scale")
def sampler_of_another_scale() -> Found:
    x = torch.linspace(-7, 6, 131, dtype=torch.float64)
    far = apart(one_logistic(x), VALUES)
    narrow, wide = float(far[x <= -1].max()), float(far[x >= 1].max())
    spread = {
        name: deviation(mixture)[x >= 1]
        for name, mixture in (
            ("trained", Mixtures.of(one_logistic(x), VALUES)),
            ("drawn", as_released(one_logistic(x), VALUES)),
        )
    }
    return Found(
        {
            "largest distance (total variation), log scales from −7 to −1": narrow,
            "largest distance, log scales from 1 to 6": wide,
            "least and largest ratio of their standard deviations there, drawn over trained": [
                float(end) for end in torch.aminmax(spread["drawn"] / spread["trained"])
            ],
        },
        {
            "the narrow logistics of a trained model are drawn almost as trained": narrow < 0.02,
            "wide ones are drawn from another distribution": wide > 0.05,
            "and too narrow, every one": bool((spread["drawn"] < spread["trained"]).all()),
        },
        (Effect("distance of what is drawn from what is trained", 0.0, max(narrow, wide)),),
    )


@check("narrow-bins-by-their-density")
def narrow_bins_by_their_density() -> Found:
    mixtures = Mixtures.of(one_logistic(torch.tensor([-7.0, -6.0, -5.0, -4.0], dtype=torch.float64)), VALUES)
    exact = mixtures.log_probabilities().exp()
    half = 1 / (VALUES - 1)
    y = 2 * half * torch.arange(VALUES, dtype=torch.float64) - 1
    z = (y - mixtures.means) / mixtures.log_scales.exp()
    density = torch.sigmoid(z) * torch.sigmoid(-z) / mixtures.log_scales.exp() * 2 * half
    inner = torch.ones(VALUES, dtype=torch.bool)
    inner[[0, -1]] = False  # the release, too, gives the ends their tails
    released = torch.where((exact < _SMALL) & inner, density, exact)
    ratio = (density / exact)[(exact < _SMALL) & (exact > 0) & inner]
    sums = {"here": (exact.sum(-1) - 1).abs().max(), "released": (released.sum(-1) - 1).abs().max()}
    return Found(
        {
            "largest distance of the sum from one": {name: float(value) for name, value in sums.items()},
            "density times width over the probability, in the bins concerned": [float(ratio.min()), float(ratio.max())],
        },
        {
            "here the values sum to one": float(sums["here"]) < 1e-12,
            "with the density they do not": float(sums["released"]) > 1e-9,
        },
        (Effect("distance of the sum from one", float(sums["here"]), float(sums["released"])),),
    )


@check("last-pixel-of-the-one-before")
def last_pixel() -> Found:
    config = ModelConfig(
        "decoder", vocab_size=VALUES, max_length=12, dim=16, heads=2, attention=("linear",), tied=False, logistics=10
    )
    model = build_model(config, 0).double().eval()
    images, given = 64, 6
    start = torch.randint(VALUES, (images, given), generator=torch.Generator().manual_seed(0))
    written = completed(model, start, 12, torch.Generator().manual_seed(1))
    drawn = {place: last_values(model, written, given, place) for place in (-1, -2)}
    own, before = (float((drawn[place] == written[:, -1]).double().mean()) for place in (-1, -2))
    return Found(
        {
            "share of last values that a draw from their own distribution gives": own,
            "share that one from the distribution of the pixel before gives": before,
        },
        {"ours are drawn from their own": own == 1.0, "the release's draw gives others in many images": before < 0.9},
        (Effect("share of last values that are another's", 1 - own, 1 - before),),
    )


@torch.no_grad()
def last_values(model: LanguageModel, written: Tensor, given: int, place: int) -> Tensor:
    """The last value of each image drawn again, with the random numbers that it was drawn with, from the distribution
    at ``place``: -1 its own, -2 that of the value before it."""
    generator = torch.Generator().manual_seed(1)
    outputs = model.hidden(written[:, :-1])
    for at in range(given - 1, written.shape[1] - 2):  # the draws of the values before it
        head_of(model).mixtures(outputs[:, at]).draw(generator)
    return head_of(model).mixtures(outputs[:, place]).draw(generator)


@check("batches-of-sixteen")
def batches_of_sixteen() -> Found:
    epochs, batch = said("Section 4.2.1", "mnist", "epochs"), said("Section 4.2.1", "mnist", "batch")
    theirs = _RELEASED_BATCH * _RELEASED_STEPS / _TRAINING_IMAGES
    return Found(
        {
            "epochs of the released command": theirs,
            "epochs of its steps in the printed batch": batch * _RELEASED_STEPS / _TRAINING_IMAGES,
        },
        {
            "the released batch and steps are the printed epochs": theirs == epochs,
            "the printed batch with those steps is not": batch * _RELEASED_STEPS / _TRAINING_IMAGES != epochs,
        },
    )
