"""Derived bytes kept between processes. The cache saves time and nothing else depends on it.

One file per key, in ``$TRANSNORMER_CACHE`` or the user's cache folder. A file appears under its name only
when it is complete (written beside it, then renamed), so two processes may compute the same key at once: the
later rename wins, with the same bytes. A file carries the digest of its content; one that does not match is
computed again. A folder that cannot be written costs the saved time.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from transnormer_lib.files import write_bytes

_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_dir() -> Path:
    """``$TRANSNORMER_CACHE``, else ``$XDG_CACHE_HOME/transnormer``, else ``~/.cache/transnormer``."""
    own = os.environ.get("TRANSNORMER_CACHE")
    if own:
        return Path(own)
    # expanduser leaves "~" where a user has no home: a relative path, and the write below fails or
    # is harmless.
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "transnormer"


def key(*parts: object) -> str:
    """A digest of everything a derived value depends on."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def code_version(file: str) -> str:
    """The digest of a source file: with it in a key, an edit of the code never meets its old results."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def cached(name: str, digest: str, compute: Callable[[], bytes]) -> bytes:
    """The bytes that ``compute`` gives, from the cache where they are there.

    ``name`` is for people who look into the folder; ``digest`` (see :func:`key`) identifies the value.
    """
    path = cache_dir() / f"{name}-{digest}"
    try:
        stored = path.read_bytes()
    except OSError:
        stored = b""
    content = stored[_DIGEST_BYTES:]
    if stored and hashlib.sha256(content).digest() == stored[:_DIGEST_BYTES]:
        return content
    content = compute()
    with contextlib.suppress(OSError):
        write_bytes(path, hashlib.sha256(content).digest() + content)
    return content
