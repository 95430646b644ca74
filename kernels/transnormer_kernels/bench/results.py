"""The result of a run as plain values, in the schema of the package's docstring, with the run conditions."""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from transnormer_kernels.bench import floors
from transnormer_kernels.bench.cases import Case
from transnormer_kernels.bench.contestants import OURS

SCHEMA = 1
_PACKAGES = ("torch", "triton", "numpy", "flash-linear-attention", "fla-core", "flash-attn")


def conditions(device: torch.device) -> dict[str, Any]:
    """Device, driver, versions, commit and date. None for whatever cannot be determined."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    versions["torch"] = torch.__version__  # with its build, which the metadata leaves out
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "device": _processor(),
        "kind": device.type,
        "capability": None,
        "driver": None,
        "l2_bytes": None,
        "threads": torch.get_num_threads(),
        "versions": versions,
        "commit": _said_by("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": _said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "l2_bytes": properties.L2_cache_size,
        }
    return found


def file_name(result: Mapping[str, Any]) -> str:
    """A result's file name in ``reports/benchmarks``: kernels-DEVICE-DATE.json, lower case."""
    device = re.sub(r"[^a-z0-9]+", "-", str(result["device"]).lower()).strip("-")
    day = datetime.fromisoformat(result["date"]).date().isoformat()
    return f"kernels-{device}-{day}{'-quick' if result['quick'] else ''}.json"


def case_values(case: Case, copy_rate: float) -> dict[str, Any]:
    """A case without its rows."""
    moved = floors.moved_bytes(case)
    return {
        "name": case.name,
        "shape": case.shape(),
        "dtype": case.dtype,
        "options": case.options(),
        "tensors": floors.tensors(case),
        "bytes": moved,
        "floor_seconds": moved / copy_rate,
        "aim_of_floor": case.aim_of_floor,
        "rows": [],
        "comparisons": [],
    }


def compare(case: Case, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ours against the fastest correct contestant of each aim; None if there is none."""
    medians = {row["name"]: row["seconds"]["median"] for row in values["rows"] if row["status"] == "measured"}
    found = []
    for aim in case.aims:
        rivals = {name: medians[name] for name in aim.against if name in medians}
        fastest = min(rivals, key=rivals.__getitem__, default=None)
        ratio = rivals[fastest] / medians[OURS] if fastest is not None and OURS in medians else None
        found.append({"against": list(aim.against), "fastest": fastest, "ratio": ratio, "aim": aim.ratio})
    return found


def write(result: Mapping[str, Any], path: Path) -> None:
    """Write ``result`` with its digest, ``sha256``, to ``path`` atomically."""
    result = {**result, "sha256": _digest(result)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """A result that :func:`write` wrote. Raises ValueError for anything else, and for one that was edited since."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read as a result of this benchmark: {error}") from error
    if not isinstance(result, dict) or result.get("schema") != SCHEMA or "cases" not in result:
        raise ValueError(f"{path}: must be a result of this benchmark, schema {SCHEMA}")
    if result.pop("sha256", None) != _digest(result):
        raise ValueError(f"{path}: is not what was measured; its digest differs")
    return result


def _digest(result: Mapping[str, Any]) -> str:
    read = json.loads(json.dumps(result))  # numbers as keys become text, which sorts otherwise
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def _processor() -> str:
    try:
        models = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        models = []
    name = models[0].strip() if models else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _said_by(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else None
