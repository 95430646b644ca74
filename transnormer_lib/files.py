"""Files that are written completely or not at all, and JSON that may be damaged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path, renamed to ``path`` when the block ends and removed if it raises.

    The temporary name is unique, so two processes may write the same file at once; the later one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, completely or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` in UTF-8, completely or not at all."""
    write_bytes(path, content.encode("utf-8"))


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file is missing or holds anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
