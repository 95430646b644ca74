"""Small git histories with given dates."""

import os
import subprocess
from pathlib import Path

NOBODY = {f"GIT_{role}_{what}": "nobody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *command: str, date: str = "2026-11-20T00:00:00+00:00") -> str:
    """Run git in ``folder``, without the settings of this machine, and return what it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | NOBODY
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(["git", *command], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, files: dict[str, str], day: int = 20) -> str:
    """Write these files and commit the folder on that day of November 2026; returns the commit."""
    if not (root / ".git").exists():
        git(root, "init", "--quiet")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "A change", date=f"2026-11-{day}T12:00:00+00:00")
    return git(root, "rev-parse", "HEAD")
