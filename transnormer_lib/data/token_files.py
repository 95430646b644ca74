"""Texts larger than memory, tokenised once into memory-mapped files.

A split becomes one file of int32 in the cache. Batches of lines are read in order, tokenised in threads (Arrow and
``tokenizers`` release Python's lock) and written in order. At most two batches per thread are in memory, whatever the
size of the text. The file is renamed when complete, so an interrupted process leaves no partial result. A lock makes a
second process wait for the first one's file instead of making its own.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from transnormer_lib import progress, sums
from transnormer_lib.data import cache, chunks
from transnormer_lib.data.faults import DataFault
from transnormer_lib.data.text import SplitCounts
from transnormer_lib.data.vocabulary import Tokens
from transnormer_lib.data.words import split_words
from transnormer_lib.files import replacing, write_text

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
_MOST_THREADS = 8  # each holds two batches, some tens of megabytes; more threads would wait for the writer
_TITLE = r"^ ?= [^=\s](?:.*[^=\s])? = ?\n?$"  # a heading of the first level begins an article


@dataclass(frozen=True)
class Tally(SplitCounts):
    """The counts of a tokenised text, whose documents begin at the headings of the first level."""

    lines: int


def whole_lines(lines: "pa.Array") -> "pa.Array":
    """The lines, with `` \\n`` for the blank ones, which are empty in the Hub's copy of WikiText."""
    import pyarrow as pa
    import pyarrow.compute as pc

    blank = pc.equal(pc.utf8_trim_whitespace(lines), "")
    return pc.if_else(blank, pa.scalar(" \n", lines.type), lines)


def token_file(
    name: str,
    digest: str,
    batches: Callable[[], "Iterable[pa.Array]"],
    encode: "Callable[[pa.Array], Tokens]",
    *,
    total: int | None = None,
) -> tuple[Tokens, Tally]:
    """The tokens of all lines, mapped read-only, and their counts; from the cache if they are there.

    ``name`` makes the file's name readable; ``digest`` (see :func:`cache.key`) identifies text and vocabulary.
    ``batches`` returns the lines, from the first one, at each call. ``encode`` gives the ids of one batch of lines, in
    several threads at once. ``total`` is the number of lines, for the progress bar. Raises DataFault if the text has no
    token, OSError if the cache cannot be written, DiskFull if it has no space.
    """
    from filelock import FileLock

    path = cache.cache_dir() / "tokens" / f"{name}-{digest}.int32"
    if done := _open(path):
        return done
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")):
        if done := _open(path):  # made while this process waited
            return done
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink(missing_ok=True)  # from a killed process: a live one would hold the lock
        tally = _write(path, name, batches, encode, total)
        about = sums.sealed({"tally": asdict(tally), "tokens": sums.sha256(path)})
        write_text(_sidecar(path), json.dumps(about) + "\n")
    done = _open(path)
    assert done is not None
    return done


def in_order(function: Callable[[Any], R], items: Iterable[Any], threads: int | None = None) -> Iterator[R]:
    """``function`` of every item, in order, computed in threads; at most two items per thread are in memory."""
    threads = threads or min(chunks.cores(), _MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def bar(items: Iterable[Any], label: str, total: int | None, size: Callable[[Any], int]) -> Iterator[Any]:
    """The items, with a progress bar."""
    with progress.bar(label, total=total, unit=" lines", unit_scale=True) as shown:
        for item in items:
            yield item
            shown.update(size(item))


def _write(
    path: Path,
    name: str,
    batches: Callable[[], "Iterable[pa.Array]"],
    encode: "Callable[[pa.Array], Tokens]",
    total: int | None,
) -> Tally:
    import pyarrow.compute as pc

    def work(lines: Any) -> tuple[Tokens, tuple[int, int, int, int]]:
        tokens = np.ascontiguousarray(encode(lines), np.int32)
        _, counts = split_words(lines)
        titles = pc.sum(pc.match_substring_regex(lines, _TITLE)).as_py() or 0
        size = pc.sum(pc.binary_length(lines)).as_py() or 0
        return tokens, (titles, int(counts.sum()), size, len(lines))

    counted = np.zeros(4, np.int64)
    written = 0
    with replacing(path) as partial, partial.open("wb") as file:
        done = in_order(work, map(whole_lines, batches()))
        for tokens, counts in bar(done, name, total, lambda part: part[1][3]):
            file.write(memoryview(tokens).cast("B"))
            written += tokens.size
            counted += counts
        if not written:
            raise DataFault(f"{name}: has no text, expected at least one line")
        file.flush()
        os.fsync(file.fileno())
    documents, words, size, lines = counted.tolist()
    return Tally(documents, words, size, written, lines)


def _open(path: Path) -> tuple[Tokens, Tally] | None:
    """The file if it is whole: the sidecar is written last, with the digest. What is damaged is named."""
    if not (path.is_file() and _sidecar(path).is_file()):
        return None
    about = sums.read_sealed(_sidecar(path))
    if about is None or sums.sha256(path) != about["tokens"]:
        cache.tell_damaged(path)
        return None
    return np.asarray(np.memmap(path, np.int32, mode="r")), Tally(**about["tally"])


def _sidecar(path: Path) -> Path:
    return path.with_suffix(".json")
