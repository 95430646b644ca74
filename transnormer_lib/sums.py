"""Digests, so that damage is noticed: ``SHA256SUMS`` of a folder's files (``sha256sum -c SHA256SUMS``), and a field in
JSON objects that carry their own.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transnormer_lib.files import read_object, write_text

FILE = "SHA256SUMS"


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the digests of the files ``names``; by default of every file in ``folder`` and below, hidden ones aside."""
    if names is None:
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file())
    _write(folder, [(sha256(folder / name), name) for name in sorted(names) if name != FILE])


def read(folder: Path) -> list[tuple[str, str]]:
    """The recorded ``(digest, name)`` pairs; raises ValueError if they cannot be read."""
    try:
        lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise ValueError(f"{FILE} cannot be read") from None
    return [(digest, name) for digest, _, name in (line.partition("  ") for line in lines)]


def check(folder: Path, needed: Iterable[str] = ()) -> None:
    """Raise ValueError, naming the file and the damage, unless every file is what was written.

    ``needed`` names files that must be there, whatever was recorded.
    """
    pairs = read(folder)
    for name in sorted({name for _, name in pairs}.union(needed)):
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if (sha256(folder / name), name) not in pairs:
            raise ValueError(f"{name} is not what was written; its digest differs")


def rewrite(path: Path, text: str) -> None:
    """Write a text and its digest, in the ``SHA256SUMS`` of its folder, unless both are there.

    A kill at any moment leaves a file and a digest that fit, the old ones or the new ones.
    """
    try:
        pairs = read(path.parent)
    except ValueError:
        pairs = []
    new = (hashlib.sha256(text.encode()).hexdigest(), path.name)
    if new in pairs and path.is_file() and sha256(path) == new[0]:
        return
    _write(path.parent, [*pairs, new])
    write_text(path, text)
    _write(path.parent, [*(pair for pair in pairs if pair[1] != path.name), new])


def is_recorded(path: Path) -> bool:
    """Whether a file is what its folder's ``SHA256SUMS`` says."""
    try:
        return (sha256(path), path.name) in read(path.parent)
    except ValueError:
        return False


def _write(folder: Path, pairs: Iterable[tuple[str, str]]) -> None:
    write_text(folder / FILE, "".join(f"{digest}  {name}\n" for digest, name in pairs))


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its own digest, as the field ``seal``."""
    plain = json.loads(json.dumps(content))  # as it will be read
    text = json.dumps({**plain, "seal": digest_of(plain)}, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(path, text + "\n")


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The object of :func:`write_sealed`, without its digest; None if it is missing or not what was written."""
    found = read_object(path) or {}
    digest = found.pop("seal", None)
    return found if digest == digest_of(found) else None


def digest_of(content: Any) -> str:
    """The sha256 (hex) of plain values, whatever the order of their fields."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
