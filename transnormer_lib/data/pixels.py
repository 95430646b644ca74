"""Images as sequences of pixel values, for models that write them pixel by pixel.

A sequence runs through the rows from the top left, in colour through red, green and blue of each pixel. A model reads
all values but the last and predicts all but the first, as in the released code of "Transformers are RNNs": 783 of the
784 values of a digit.

| name | images | train / validation / test | from |
|---|---|---|---|
| mnist-5k | 28 × 28 digits | 4,000 / 500 / 500 | embedded |
| mnist-5k-14 | the same at 14 × 14: means over 2 × 2 pixels, rounded | the same | embedded |
| mnist | 28 × 28 digits | 54,000 / 6,000 / 10,000 | Hub |
| cifar10 | 32 × 32 in colour | 45,000 / 5,000 / 10,000 | Hub |

The Hub's sets have no validation split: a tenth of each label of train is held out, by the sha256 of the image. The
release measured on the test split during training.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transnormer_lib.checks import check_choice, check_count
from transnormer_lib.data import sources
from transnormer_lib.data.batches import Batch, groups
from transnormer_lib.data.images import load_mnist, stratified_split
from transnormer_lib.data.lra import shrunk

VALUES = 256
SPLITS = ("train", "validation", "test")
SHAPES: Mapping[str, tuple[int, int, int]] = {  # height, width, channels
    "mnist-5k": (28, 28, 1),
    "mnist-5k-14": (14, 14, 1),
    "mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
}
_HUB = {"mnist": ("ylecun/mnist/mnist", "image"), "cifar10": ("uoft-cs/cifar10/plain_text", "img")}
_VERSION = 1  # of the rules of this file; another one makes all runs anew


@dataclass(frozen=True)
class PixelSet:
    """Images by split: ``images[split]`` [n, pixels], uint8, and ``labels[split]`` [n]."""

    name: str
    images: Mapping[str, NDArray[np.uint8]]
    labels: Mapping[str, NDArray[np.int64]]
    origin: str  # "embedded", "data root" or "Hub"
    source: str  # fingerprint of what the images were read from
    absent: Mapping[str, str] = field(default_factory=dict)  # no split is ever missing alone

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return SHAPES[self.name]

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, over the source and the rules of this file."""
        return hashlib.sha256(f"{self.source} {self.name} {_VERSION}".encode()).hexdigest()

    def batch(self, split: str, index: NDArray[np.int64]) -> Batch:
        """``{"input_ids": [B, N], "targets": [B, N]}`` of the images ``index`` [B], with N = pixels − 1."""
        rows = torch.from_numpy(self.images[split][index].astype(np.int64))
        return {"input_ids": rows[:, :-1].contiguous(), "targets": rows[:, 1:].contiguous()}

    def spread(self, split: str, count: int | None) -> NDArray[np.int64]:
        """``count`` images of a split, spread evenly over it, or all of them."""
        check_choice("split", split, self.splits)
        total = len(self.images[split])
        if count is not None:
            check_count("count", count)
        return np.arange(total) if count is None or count >= total else np.arange(count) * total // count

    def pool(self, split: str) -> int:
        """The number of images of a split."""
        return len(self.images[split])

    def held_out(self, split: str, count: int | None, batch_size: int) -> Iterator[Batch]:
        """Batches of the images of :meth:`spread`."""
        chosen = self.spread(split, count)
        return (self.batch(split, group) for group in groups(chosen, batch_size))


def length_of(name: str) -> int:
    """The values that a model reads of an image: all but the last. Raises ValueError for an unknown name."""
    check_choice("task_name", name, SHAPES)
    height, width, channels = SHAPES[name]
    return height * width * channels - 1


def load_pixels(name: str) -> PixelSet:
    """The images ``name``. Raises ValueError for an unknown name, DataUnavailable if they are not on this machine."""
    check_choice("task_name", name, SHAPES)
    return _from_hub(name) if name in _HUB else _embedded(name)


@lru_cache(maxsize=2)
def _embedded(name: str) -> PixelSet:
    digits = load_mnist()
    side = SHAPES[name][0]
    images = digits.images if side == 28 else shrunk(digits.images, side)
    index = digits.splits
    return PixelSet(
        name,
        {split: _flat(images[index[split]]) for split in SPLITS},
        {split: digits.labels[index[split]] for split in SPLITS},
        "embedded",
        digits.fingerprint,
    )


@lru_cache(maxsize=1)
def _from_hub(name: str) -> PixelSet:
    dataset, column = _HUB[name]
    located = {split: sources.locate(dataset, split) for split in ("train", "test")}
    read = {split: _read(dataset, split, column, SHAPES[name]) for split in located}
    images, labels = read["train"]
    parts = stratified_split(images, labels)
    train, held = np.sort(np.concatenate([parts["train"], parts["test"]])), parts["validation"]
    return PixelSet(
        name,
        {"train": _flat(images[train]), "validation": _flat(images[held]), "test": _flat(read["test"][0])},
        {"train": labels[train], "validation": labels[held], "test": read["test"][1]},
        located["train"].origin,
        sources.fingerprint("".join(located[split].fingerprint for split in located).encode()),
    )


def _read(
    dataset: str, split: str, column: str, shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from PIL import Image

    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for rows in sources.batches(dataset, split, [column, "label"]):
        for picture in rows.column(column).to_pylist():
            with Image.open(io.BytesIO(picture["bytes"])) as opened:
                images.append(np.asarray(opened.convert("RGB" if shape[2] == 3 else "L"), np.uint8))
        labels += rows.column("label").to_pylist()
    return np.stack(images), np.array(labels, np.int64)


def _flat(images: NDArray[Any]) -> NDArray[np.uint8]:
    flat = np.ascontiguousarray(images.reshape(len(images), -1))
    flat.flags.writeable = False  # every caller in the process shares the arrays
    return flat
