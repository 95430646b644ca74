"""The run conditions of a result: commit, versions, machine. Read from the system, never from a config."""

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

_DISTRIBUTION = "transnormer-companion"


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@lru_cache
def commit() -> tuple[str | None, bool | None]:
    """(commit, whether the working tree differs from it, ignored files aside); (None, None) outside a checkout."""
    root = str(Path(__file__).resolve().parents[2])
    revision = _run("git", "-C", root, "rev-parse", "HEAD")
    status = _run("git", "-C", root, "status", "--porcelain")
    return revision, None if status is None else bool(status)


@lru_cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that this project requires, without extras."""
    found = {"python": platform.python_version()}
    try:
        requirements = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        requirements = []
    for name in (re.split(r"[^\w.-]", requirement)[0] for requirement in requirements if "extra ==" not in requirement):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


@lru_cache
def device() -> str:
    """The name of the accelerators or, without one, of the processor with its number of cores."""
    if shutil.which("nvidia-smi") and (names := _run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")):
        return ", ".join(sorted(set(names.splitlines())))
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (
        match := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8", errors="replace"))
    ):
        name = match.group(1).strip()
    return f"{name}, {os.cpu_count()} cores"


def peak_memory_bytes(*, children: bool = False) -> int:
    """Peak resident memory so far, of this process or of its largest finished child."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def provenance() -> dict[str, Any]:
    """The run conditions that all results of this process share."""
    revision, dirty = commit()
    return {"commit": revision, "dirty": dirty, "versions": versions(), "device": device()}
