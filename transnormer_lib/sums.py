"""``SHA256SUMS``: the digests of a folder's files, so that damage is noticed (``sha256sum -c SHA256SUMS``).

A digest notices damage and an edit by hand. It does not stop a person who edits a file and its digest; for committed
files git's history shows that.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from transnormer_lib.files import read_object, write_text

FILE = "SHA256SUMS"
FIELD = "sha256"  # of a JSON object: over its other fields


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_values(content: Any) -> str:
    """The digest of plain values as JSON writes and reads them; the order of keys does not count."""
    read = json.loads(json.dumps(content))  # numbers as keys become text, which sorts otherwise
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the digest of its fields."""
    fields = {name: value for name, value in content.items() if name != FIELD}
    return fields | {FIELD: of_values(fields)}


def is_whole(content: Mapping[str, Any]) -> bool:
    """Whether ``content`` is what :func:`sealed` returned."""
    return sealed(content)[FIELD] == content.get(FIELD)


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, with its digest; None if it is missing or not what :func:`sealed` returned."""
    found = read_object(path)
    return found if found is not None and is_whole(found) else None


def lines(pairs: Iterable[tuple[str, str]]) -> str:
    """The file's text, from ``(digest, name)`` pairs."""
    return "".join(f"{digest}  {name}\n" for digest, name in pairs)


def seal(folder: Path, also: Iterable[tuple[str, str]] = (), names: Iterable[str] | None = None) -> None:
    """Write the digests of the files ``names``; by default of every file in ``folder`` and below it, hidden ones too.

    ``also`` holds further ``(digest, name)`` pairs: a file that is about to change may have its new digest.
    """
    if names is None:
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    pairs = [(sha256(folder / name), name) for name in sorted(names) if name != FILE]
    write_text(folder / FILE, lines([*pairs, *also]))


def enter(path: Path) -> None:
    """Write the digest of one file into its folder's ``SHA256SUMS``; the others stay, whether they fit or not."""
    with _alone(path.parent):
        _enter(path)


def _enter(path: Path) -> None:
    others = [(digest, name) for digest, name in _listed(path.parent) if name != path.name]
    _write(path.parent, [*others, (sha256(path), path.name)])


def write(path: Path, text: str) -> bool:
    """Write ``text`` to ``path`` and enter it, unless it is there already; returns whether anything was written.

    At every moment the file is listed, as it was or as it is going to be.
    """
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if path.exists() and sha256(path) == digest and not damage(path):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent):
        _write(path.parent, [*_listed(path.parent), (digest, path.name)])
        write_text(path, text)
        _enter(path)
    return True


def _alone(folder: Path) -> AbstractContextManager[object]:
    """The lock of a folder's digests, so that of two processes neither loses an entry of the other.

    Its file is beside the folder, since what is in it is listed. The lock of a killed process is released.
    """
    from filelock import FileLock

    return FileLock(folder.with_name(f".{folder.name}.sums.lock"))


def _listed(folder: Path) -> list[tuple[str, str]]:
    try:
        return read(folder)
    except ValueError:  # a file that is no longer listed counts as damaged
        return []


def _write(folder: Path, pairs: Iterable[tuple[str, str]]) -> None:
    write_text(folder / FILE, lines(sorted(pairs, key=lambda pair: pair[1])))


def read(folder: Path) -> list[tuple[str, str]]:
    """The recorded ``(digest, name)`` pairs; raises ValueError if they cannot be read or name a file elsewhere."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise ValueError(f"{FILE} cannot be read") from None
    pairs = [(digest, name) for digest, _, name in (line.partition("  ") for line in text.splitlines())]
    for _, name in pairs:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{FILE} names {name!r}, which is not in its folder")
    return pairs


def check(folder: Path, needed: Iterable[str] = ()) -> None:
    """Raise ValueError, naming the file and the damage, unless every file is what was written.

    ``needed`` names files that must be there, whatever was recorded.
    """
    pairs = read(folder)
    for name in sorted({name for _, name in pairs}.union(needed)):
        _check(folder, name, pairs)


def damage(path: Path) -> str:
    """Why one file is not what its folder's ``SHA256SUMS`` says; empty if it is."""
    try:
        _check(path.parent, path.name, read(path.parent))
    except ValueError as fault:
        return str(fault)
    return ""


def _check(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    if not (folder / name).is_file():
        raise ValueError(f"{name} is missing")
    if all(listed != name for _, listed in pairs):
        raise ValueError(f"{FILE} does not list {name}")
    if (sha256(folder / name), name) not in pairs:
        raise ValueError(f"{name} is not what was written; its digest differs")
