"""``reports/<preset>/records/<notebook>.json``: how a notebook's last run ended, and its run conditions."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from transnormer_lib.files import read_object, write_text
from transnormer_lib.project import Project
from transnormer_lib.sums import sealed

# "no data": stopped at real data that this machine does not have
Status = Literal["ok", "failed", "interrupted", "no data"]


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` atomically, with sorted keys."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_record(project: Project, preset: str, notebook: str) -> dict[str, Any] | None:
    """The record, or None if there is none that can be read."""
    return read_object(record_path(project, preset, notebook))


def record_path(project: Project, preset: str, notebook: str) -> Path:
    """Where the record is."""
    return project.report_dir(preset) / "records" / f"{notebook}.json"


@dataclass
class Outcome:
    """How one attempt to run a notebook ended."""

    preset: str
    notebook: str
    started: float  # seconds since 1970
    conditions: dict[str, Any]  # of ``provenance.environment.provenance``
    status: Status = "failed"
    error: str | None = None  # one line unless ok
    mistake: bool = False  # the user can put the error right
    parameters: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None  # of ``report.staleness``; None if it could not be computed
    displayed: str | None = None  # of ``ledger.seals``: digest of the executed notebook; None if there is none
    shown: dict[str, Any] = field(default_factory=dict)  # provenance in the notebook's outputs: ``show.evidence``
    wall_seconds: float = 0.0
    peak_memory_bytes: int = 0  # of the kernel


def write_record(project: Project, outcome: Outcome) -> dict[str, Any]:
    """Write and return the record, with the digest of its fields.

    A record that is not ok keeps the last good one as ``last_good``.
    """
    before = read_record(project, outcome.preset, outcome.notebook) or {}
    record = {
        "notebook": outcome.notebook,
        "status": outcome.status,
        "error": outcome.error,
        "mistake": outcome.mistake,
        "preset": outcome.preset,
        "parameters": outcome.parameters,
        "digest": outcome.digest,
        "displayed": outcome.displayed,
        "provenance": {
            **outcome.shown,
            **outcome.conditions,
            "seeds": outcome.parameters.get("seeds", outcome.parameters.get("seed")),
            "data": outcome.shown.get("data", {}),
            "started": datetime.fromtimestamp(outcome.started, UTC).isoformat(timespec="seconds"),
            "wall_seconds": round(outcome.wall_seconds, 2),
            "peak_memory_bytes": outcome.peak_memory_bytes,
            "command": f"make report PRESET={outcome.preset} ONLY={outcome.notebook.split('_')[0]}",
        },
    }
    if outcome.status != "ok":
        record["last_good"] = before if before.get("status") == "ok" else before.get("last_good")
    record = sealed(record)
    write_json(record_path(project, outcome.preset, outcome.notebook), record)
    return record
