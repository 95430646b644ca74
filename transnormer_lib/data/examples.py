"""Labelled sequences of unequal length, not padded; made once, kept as files, read as memory maps.

``stored`` writes what a generator yields, part by part, so a split of any size needs only the memory of one part. Its
files in the cache folder (``data.cache``) are complete or absent. The last one holds the digest of the content; if it
does not match, the split is made again. A lock makes a second process wait for the first one's files. If the folder
cannot be written, the examples stay in memory, and no part is made twice.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import cache
from transnormer_lib.exhausted import writing
from transnormer_lib.files import replacing, write_text

START, END = 1, 2  # bits of ``Passages.marks``


@dataclass(frozen=True)
class Passages:
    """The spans of n examples and what they are spans of; an example's sequences are windows of one passage."""

    places: NDArray[np.int32]  # [T]: the character of the passage that a token is part of; -1 outside it
    marks: NDArray[np.uint8]  # [T]: START, END or their sum where the right span starts and ends, else 0
    texts: tuple[tuple[str, ...], ...]  # [n]: the question, the passage, its reference answers


@dataclass(frozen=True)
class Examples:
    """n labelled sequences, n labelled pairs of sequences, or n labelled groups of them.

    The arrays are read-only. Raises ValueError if they do not fit together, or if a sequence is empty.
    """

    tokens: NDArray[Any]  # all sequences, concatenated; the narrowest integers that hold the vocabulary
    offsets: NDArray[np.int64]  # [S + 1]; sequence i is tokens[offsets[i]:offsets[i + 1]]; S = n, for pairs S = 2n
    labels: NDArray[np.int64]  # [n]; of spans the first marked window
    groups: NDArray[np.int64] | None = None  # [n + 1]; example i is the sequences groups[i] to groups[i + 1] - 1
    passages: Passages | None = None  # of spans

    def __post_init__(self) -> None:
        sequences, n = self.offsets.size - 1, self.labels.size
        if self.groups is not None:
            if n < 1 or self.groups.size != n + 1 or self.groups[0] != 0 or self.groups[-1] != sequences:
                raise ValueError(f"groups: must run from 0 to the {sequences} sequences, for {n} labels")
            if (np.diff(self.groups) < 1).any():
                raise ValueError(f"groups: example {np.diff(self.groups).argmin()} has no sequence")
        elif n < 1 or sequences not in (n, 2 * n):
            raise ValueError(f"offsets: mark {sequences} sequences for {n} labels; must be one or two for each label")
        if self.passages is not None:
            sizes = self.passages.places.size, self.passages.marks.size, len(self.passages.texts)
            if sizes != (self.tokens.size, self.tokens.size, n):
                raise ValueError(
                    f"passages: must have a place and a mark for each of {self.tokens.size} tokens, and {n} texts"
                )
        if self.offsets[0] != 0 or self.offsets[-1] != self.tokens.size:
            raise ValueError(f"offsets: must run from 0 to the {self.tokens.size} tokens")
        empty = np.flatnonzero(np.diff(self.offsets) < 1)
        if empty.size:
            example = empty[0] * n // sequences
            if self.groups is not None:
                example = np.searchsorted(self.groups, empty[0], side="right") - 1
            raise ValueError(f"offsets: sequence {empty[0]} of example {example} has no token")
        for array in _arrays(self).values():
            array.flags.writeable = False

    def __len__(self) -> int:
        return self.labels.size

    @property
    def pairs(self) -> bool:
        """Whether an example is a pair: sequences 2i and 2i + 1."""
        return self.groups is None and self.offsets.size - 1 != self.labels.size

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n]: the number of sequences of each example."""
        return np.full(len(self), 1 + self.pairs) if self.groups is None else np.diff(self.groups)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[S]: the number of tokens of each sequence."""
        return np.diff(self.offsets)

    def sequences_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of the sequences of the examples ``index`` [n]: [n], for pairs [2n], for groups their sum."""
        if self.groups is not None:
            return np.concatenate([np.arange(self.groups[i], self.groups[i + 1]) for i in index.tolist()])
        return (2 * index[:, None] + np.arange(2)).reshape(-1) if self.pairs else index

    def sequence(self, index: int) -> NDArray[Any]:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def from_sequences(sequences: Sequence[NDArray[Any]], labels: Iterable[int], vocab_size: int) -> Examples:
    """Examples of these sequences; the two of a pair are neighbours."""
    lengths = np.array([0, *(len(sequence) for sequence in sequences)], np.int64)
    dtype = narrowest(vocab_size)
    tokens = np.concatenate([np.empty(0, dtype), *(np.asarray(sequence, dtype) for sequence in sequences)])
    return Examples(tokens, lengths.cumsum(), np.array(list(labels), np.int64))


def from_groups(groups: Sequence[Sequence[NDArray[Any]]], labels: NDArray[np.int64], vocab_size: int) -> Examples:
    """Examples of these groups of sequences."""
    flat = from_sequences(
        [sequence for group in groups for sequence in group], range(sum(map(len, groups))), vocab_size
    )
    sizes = np.array([0, *map(len, groups)], np.int64)
    return Examples(flat.tokens, flat.offsets, labels, sizes.cumsum())


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


class _Rest(NamedTuple):
    """A part without its tokens."""

    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]
    sizes: NDArray[np.int64] | None  # of groups
    passages: Passages | None


def _rest(part: Examples) -> _Rest:
    return _Rest(part.lengths, part.labels, None if part.groups is None else part.sizes, part.passages)


def _whole(tokens: NDArray[Any], rests: Sequence[_Rest]) -> Examples:
    """The examples of all parts, whose tokens are ``tokens``."""
    sizes = [rest.sizes for rest in rests if rest.sizes is not None]
    passages = [rest.passages for rest in rests if rest.passages is not None]
    places, marks = [one.places for one in passages], [one.marks for one in passages]
    return Examples(
        tokens,
        np.concatenate([[0], *(rest.lengths for rest in rests)]).cumsum(),
        np.concatenate([rest.labels for rest in rests]),
        np.concatenate([[0], *sizes]).cumsum() if sizes else None,
        Passages(np.concatenate(places), np.concatenate(marks), tuple(of for one in passages for of in one.texts))
        if passages
        else None,
    )


def _arrays(examples: Examples) -> dict[str, NDArray[Any]]:
    """All arrays by the names of their files."""
    arrays = {"tokens": examples.tokens, "offsets": examples.offsets, "labels": examples.labels}
    if examples.groups is not None:
        arrays["groups"] = examples.groups
    if examples.passages is not None:
        arrays |= {"places": examples.passages.places, "marks": examples.passages.marks}
    return arrays


def _write(folder: Path, parts: Iterator[Examples]) -> tuple[Examples, str]:
    rests: list[_Rest] = []
    with replacing(folder / "tokens.bin") as partial:
        for part in parts:
            try:
                with writing(folder):
                    _append(partial, part.tokens)
            except OSError as problem:
                cache.tell_if_full(problem)
                before = [_read_back(partial, part.tokens.dtype, rests)] if rests else []
                raise _Unwritten(*before, part) from None
            rests.append(_rest(part))
            dtype = part.tokens.dtype
        if not rests:
            raise ValueError("parts: no examples were made")
    try:
        whole = _whole(np.memmap(folder / "tokens.bin", dtype, "r"), rests)
        arrays = _arrays(whole)
        del arrays["tokens"]
        for name, array in arrays.items():
            with replacing(folder / f"{name}.npy") as partial, partial.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        if whole.passages is not None:
            write_text(folder / "texts.json", json.dumps(whole.passages.texts))
        digest = _digest(whole)
        about = {"dtype": dtype.name, "arrays": list(arrays), "digest": digest}
        write_text(folder / "content.json", json.dumps(about))
        return whole, digest
    except OSError as problem:
        cache.tell_if_full(problem)
        back = _read_back(folder / "tokens.bin", dtype, rests)
        shutil.rmtree(folder, ignore_errors=True)
        raise _Unwritten(back) from None


def _append(path: Path, tokens: NDArray[Any]) -> None:
    with path.open("ab") as file:
        tokens.tofile(file)


def _read_back(path: Path, dtype: np.dtype[Any], rests: Sequence[_Rest]) -> Examples:
    """The examples whose tokens were written, in memory."""
    return _whole(np.fromfile(path, dtype, count=sum(int(rest.lengths.sum()) for rest in rests)), rests)


def _in_memory(parts: Iterable[Examples]) -> tuple[Examples, str]:
    whole = joined(list(parts))
    return whole, _digest(whole)


def _read(folder: Path) -> tuple[Examples, str] | None:
    """The content of the folder; None if it is incomplete, or does not match its digest, which is said."""
    if not (folder / "content.json").is_file():
        return None
    try:
        about = json.loads((folder / "content.json").read_bytes())
        found = _mapped(folder, about["dtype"], about["arrays"])
        if _digest(found) == about["digest"]:
            return found, about["digest"]
    except Exception:  # numpy parses the header of a damaged array as Python, which may raise anything
        pass
    cache.tell_damaged(folder)
    return None


def _mapped(folder: Path, dtype: str, names: Sequence[str]) -> Examples:
    kind = np.dtype(dtype)
    if kind.kind not in "iu":  # objects would be read as addresses in memory
        raise ValueError(f"dtype={dtype!r}: tokens are whole numbers")
    arrays = {}
    for name in names:
        with (folder / f"{name}.npy").open("rb") as file:
            arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    passages = None
    if "places" in arrays:
        texts = json.loads((folder / "texts.json").read_bytes())
        passages = Passages(arrays["places"], arrays["marks"], tuple(map(tuple, texts)))
    tokens = np.memmap(folder / "tokens.bin", kind, "r")
    return Examples(tokens, arrays["offsets"], arrays["labels"], arrays.get("groups"), passages)


def joined(parts: list[Examples]) -> Examples:
    """The examples of all parts, in memory."""
    if not parts:
        raise ValueError("parts: no examples were made")
    return _whole(np.concatenate([part.tokens for part in parts]), [_rest(part) for part in parts])


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in _arrays(examples).values():
        digest.update(f"{array.dtype.name} {array.size};".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B"))
    if examples.passages is not None:
        digest.update(json.dumps(examples.passages.texts).encode())
    return digest.hexdigest()
