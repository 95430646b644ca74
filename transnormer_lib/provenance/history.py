"""What git says of a committed file: which commit first said what it says, and whether a commit came after that.

A file that is moved keeps its commit. The answer is None where git does not know: outside a checkout, of content that
is not committed, and where the history is cut off.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Commit:
    """A commit of this history."""

    name: str
    date: str  # ISO 8601


def commit_of(path: Path, same: Callable[[str], bool]) -> Commit | None:
    """The first commit whose text of the file was ``same``, as the last committed one must be."""
    log = _git(path.parent, "log", "--follow", "--name-only", "--format=%x00%H %cI %P", "--", path.name)
    first: Commit | None = None
    parents: list[str] = []
    for entry in (log or "").split("\0")[1:]:
        head, *names = entry.split("\n")
        name, date, *before = head.split()
        text = _git(path.parent, "show", f"{name}:{''.join(names).strip()}")
        if text is not None and same(text):
            first, parents = Commit(name, date), before
        elif first is None:
            return None
    # Where a shallow clone begins every file looks new.
    if first and not parents and _git(path.parent, "rev-parse", "--is-shallow-repository") != "false":
        return None
    return first


@lru_cache
def came_after(folder: Path, later: str, earlier: str) -> bool | None:
    """Whether the commit ``later`` is ``earlier`` or one of its descendants."""
    known = _git(folder, "cat-file", "-e", f"{later}^{{commit}}") is not None
    return _git(folder, "merge-base", "--is-ancestor", earlier, later) is not None if known else None


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "-c", "core.quotePath=false", *command],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
