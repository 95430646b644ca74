"""``SHA256SUMS``: the digests of a folder's files, so that damage is noticed (``sha256sum -c SHA256SUMS``)."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from transnormer_lib.files import write_text

FILE = "SHA256SUMS"


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, also: Iterable[tuple[str, str]] = (), names: Iterable[str] | None = None) -> None:
    """Write the digests of the files ``names``; by default of every file in ``folder`` and below it, hidden ones aside.

    ``also`` holds further ``(digest, name)`` pairs: a file that is about to change may have its new digest.
    """
    if names is None:
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file())
    pairs = [(sha256(folder / name), name) for name in sorted(names) if name != FILE]
    write_text(folder / FILE, "".join(f"{digest}  {name}\n" for digest, name in [*pairs, *also]))


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
