"""Files that appear whole or not at all. A leaf, and the one way in which this project writes what must not break."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name ``path`` when the block ends and vanishes when it is interrupted.

    Its name is its own, so two processes may write the same file at once: the later one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, all of it or nothing."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Put ``content`` at ``path`` in UTF-8, all of it or nothing."""
    write_bytes(path, content.encode("utf-8"))
