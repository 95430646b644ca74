"""What git says of a committed file: which commit gave it its content, and whether a commit held it.

The content counts, not the path: a file that is moved keeps its commit. The answer is None where git does not know:
outside a checkout, of content that is not committed, and where the history is cut off.
"""

import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Commit:
    """A commit of this history."""

    name: str
    date: str  # ISO 8601


def commit_of(path: Path) -> Commit | None:
    """The commit in which the file got its present content."""
    blob = _blob(path)
    found = blob and _git(path.parent, "log", f"--find-object={blob}", "--format=%H %cI %P")
    if not found:
        return None
    name, date, *parents = found.splitlines()[-1].split()
    # Where a shallow clone begins every file looks new.
    if not parents and _git(path.parent, "rev-parse", "--is-shallow-repository") != "false":
        return None
    return Commit(name, date)


def held(commit: str, path: Path) -> bool | None:
    """Whether the files of a commit had the present content of ``path`` among them."""
    blob, blobs = _blob(path), _blobs(path.parent, commit)
    return None if blob is None or blobs is None else blob in blobs


def _blob(path: Path) -> str | None:
    return _git(path.parent, "hash-object", path.name)


@lru_cache
def _blobs(folder: Path, commit: str) -> frozenset[str] | None:
    listed = _git(folder, "ls-tree", "-r", "--full-tree", commit)
    return None if listed is None else frozenset(line.split()[2] for line in listed.splitlines())


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
