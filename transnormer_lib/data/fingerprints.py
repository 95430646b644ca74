"""Fingerprints of files that others provide: recorded when a file is first read, and held against it afterwards.

A record lies in the cache (``data.cache``): the sha256, and the size and the time of change with which it was
computed, so that a file is hashed once and again only when it was touched. Where the digest is known beforehand (a
file of a pinned revision of the Hub), that one counts. Without a cache that can be written, nothing is remembered.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from transnormer_lib.data import cache
from transnormer_lib.data.faults import DataFault
from transnormer_lib.files import write_text


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified(
    path: Path, identity: str | None = None, published: str | None = None, *, rehash: bool = False, accept: bool = False
) -> str:
    """The sha256 of ``path``, after it was held against the one expected.

    ``identity`` is what the file is, where its path may change (default: its path). ``published`` is the digest that
    it must have whatever the record says. ``rehash`` reads the file although neither size nor time changed;
    ``accept`` records what is there, and forgets what was.

    Raises:
        DataFault: the file is not the one that was read first, or not the published one.
    """
    path = path.resolve()
    where = cache.cache_dir() / "fingerprints" / f"{cache.key(identity or str(path))}.json"
    record = {} if accept else _read(where)
    stat = path.stat()
    state = {"path": str(path), "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    if record and not rehash and all(record.get(name) == value for name, value in state.items()):
        found = str(record["sha256"])
    else:
        found = sha256_of(path)
    expected, known_by = (published, "published") if published else (record.get("sha256"), "recorded at its first use")
    if expected is not None and found != expected:
        remedy = (
            "delete it to fetch it again" if published else "if the new file is meant: transnormer data check --accept"
        )
        raise DataFault(f"{path}: has sha256 {found}, expected {expected} ({known_by}); {remedy}")
    with contextlib.suppress(OSError):
        if record != {**state, "sha256": found}:
            write_text(where, json.dumps({**state, "sha256": found}))
    return found


def _read(where: Path) -> dict[str, Any]:
    try:
        record = json.loads(where.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("sha256"), str) else {}
