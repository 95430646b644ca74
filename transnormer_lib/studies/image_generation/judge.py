"""A classifier of real digits that judges completed ones: is the digit still the one whose upper half was given?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data.pixels import PixelSet


@dataclass(frozen=True)
class Agreement:
    """Shares of images in which a judge sees the true label."""

    real: float  # in the images themselves
    blank: float  # with black in place of the lower half, by the same judge
    upper: float  # from the upper half alone, by a judge that was trained on upper halves

    def shares(self) -> tuple[float, float, float]:
        """The three in this order."""
        return self.real, self.blank, self.upper


class Judge:
    """Support vector classifiers with a radial kernel (scikit-learn), trained on the training images.

    One reads whole images, one their upper halves; neither is tuned. Deterministic.
    """

    def __init__(self, pixels: PixelSet) -> None:
        from sklearn.svm import SVC

        self.given = upper_half(pixels)
        features, labels = _scaled(pixels.images["train"]), pixels.labels["train"]
        self._whole: Any = SVC().fit(features, labels)
        self._upper: Any = SVC().fit(features[:, : self.given], labels)

    def digits(self, images: NDArray[np.integer]) -> NDArray[np.int64]:
        """What the judge of whole images sees in ``images`` [n, N]: labels [n]."""
        seen: NDArray[np.int64] = self._whole.predict(_scaled(images))
        return seen

    def agreement(self, images: NDArray[np.integer], labels: NDArray[np.int64]) -> float:
        """The share of ``images`` [n, N] in which the judge of whole images sees ``labels`` [n]."""
        return float((self.digits(images) == labels).mean())

    def references(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Agreement:
        """What can be seen in the real images, in their upper halves on black, and in upper halves alone."""
        blank = images.copy()
        blank[:, self.given :] = 0
        upper = self._upper.predict(_scaled(images)[:, : self.given]) == labels
        return Agreement(self.agreement(images, labels), self.agreement(blank, labels), float(upper.mean()))


def upper_half(pixels: PixelSet) -> int:
    """The number of values in the upper half of an image."""
    height, width, channels = pixels.shape
    return height // 2 * width * channels


def _scaled(images: NDArray[Any]) -> NDArray[np.float64]:
    return images.astype(np.float64) / 255
