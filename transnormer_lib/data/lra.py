"""The five tasks of the Long Range Arena (Tay et al., 2021), Text with a validation of its own, and two stand-ins.

| task | an example | splits: train / validation / test | from |
|---|---|---|---|
| listops | nested operations on digits, up to 2,000 symbols; 10 results | 96,000 / 2,000 / 2,000 | generated |
| text | a film review, 4,000 bytes; 2 | 25,000 / the test split / 25,000 | IMDb |
| text-holdout | the same | nine tenths of train / one tenth of it / 25,000 | IMDb |
| retrieval | two papers, 4,000 bytes each; does one cite the other? | 147,086 / 18,090 / 17,437 | AAN |
| pathfinder | 32 × 32 pixels: are the two markers on one snake? | 160,000 / 20,000 / 20,000 | generated |
| image | 32 × 32 pixels of grey; 10 | 45,000 / 5,000 / 10,000 | CIFAR-10 |
| digits | 28 × 28 pixels; 10 | 4,000 / 500 / 500 | MNIST-5k, a stand-in |
| digits-7 | the same at a quarter of the resolution in 8 greys, 7 × 7 pixels | the same | MNIST-5k, a stand-in |

``text`` selects on its test split, as the published task does; ``text-holdout`` does not, and keeps reviews that occur
more than once on one side. A pixel's id is its grey value plus one: 0 is the pad, and no pixel. Which rows of
CIFAR-10's train split are held out is fixed here, since the original took the last tenth in the order of another
library's files.
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
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.task_kinds import SplitReader, TaskDefinition, chosen_rows, generator
from transnormer_lib.data.task_tables import labels_of, table_reader, text_rows

if TYPE_CHECKING:
    import pyarrow as pa

GREYS = 256
PIXEL_IDS = GREYS + 1
LISTOPS_IDS = 16  # pad, ten digits, four operators, the closing bracket
TEXT_BYTES = 4000
LISTOPS_COUNTS = {"train": 96_000, "validation": 2_000, "test": 2_000}
PATHFINDER_COUNTS = {"train": 160_000, "validation": 20_000, "test": 20_000}
_SEEDS = {"train": 1, "validation": 2, "test": 3}  # of the generated splits
_HELD_OUT = 10  # one row of so many
_IMDB, _AAN, _CIFAR = "stanfordnlp/imdb/plain_text", "OpenNLPLab/lra/aan", "uoft-cs/cifar10/plain_text"


def _listops(split: str, limit: int | None) -> SplitReader:
    from transnormer_lib.data import listops

    count = min(limit or LISTOPS_COUNTS[split], LISTOPS_COUNTS[split])
    return SplitReader(
        lambda: listops.parts(count, _SEEDS[split]), _identity(listops.__file__, split, count), "generated"
    )


def _pathfinder(split: str, limit: int | None) -> SplitReader:
    from transnormer_lib.data import pathfinder

    count = min(limit or PATHFINDER_COUNTS[split], PATHFINDER_COUNTS[split])

    def parts() -> Iterator[Examples]:
        for images, labels in pathfinder.parts(count, _SEEDS[split]):
            yield _pixels(images, labels)

    return SplitReader(parts, _identity(pathfinder.__file__, split, count), "generated")


def _identity(generator_file: str, split: str, count: int) -> str:
    """Of a generated split: the code that decides it, its seed and its size."""
    code = [cache.code_version(file) for file in (generator_file, chunks.__file__, __file__)]
    return cache.key(*code, _SEEDS[split], count)


def _digits(side: int, greys: int) -> Callable[[str, int | None], SplitReader]:
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


def _image(split: str, limit: int | None) -> SplitReader:
    pick = partial(_picked, split=split, task="image", held_out=_shuffled, limit=limit)
    return table_reader(_CIFAR, "test" if split == "test" else "train", ("img",), _pictures, __file__, pick)


def _text(held_out: bool) -> Callable[[str, int | None], SplitReader]:
    def read(split: str, limit: int | None) -> SplitReader:
        ranks = _by_review if held_out else None
        pick = partial(_picked, split=split, task="text-holdout" if held_out else "text", held_out=ranks, limit=limit)
        return table_reader(_IMDB, "test" if split == "test" else "train", ("text",), text_rows, __file__, pick)

    return read


def _retrieval(split: str, limit: int | None) -> SplitReader:
    pick = partial(_picked, split=split, task="retrieval", held_out=None, limit=limit)
    return table_reader(_AAN, split, ("text1", "text2"), text_rows, __file__, pick)


def grey(encoded: bytes) -> NDArray[np.uint8]:
    """The grey values [height, width] of an encoded picture: 0.299 red + 0.587 green + 0.114 blue (ITU-R 601)."""
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


def _picked(
    total: int, split: str, task: str, held_out: Callable[[int], NDArray[np.int64]] | None, limit: int | None
) -> NDArray[np.int64]:
    """The rows of a table of ``total`` that are the split's: all, or where validation is held out its part of train.

    ``held_out`` ranks the rows [total] from 0 on; one row in ten is held out, the lowest ranks, and rows of one rank
    stay together.
    """
    rows = np.arange(total)
    if held_out is not None and split != "test":
        if total < _HELD_OUT:
            raise DataFault(
                f"task {task!r}: split 'train' of its table has {total} rows, expected at least {_HELD_OUT}: one in "
                f"{_HELD_OUT} is held out for validation"
            )
        ranks = held_out(total)
        of_rank = np.bincount(ranks)
        apart = (of_rank.cumsum() - of_rank < total // _HELD_OUT)[ranks]
        rows = np.flatnonzero(apart if split == "validation" else ~apart)
    return rows[chosen_rows(rows.size, limit, f"{task} {split}")]


def _shuffled(total: int) -> NDArray[np.int64]:
    return np.argsort(generator("held out", "image").permutation(total))


def _by_review(total: int) -> NDArray[np.int64]:
    """Reviews ranked by the sha256 of their text, so that equal ones have one rank."""
    texts = (text for batch in sources.batches(_IMDB, "train", ["text"]) for text in batch.column("text").to_pylist())
    digests = np.array([hashlib.sha256(text.strip().encode()).hexdigest() for text in texts])
    return np.unique(digests, return_inverse=True)[1]


TASKS = (
    TaskDefinition("listops", "ListOps", _listops, 10, 2000, alphabet="symbols", symbols=LISTOPS_IDS),
    TaskDefinition(
        "text",
        "Text: IMDb in bytes",
        _text(held_out=False),
        2,
        TEXT_BYTES,
        _IMDB,
        splits=("train", "test"),
        aliases={"validation": "test"},
        alphabet="bytes",
    ),
    TaskDefinition(
        "text-holdout",
        "Text: IMDb in bytes, validation held out",
        _text(held_out=True),
        2,
        TEXT_BYTES,
        _IMDB,
        alphabet="bytes",
    ),
    TaskDefinition(
        "retrieval", "Retrieval: AAN in bytes", _retrieval, 2, TEXT_BYTES, _AAN, pairs=True, alphabet="bytes"
    ),
    TaskDefinition("pathfinder", "Pathfinder-32", _pathfinder, 2, 1024, alphabet="symbols", symbols=PIXEL_IDS),
    TaskDefinition("image", "Image: CIFAR-10 in grey", _image, 10, 1024, _CIFAR, alphabet="symbols", symbols=PIXEL_IDS),
    TaskDefinition(
        "digits",
        "MNIST-5k as pixels",
        _digits(28, GREYS),
        10,
        784,
        "mnist-5k",
        stand_in=True,
        alphabet="symbols",
        symbols=PIXEL_IDS,
    ),
    TaskDefinition(
        "digits-7",
        "MNIST-5k as pixels, 7 × 7 in 8 greys",
        _digits(7, 8),
        10,
        49,
        "mnist-5k",
        stand_in=True,
        alphabet="symbols",
        symbols=8 + 1,
    ),
)
