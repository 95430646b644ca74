"""Labelled sequences of unequal length, nothing padded; made once, kept as files, read as memory maps.

``stored`` writes what a generator yields, part by part, so that a split of any size needs no more memory than one
part. Its files appear in the cache folder (``data.cache``) whole or not at all; the last of them holds the digest of
the content, and what does not match is made again. A lock lets a second process wait for the first one's files instead
of making them again. A folder that cannot be written costs the saved time and memory, and nothing is made twice.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import cache
from transnormer_lib.files import replacing, write_text

_CHUNK = 1 << 24  # bytes hashed at a time


@dataclass(frozen=True)
class Examples:
    """n labelled sequences, or n labelled pairs of sequences.

    The arrays are read-only. Raises ValueError where they do not fit together, or where a sequence is empty.
    """

    tokens: NDArray[Any]  # all sequences one after the other; the narrowest integers that hold the vocabulary
    offsets: NDArray[np.int64]  # [S + 1]; sequence i is tokens[offsets[i]:offsets[i + 1]]; S = n, for pairs S = 2n
    labels: NDArray[np.int64]  # [n]

    def __post_init__(self) -> None:
        sequences, n = self.offsets.size - 1, self.labels.size
        if n < 1 or sequences not in (n, 2 * n):
            raise ValueError(f"offsets: mark {sequences} sequences for {n} labels: must be one or two for each label")
        if self.offsets[0] != 0 or self.offsets[-1] != self.tokens.size:
            raise ValueError(f"offsets: must run from 0 to the {self.tokens.size} tokens")
        empty = np.flatnonzero(np.diff(self.offsets) < 1)
        if empty.size:
            raise ValueError(f"offsets: sequence {empty[0]} of example {empty[0] * n // sequences} has no token")
        for array in (self.tokens, self.offsets, self.labels):
            array.flags.writeable = False

    def __len__(self) -> int:
        return self.labels.size

    @property
    def pairs(self) -> bool:
        """Whether an example is two sequences: a and b of example i are sequences 2i and 2i + 1."""
        return self.offsets.size - 1 != self.labels.size

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[S]: the tokens of each sequence."""
        return np.diff(self.offsets)

    def sequences_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the sequences of the examples ``index`` [n]: [n], of pairs [2n]."""
        return (2 * index[:, None] + np.arange(2)).reshape(-1) if self.pairs else index

    def sequence(self, index: int) -> NDArray[Any]:
        """The tokens of sequence ``index``, one of the S."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def from_sequences(sequences: Sequence[NDArray[Any]], labels: Iterable[int], vocab_size: int) -> Examples:
    """Examples of these sequences (a and b of a pair one after the other)."""
    lengths = np.array([0, *(len(sequence) for sequence in sequences)], np.int64)
    dtype = narrowest(vocab_size)
    tokens = np.concatenate([np.empty(0, dtype), *(np.asarray(sequence, dtype) for sequence in sequences)])
    return Examples(tokens, lengths.cumsum(), np.array(list(labels), np.int64))


def from_rows(rows: NDArray[Any], labels: NDArray[Any], vocab_size: int) -> Examples:
    """Examples of equally long sequences, the rows of an array [n, N]."""
    n, length = rows.shape
    offsets = np.arange(n + 1, dtype=np.int64) * length
    return Examples(rows.astype(narrowest(vocab_size)).reshape(-1), offsets, labels.astype(np.int64))


def narrowest(vocab_size: int) -> np.dtype[Any]:
    """The narrowest unsigned integers that hold every id: a corpus in bytes need not take four of them for each."""
    return np.min_scalar_type(vocab_size - 1)


def stored(name: str, key: str, make: Callable[[], Iterable[Examples]]) -> tuple[Examples, str]:
    """The parts that ``make`` yields as one, and the sha256 (hex) of their content; from the cache where it is there.

    ``name`` is for people who look into the folder; ``key`` (``cache.key``) identifies the content. What ``make``
    raises passes through; it is called once at most.
    """
    folder = cache.cache_dir() / "examples" / f"{name}-{key}"
    found = _read(folder)
    if found is not None:
        return found
    lock = _lock(folder)
    with lock or nullcontext():
        found = _read(folder)  # made while this process waited
        if found is not None:
            return found
        parts = iter(make())
        if lock is None:
            return _in_memory(parts)
        for left in folder.glob(".*"):
            left.unlink(missing_ok=True)  # of a process that was killed: whoever lives holds the lock
        try:
            return _write(folder, parts)
        except _Unwritten as problem:
            return _in_memory([*problem.parts, *parts])


class _Unwritten(Exception):
    """The folder cannot be written, or no further; ``parts`` is what was made so far."""

    def __init__(self, parts: list[Examples]) -> None:
        super().__init__()
        self.parts = parts


def _lock(folder: Path) -> AbstractContextManager[object] | None:
    """The lock of a folder that exists from now on, held; None where there is nowhere to write to."""
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_name(folder.name + ".lock")).acquire()
    except (OSError, NotImplementedError):  # the latter: a file system without locks
        return None


def _write(folder: Path, parts: Iterator[Examples]) -> tuple[Examples, str]:
    offsets: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    labels: list[NDArray[np.int64]] = []
    last = 0
    with replacing(folder / "tokens.bin") as partial:
        for part in parts:
            try:
                _append(partial, part.tokens)
            except OSError:
                before = [_read_back(partial, part.tokens.dtype, offsets, labels)] if labels else []
                raise _Unwritten([*before, part]) from None
            offsets.append(part.offsets[1:] + last)
            labels.append(part.labels)
            last, dtype = int(offsets[-1][-1]), part.tokens.dtype
        if not labels:
            raise ValueError("parts: no examples were made")
    try:
        for name, array in (("offsets", np.concatenate(offsets)), ("labels", np.concatenate(labels))):
            with replacing(folder / f"{name}.npy") as partial, partial.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        arrays = _arrays(folder, dtype)
        digest = _digest(*arrays)
        write_text(folder / "content.json", json.dumps({"dtype": dtype.name, "digest": digest}))
        return Examples(*arrays), digest
    except OSError:
        raise _Unwritten([_read_back(folder / "tokens.bin", dtype, offsets, labels)]) from None


def _append(path: Path, tokens: NDArray[Any]) -> None:
    with path.open("ab") as file:
        tokens.tofile(file)


def _read_back(
    path: Path, dtype: np.dtype[Any], offsets: list[NDArray[np.int64]], labels: list[NDArray[np.int64]]
) -> Examples:
    """The examples whose tokens were written, in memory."""
    return Examples(
        np.fromfile(path, dtype, count=int(offsets[-1][-1])), np.concatenate(offsets), np.concatenate(labels)
    )


def _in_memory(parts: Iterable[Examples]) -> tuple[Examples, str]:
    whole = joined(list(parts))
    return whole, _digest(whole.tokens, whole.offsets, whole.labels)


def _read(folder: Path) -> tuple[Examples, str] | None:
    """What the folder holds; None where that is nothing, or not what was written there."""
    try:
        about = json.loads((folder / "content.json").read_bytes())
        arrays = _arrays(folder, np.dtype(about["dtype"]))
        return (Examples(*arrays), about["digest"]) if _digest(*arrays) == about["digest"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _arrays(folder: Path, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    tokens = np.memmap(folder / "tokens.bin", dtype, "r")
    return tokens, np.load(folder / "offsets.npy"), np.load(folder / "labels.npy")


def joined(parts: list[Examples]) -> Examples:
    """The examples of all parts, in memory."""
    if not parts:
        raise ValueError("parts: no examples were made")
    lengths = np.concatenate([part.lengths for part in parts])
    return Examples(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([[0], lengths]).cumsum(),
        np.concatenate([part.labels for part in parts]),
    )


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.name} {array.size};".encode())
        content = np.ascontiguousarray(array).data.cast("B")
        for start in range(0, len(content), _CHUNK):
            digest.update(content[start : start + _CHUNK])
    return digest.hexdigest()
