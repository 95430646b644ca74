"""Derived bytes kept between processes, to save time.

There is one file per key, in ``$TRANSNORMER_CACHE`` or the user's cache folder. A file is written under another name
and renamed when complete, so two processes may compute the same key at once: the later rename wins, with the same
bytes. A file includes the digest of its content; if it does not match, it is named on standard error and computed
again. If the folder cannot be written, everything is computed each time; a full disk is named on standard error.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.exhausted import DiskFull
from transnormer_lib.files import replacing, write_bytes, write_text
from transnormer_lib.sums import sha256

_DIGEST_BYTES = hashlib.sha256().digest_size
_told: set[str] = set()


def cache_dir() -> Path:
    """``$TRANSNORMER_CACHE``, else ``$XDG_CACHE_HOME/transnormer``, else ``~/.cache/transnormer``.

    Raises DataFault for a variable that names a file.
    """
    if own := os.environ.get("TRANSNORMER_CACHE"):
        if os.path.isfile(own):
            raise DataFault(f"TRANSNORMER_CACHE={own!r}: must be a folder, and is a file")
        return Path(own)
    # For a user without a home, expanduser keeps the "~": a harmless relative path.
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "transnormer"


def key(*parts: object) -> str:
    """A digest of everything that a derived value depends on."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def code_version(file: str) -> str:
    """The digest of a source file, for keys: results of older code are not reused."""
    return sha256(Path(file))


def file_of(name: str, digest: str) -> Path:
    """Where a value is kept."""
    return cache_dir() / f"{name}-{digest}"


def cached(name: str, digest: str, compute: Callable[[], bytes]) -> bytes:
    """The bytes that ``compute`` returns, from the cache if they are there.

    ``digest`` (see :func:`key`) identifies the value; ``name`` makes the file's name readable.
    """
    path = file_of(name, digest)
    with contextlib.suppress(OSError):
        stored = path.read_bytes()
        content = stored[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() == stored[:_DIGEST_BYTES]:
            return content
        tell_damaged(path)
    content = compute()
    try:
        write_bytes(path, hashlib.sha256(content).digest() + content)
    except OSError as problem:
        tell_if_full(problem)
    return content


def tell_damaged(path: Path) -> None:
    """Say once that what the cache holds there is damaged; the caller makes it again."""
    _tell(f"{path}: is damaged, or of an older version, and is made again")


def tell_if_full(problem: OSError) -> None:
    """Say once that the disk is full, if that is the problem; the caller goes on without the cache."""
    if isinstance(problem, DiskFull):
        _tell(f"{problem.folder}: the disk is full; nothing more is kept there")


def _tell(line: str) -> None:
    if line not in _told:
        print(line, file=sys.stderr)
    _told.add(line)


def write_once(path: Path, write: Callable[[Path], None]) -> None:
    """Have ``write`` write the file ``path``, of :func:`file_of`, unless it is whole: for a value too large to hold.

    Of several processes one writes it and the others wait. Raises DataUnavailable if the folder cannot be written.
    """
    from filelock import FileLock

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not is_whole(path):
                with replacing(path) as partial:
                    write(partial)
                write_text(_sidecar(path), sha256(path))
    except OSError as problem:
        raise DataUnavailable(f"{path}: cannot be written ({problem.strerror}); set TRANSNORMER_CACHE") from None


def is_whole(path: Path) -> bool:
    """Whether :func:`write_once` has written ``path`` and it is not damaged."""
    if not (path.is_file() and _sidecar(path).is_file()):
        return False
    if sha256(path) == _sidecar(path).read_text(encoding="utf-8", errors="replace"):
        return True
    tell_damaged(path)
    return False


def _sidecar(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
