"""Records of runs in one file, to be carried to another machine: ``transnormer runs export`` and ``runs import``.

The weights stay behind. What a study reads from records alone (losses, scores, curves) is then there without training;
what needs a model trains it.
"""

import base64
import gzip
import json
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from transnormer_lib import sums
from transnormer_lib.files import parse_json, write_bytes
from transnormer_lib.strict import from_plain
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.records import check_record
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, write_record

_LARGEST = 500_000_000  # bytes of records; a night's take a tenth of that
_CURVE = "train_loss"  # the longest field of a record: one number a step
_FLOAT = "<f4"


def write(runs: Iterable[Run], path: Path) -> int:
    """Write configs and records of these runs, gzipped JSON by name; returns how many. Equal runs give equal bytes.

    Where the folder has digests (``sums``), as ``reports/kept`` has, the file's is entered.
    """
    found = {run.path.name: {"config": asdict(run.config), **_packed(run.record)} for run in runs}
    text = json.dumps(found, indent=1, sort_keys=True)
    write_bytes(path, gzip.compress(text.encode(), mtime=0))
    if (path.parent / sums.FILE).exists():
        sums.enter(path)
    return len(found)


def records(path: Path) -> dict[str, tuple[RunConfig, dict[str, Any]]]:
    """Config and record by name of the runs of a file of :func:`write`.

    Raises ValueError for another file, for one that its folder's digests do not fit, for what is no record of a
    complete run, and for a run whose config and data do not give its name.
    """
    try:
        if (path.parent / sums.FILE).exists() and (damage := sums.damage(path)):
            raise ValueError(damage)
        with gzip.open(path) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"unpacked it takes more than {_LARGEST:,} bytes")
        content = parse_json(text)
        runs = {name: (from_plain(RunConfig, run["config"]), _unpacked(run)) for name, run in content.items()}
        for name, (config, record) in runs.items():
            try:
                check_record(record)
            except ValueError as fault:
                raise ValueError(f"run {name}: {fault}") from None
            if (own := run_id(config, record["data"], record["arithmetic"])) != name:
                raise ValueError(f"run {name}: its config is that of {own}")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise ValueError(f"file={str(path)!r}: holds no records of runs: {' '.join(str(fault).split())}") from None
    return runs


def read(path: Path, store: RunStore) -> tuple[int, int]:
    """Add the runs of a file of :func:`write` to the store: (how many are new, how many it had).

    Raises the ValueError of :func:`records` before any is added.
    """
    runs = records(path)
    new = 0
    for name, (config, record) in runs.items():
        if (store.root / name).exists():
            continue
        made = store.root / f".import-{name}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        write_record(config, record, made)
        sums.seal(made)
        made.replace(store.root / name)
        new += 1
    return new, len(runs) - new


def _packed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record, with a curve of float32 as their bytes: two thirds of what digits take, compressed."""
    curve = np.asarray(record[_CURVE], dtype=float)
    if not np.isfinite(curve).all() or (curve != curve.astype(_FLOAT)).any():
        return {"record": record}
    by_place = curve.astype(_FLOAT).view(np.uint8).reshape(-1, 4).T  # first bytes together: alike, so they compress
    return {"record": {**record, _CURVE: base64.b64encode(by_place.tobytes()).decode()}, "float32": True}


def _unpacked(run: Mapping[str, Any]) -> dict[str, Any]:
    """The record of :func:`_packed`, to the last bit."""
    record: dict[str, Any] = run["record"]
    if not run.get("float32"):
        return record
    by_place = np.frombuffer(base64.b64decode(record[_CURVE], validate=True), dtype=np.uint8).reshape(4, -1)
    return {**record, _CURVE: np.ascontiguousarray(by_place.T).view(_FLOAT).ravel().astype(float).tolist()}
