"""Simple models of pixels, which every trained model should beat: counts, with and without the neighbours.

Shapes: n images, N values each.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.pixels import VALUES, PixelSet

LEVELS = 16  # of a neighbour's value, of 256; one more stands for no neighbour
STRENGTHS = (0.5, 2.0, 8.0, 32.0)  # pseudo-counts of the coarser model
POSITIONS, LEFT, LEFT_UP = "histogram of each position", "left neighbour", "left and upper neighbour"


def baselines(pixels: PixelSet, split: str = "validation", count: int | None = None) -> dict[str, float]:
    """Bits per dimension on ``count`` images of ``split``, those on which a model is measured, of

    - ``histogram of each position``: how often a position had each value in training;
    - ``left neighbour``: how often a value followed one of the 16 levels of the value before it;
    - ``left and upper neighbour``: the same of two neighbours, a model of order two.

    Each is smoothed by the one that knows less, down to the histogram of all values and to equal shares. The strength
    of the smoothing is the best for the measured images, which makes the floor harder to beat. The first value of an
    image is not counted, as no model predicts it.
    """
    train, held = (_Contexts(images, pixels.shape) for images in (
        pixels.images["train"], pixels.images[split][pixels.spread(split, count)]
    ))  # fmt: skip
    return {name: min(_bits(train, held, chain, s) for s in STRENGTHS) for name, chain in _CHAINS.items()}


def strongest(bits: Mapping[str, float]) -> tuple[str, float]:
    """The baseline with the fewest bits: its name and its bits."""
    name = min(bits, key=lambda one: bits[one])
    return name, bits[name]


class _Contexts:
    """What each simple model sees of every value but the first of the images [n, N], as a number."""

    def __init__(self, images: NDArray[np.uint8], shape: tuple[int, int, int]) -> None:
        n, (height, width, channels) = len(images), shape
        levels = 1 + images.reshape(n, height, width, channels).astype(np.int64) // (VALUES // LEVELS)
        left, up = np.zeros_like(levels), np.zeros_like(levels)
        left[:, :, 1:], up[:, 1:] = levels[:, :, :-1], levels[:, :-1]
        places = np.broadcast_to(np.arange(images.shape[1]), images.shape)
        flat = {"all": 0 * places, "position": places, "left": left, "left and up": left * (LEVELS + 1) + up}
        self.values = images[:, 1:].ravel().astype(np.int64)
        self.of = {name: context.reshape(n, -1)[:, 1:].ravel() for name, context in flat.items()}
        self.sizes = {"all": 1, "position": images.shape[1], "left": LEVELS + 1, "left and up": (LEVELS + 1) ** 2}


# From the coarsest to the finest; a context's number divided by the ratio of the sizes is that of the coarser one.
_CHAINS = {POSITIONS: ("all", "position"), LEFT: ("all", "left"), LEFT_UP: ("all", "left", "left and up")}


def _bits(train: _Contexts, held: _Contexts, chain: tuple[str, ...], strength: float) -> float:
    shares = np.full((1, VALUES), 1.0 / VALUES)
    for name in chain:
        size = train.sizes[name]
        counts = np.bincount(train.of[name] * VALUES + train.values, minlength=size * VALUES).reshape(size, VALUES)
        coarser = shares[np.arange(size) * len(shares) // size]
        shares = (counts + strength * coarser) / (counts.sum(1, keepdims=True) + strength)
    return float(-np.log2(shares[held.of[chain[-1]], held.values]).mean())
