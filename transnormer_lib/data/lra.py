"""The five tasks of the Long Range Arena (Tay et al., 2021), Text with a validation set of its own, and two stand-ins.

| task | an example | splits: train / validation / test | from |
|---|---|---|---|
| listops | nested operations on digits, up to 2,000 symbols; 10 results | 96,000 / 2,000 / 2,000 | generated |
| trees-512 | the same trees with 21 to 511 symbols; 10 | the same | generated, a stand-in |
| text | a film review, 4,000 bytes; 2 | 25,000 / the test split / 25,000 | IMDb |
| text-holdout | the same | nine tenths of train / one tenth of it / 25,000 | IMDb |
| retrieval | two papers, 4,000 bytes each; does one cite the other? | 147,086 / 18,090 / 17,437 | AAN |
| pathfinder | 32 × 32 pixels: are the two markers on one snake? | 160,000 / 20,000 / 20,000 | generated |
| image | 32 × 32 pixels of grey; 10 | 45,000 / 5,000 / 10,000 | CIFAR-10 |
| digits | 28 × 28 pixels; 10 | 4,000 / 500 / 500 | MNIST-5k, a stand-in |
| digits-7 | the same at a quarter of the resolution in 8 greys, 7 × 7 pixels | the same | MNIST-5k, a stand-in |

``text`` selects on its test split, as the published task does. ``text-holdout`` does not, and keeps copies of a review
in one split. A pixel's id is its grey value plus one, because 0 is the pad. The choice of CIFAR-10's held-out rows is
fixed here, because the original's (the last tenth) depends on the order of another library's files.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import cache, chunks, sources
from transnormer_lib.data.examples import Examples, from_rows
from transnormer_lib.data.task_kinds import Read, SplitReader, TaskDefinition, chosen_rows, generator
from transnormer_lib.data.task_tables import labels_of, table_reader

if TYPE_CHECKING:
    import pyarrow as pa

    from transnormer_lib.data.listops import TreeConfig

GREYS = 256
PIXEL_IDS = GREYS + 1
LISTOPS_IDS = 16  # pad, ten digits, four operators, the closing bracket
TEXT_BYTES = 4000
LISTOPS_COUNTS = {"train": 96_000, "validation": 2_000, "test": 2_000}
PATHFINDER_COUNTS = {"train": 160_000, "validation": 20_000, "test": 20_000}
_SEEDS = {"train": 1, "validation": 2, "test": 3}  # of the generated splits
_IMDB, _AAN, _CIFAR = "stanfordnlp/imdb/plain_text", "OpenNLPLab/lra/aan", "uoft-cs/cifar10/plain_text"


def _listops(*window: int) -> Read:
    """Trees longer than the first and shorter than the second length of ``window``; the arena's if it is empty."""

    def read(split: str, limit: int | None) -> SplitReader:
        from transnormer_lib.data import listops

        config = listops.TreeConfig(*window)
        return _generated(listops.__file__, partial(_trees, config), LISTOPS_COUNTS, split, limit, *window)

    return read


def _trees(config: "TreeConfig", count: int, seed: int) -> Iterator[Examples]:
    from transnormer_lib.data import listops

    return listops.parts(count, seed, config)


def _pathfinder(split: str, limit: int | None) -> SplitReader:
    from transnormer_lib.data import pathfinder

    def parts(count: int, seed: int) -> Iterator[Examples]:
        return (_pixels(images, labels) for images, labels in pathfinder.parts(count, seed))

    return _generated(pathfinder.__file__, parts, PATHFINDER_COUNTS, split, limit)


def _generated(
    file: str,
    parts: Callable[[int, int], Iterator[Examples]],
    counts: dict[str, int],
    split: str,
    limit: int | None,
    *options: int,
) -> SplitReader:
    """A split made by the code in ``file``; its identity is that code, its seed, its size and the options."""
    count = min(limit or counts[split], counts[split])
    code = [cache.code_version(path) for path in (file, chunks.__file__, __file__)]
    key = cache.key(*code, _SEEDS[split], count, *options)
    return SplitReader(partial(parts, count, _SEEDS[split]), key, "generated")


def _digits(side: int, greys: int) -> Read:
    def read(split: str, limit: int | None) -> SplitReader:
        from transnormer_lib.data.images import load_mnist

        mnist = load_mnist()
        index = mnist.splits[split]
        index = index[chosen_rows(index.size, limit, f"digits {split}")]
        identity = cache.key(mnist.fingerprint, cache.code_version(__file__), side, greys)

        def parts() -> list[Examples]:
            images = shrunk(mnist.images[index], side) // (GREYS // greys)
            return [_pixels(images, mnist.labels[index], greys)]

        return SplitReader(parts, identity, "embedded")

    return read


def grey(encoded: bytes) -> NDArray[np.uint8]:
    """The grey values [height, width] of an encoded image: 0.299 red + 0.587 green + 0.114 blue (ITU-R 601)."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as picture:
        return np.asarray(picture.convert("L"))


def shrunk(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Square images [n, M, M] as [n, side, side]: means over square blocks, rounded. ``side`` divides M."""
    size = images.shape[1] // side
    blocks = images.reshape(len(images), side, size, side, size).astype(np.float64)
    return blocks.mean(axis=(2, 4)).round().astype(np.uint8)


def _pixels(images: NDArray[Any], labels: NDArray[Any], greys: int = GREYS) -> Examples:
    return from_rows(images.reshape(len(images), -1).astype(np.int64) + 1, labels, greys + 1)


def _pictures(batch: "pa.RecordBatch") -> Examples:
    return _pixels(np.stack([grey(picture["bytes"]) for picture in batch.column("img").to_pylist()]), labels_of(batch))


def _shuffled(total: int) -> NDArray[np.int64]:
    return np.argsort(generator("held out", "image").permutation(total))


def _by_review(total: int) -> NDArray[np.int64]:
    """Reviews ranked by the sha256 of their text, so that equal ones share a rank."""
    texts = (text for batch in sources.batches(_IMDB, "train", ["text"]) for text in batch.column("text").to_pylist())
    digests = np.array([hashlib.sha256(text.strip().encode()).hexdigest() for text in texts])
    return np.unique(digests, return_inverse=True)[1]


_text = table_reader("text", _IMDB, ("text",), __file__)
_text_holdout = table_reader("text-holdout", _IMDB, ("text",), __file__, held_out=_by_review)
_retrieval = table_reader("retrieval", _AAN, ("text1", "text2"), __file__)
_image = table_reader("image", _CIFAR, ("img",), __file__, made_of=_pictures, held_out=_shuffled)

_bytes = partial(TaskDefinition, classes=2, length=TEXT_BYTES, alphabet="bytes")
_symbols = partial(TaskDefinition, alphabet="symbols")
_stand_in = partial(_symbols, classes=10, source="mnist-5k", stand_in=True)
TASKS = (
    _symbols("listops", "ListOps", _listops(), classes=10, length=2000, symbols=LISTOPS_IDS),
    _symbols(
        "trees-512",
        "Trees of operations on digits, 21 to 511 symbols",
        _listops(20, 512),
        classes=10,
        length=512,
        symbols=LISTOPS_IDS,
        stand_in=True,
    ),
    _bytes(
        "text", "Text: IMDb in bytes", _text, source=_IMDB, splits=("train", "test"), aliases={"validation": "test"}
    ),
    _bytes("text-holdout", "Text: IMDb in bytes, validation held out", _text_holdout, source=_IMDB),
    _bytes("retrieval", "Retrieval: AAN in bytes", _retrieval, source=_AAN, pairs=True),
    _symbols("pathfinder", "Pathfinder-32", _pathfinder, classes=2, length=1024, symbols=PIXEL_IDS),
    _symbols("image", "Image: CIFAR-10 in grey", _image, classes=10, length=1024, source=_CIFAR, symbols=PIXEL_IDS),
    _stand_in("digits", "MNIST-5k as pixels", _digits(28, GREYS), length=784, symbols=PIXEL_IDS),
    _stand_in("digits-7", "MNIST-5k as pixels, 7 × 7 in 8 greys", _digits(7, 8), length=49, symbols=8 + 1),
)
