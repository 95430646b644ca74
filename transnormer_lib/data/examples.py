"""Labelled sequences of unequal length, not padded; made once, kept as files, read as memory maps.

``stored`` writes what a generator yields, part by part, so a split of any size needs only the memory of one part. Its
files in the cache folder (``data.cache``) are complete or absent. The last one holds the digest of the content; if it
does not match, the split is made again. A lock makes a second process wait for the first one's files. If the folder
cannot be written, the examples stay in memory, and no part is made twice.
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


@dataclass(frozen=True)
class Examples:
    """n labelled sequences, or n labelled pairs of sequences.

    The arrays are read-only. Raises ValueError if they do not fit together, or if a sequence is empty.
    """

    tokens: NDArray[Any]  # all sequences, concatenated; the narrowest integers that hold the vocabulary
    offsets: NDArray[np.int64]  # [S + 1]; sequence i is tokens[offsets[i]:offsets[i + 1]]; S = n, for pairs S = 2n
    labels: NDArray[np.int64]  # [n]

    def __post_init__(self) -> None:
        sequences, n = self.offsets.size - 1, self.labels.size
        if n < 1 or sequences not in (n, 2 * n):
            raise ValueError(f"offsets: mark {sequences} sequences for {n} labels; must be one or two for each label")
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
        """Whether an example is a pair: sequences 2i and 2i + 1."""
        return self.offsets.size - 1 != self.labels.size

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[S]: the number of tokens of each sequence."""
        return np.diff(self.offsets)

    def sequences_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of the sequences of the examples ``index`` [n]: [n], for pairs [2n]."""
        return (2 * index[:, None] + np.arange(2)).reshape(-1) if self.pairs else index

    def sequence(self, index: int) -> NDArray[Any]:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def from_sequences(sequences: Sequence[NDArray[Any]], labels: Iterable[int], vocab_size: int) -> Examples:
    """Examples of these sequences; the two of a pair are neighbours."""
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
    """The narrowest unsigned integers that hold every id."""
    return np.min_scalar_type(vocab_size - 1)


def stored(name: str, key: str, make: Callable[[], Iterable[Examples]]) -> tuple[Examples, str]:
    """The parts that ``make`` yields, joined, and the sha256 (hex) of their content; from the cache if they are there.

    ``key`` (``cache.key``) identifies the content; ``name`` makes the folder's name readable. ``make`` is called at
    most once, and its exceptions propagate.
    """
    folder = cache.cache_dir() / "examples" / f"{name}-{key}"
    if found := _read(folder):
        return found
    lock = _lock(folder)
    with lock or nullcontext():
        if found := _read(folder):  # made while this process waited
            return found
        parts = iter(make())
        if lock is None:
            return _in_memory(parts)
        for left in folder.glob(".*"):
            left.unlink(missing_ok=True)  # from a killed process: a live one would hold the lock
        try:
            return _write(folder, parts)
        except _Unwritten as problem:
            return _in_memory([*problem.args, *parts])


class _Unwritten(Exception):
    """The folder cannot be written; the arguments are the parts made so far."""


def _lock(folder: Path) -> AbstractContextManager[object] | None:
    """Create the folder and take its lock; None if the folder cannot be written."""
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_name(folder.name + ".lock")).acquire()
    except (OSError, NotImplementedError):  # NotImplementedError: a file system without locks
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
                raise _Unwritten(*before, part) from None
            offsets.append(part.offsets[1:] + last)
            labels.append(part.labels)
            last, dtype = int(offsets[-1][-1]), part.tokens.dtype
        if not labels:
            raise ValueError("parts: no examples were made")
    try:
        for name, array in (("offsets", np.concatenate(offsets)), ("labels", np.concatenate(labels))):
            with replacing(folder / f"{name}.npy") as partial, partial.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        whole = _mapped(folder, dtype.name)
        digest = _digest(whole)
        write_text(folder / "content.json", json.dumps({"dtype": dtype.name, "digest": digest}))
        return whole, digest
    except OSError:
        raise _Unwritten(_read_back(folder / "tokens.bin", dtype, offsets, labels)) from None


def _append(path: Path, tokens: NDArray[Any]) -> None:
    with path.open("ab") as file:
        tokens.tofile(file)


def _read_back(
    path: Path, dtype: np.dtype[Any], offsets: list[NDArray[np.int64]], labels: list[NDArray[np.int64]]
) -> Examples:
    """The examples whose tokens were written, in memory."""
    tokens = np.fromfile(path, dtype, count=int(offsets[-1][-1]))
    return Examples(tokens, np.concatenate(offsets), np.concatenate(labels))


def _in_memory(parts: Iterable[Examples]) -> tuple[Examples, str]:
    whole = joined(list(parts))
    return whole, _digest(whole)


def _read(folder: Path) -> tuple[Examples, str] | None:
    """The content of the folder; None if it is incomplete or does not match its digest."""
    try:
        about = json.loads((folder / "content.json").read_bytes())
        found = _mapped(folder, about["dtype"])
        return (found, about["digest"]) if _digest(found) == about["digest"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mapped(folder: Path, dtype: str) -> Examples:
    tokens = np.memmap(folder / "tokens.bin", np.dtype(dtype), "r")
    return Examples(tokens, np.load(folder / "offsets.npy"), np.load(folder / "labels.npy"))


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


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in (examples.tokens, examples.offsets, examples.labels):
        digest.update(f"{array.dtype.name} {array.size};".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B"))
    return digest.hexdigest()
