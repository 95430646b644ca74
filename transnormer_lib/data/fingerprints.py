"""Fingerprints of files that others provide: recorded when a file is first read, and checked on every later read.

A record in the cache (``data.cache``) holds the sha256 of a file, with its size and its time of change. Every process
hashes a file once, and again if it was touched; a file above 256 MiB is hashed only if it was touched since the record,
or by ``transnormer data check``. A published digest (of a file at a pinned revision of the Hub) takes precedence over
the record. If the cache cannot be written, nothing is recorded.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from transnormer_lib.data import cache
from transnormer_lib.data.faults import DataFault
from transnormer_lib.files import write_text
from transnormer_lib.sums import read_sealed, sealed, sha256

_CHEAP = 1 << 28  # bytes that every process hashes anew, in about 0.4 s
_checked: set[tuple[object, ...]] = set()  # the states of the files that this process has hashed


def verified(
    path: Path, identity: str | None = None, published: str | None = None, *, rehash: bool = False, accept: bool = False
) -> str:
    """The sha256 of ``path``, hex, checked against the expected one.

    ``identity`` names the file if its path may change (default: its path). ``published`` is the digest that it must
    have. ``rehash`` reads the file whatever was recorded; ``accept`` replaces the record. Raises
    DataFault if the file is not the one that was first read, or not the published one.
    """
    path = path.resolve()
    where = cache.cache_dir() / "fingerprints" / f"{cache.key(identity or str(path))}.json"
    record = {} if accept else _read(where)
    stat = path.stat()
    state = {"path": str(path), "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    trusted = stat.st_size > _CHEAP or tuple(state.values()) in _checked
    if record and trusted and not rehash and all(record.get(name) == value for name, value in state.items()):
        found = str(record["digest"])
    else:
        found = sha256(path)
    expected, known_by = (published, "published") if published else (record.get("digest"), "recorded at first use")
    if expected is not None and found != expected:
        accepting = "if the change is intended, run: transnormer data check --accept"
        remedy = "delete it to fetch it again" if published else accepting
        raise DataFault(f"{path}: has sha256 {found}, expected {expected} ({known_by}); {remedy}")
    _checked.add(tuple(state.values()))
    if record != (state := sealed({**state, "digest": found})):
        with contextlib.suppress(OSError):
            write_text(where, json.dumps(state) + "\n")
    return found


def _read(where: Path) -> dict[str, Any]:
    if (record := read_sealed(where)) is None and where.is_file():
        cache.tell_damaged(where)
    return record or {}
