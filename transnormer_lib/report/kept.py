"""Results of scales that a report is rarely made at, kept in the repository: ``reports/kept/<preset>/<notebook>.json``.

``transnormer claims --preset night --only 09 --keep`` writes the file from a finished report: the verdicts of the
notebook's claims, the record of every training run, the parameters, and where, when and by which commit they were made.
A notebook at a smaller scale shows what its own runs cannot. Nothing kept is ever judged again: it is shown as what it
is, with the machine named.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transnormer_lib.report.project import Project, UserMistake, find_project
from transnormer_lib.report.verdicts import SCALES

# Of a run's record: what a figure or a table reads, and what says where it was made.
_RUN_FIELDS = ("status", "steps", "parameters", "flops", "seconds", "validation")


@dataclass(frozen=True)
class Kept:
    """What was kept of one notebook at one preset."""

    preset: str
    scale: str  # the preset's
    notebook: str
    parameters: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]  # as in claims.json
    runs: Sequence[Mapping[str, Any]]  # records, in the order of the study's runs
    device: str  # on which the runs were trained
    threads: int
    commit: str  # by which they were trained, and whether the code differed from it
    started: str  # of the notebook; ISO 8601

    @property
    def training_seconds(self) -> float:
        """Over all runs, one after the other."""
        return sum(run["seconds"] for run in self.runs)

    def sentence(self) -> str:
        """Where these results come from."""
        return (
            f"Kept from the preset {self.preset}, {self.started[:10]}: {len(self.runs)} training runs, "
            f"{self.training_seconds / 60:.0f} minutes of training in all, on {self.device}, {self.threads} "
            f"thread{'' if self.threads == 1 else 's'} a run, commit {self.commit}."
        )


def folder(project: Project) -> Path:
    """Where results are kept."""
    return project.root / "reports" / "kept"


def paths(project: Project, notebook: str) -> list[Path]:
    """The files that are kept of a notebook, at whatever preset."""
    return sorted(folder(project).glob(f"*/{notebook}.json"))


def larger(scale: str, notebook: str, project: Project | None = None) -> list[Kept]:
    """What was kept of ``notebook`` at the scales above ``scale``, smallest first."""
    project = project or find_project()
    kept = [found for path in paths(project, notebook) if (found := read(path.parent.name, notebook, project))]
    above = [found for found in kept if SCALES.index(found.scale) > SCALES.index(scale)]
    return sorted(above, key=lambda found: SCALES.index(found.scale))


def read(preset: str, notebook: str, project: Project | None = None) -> Kept | None:
    """What was kept of ``notebook`` at ``preset``, or None. Raises UserMistake for a file that is none of ours."""
    path = folder(project or find_project()) / preset / f"{notebook}.json"
    if not path.exists():
        return None
    try:
        return Kept(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as fault:
        raise UserMistake(f"{path.name}: is not a kept result: {fault}") from None


def keep(project: Project, preset: str, notebook: str) -> Path:
    """Write what the last report of ``preset`` has of ``notebook`` and return the file.

    Raises UserMistake where the notebook's last run is not good, and where the store lacks one of its training runs.
    """
    from transnormer_lib.files import write_text
    from transnormer_lib.report.records import read_record
    from transnormer_lib.studies import runs
    from transnormer_lib.training.store import RunStore

    record, claims_path = read_record(project, preset, notebook), project.report_dir(preset) / "claims.json"
    if record is None or record["status"] != "ok" or not claims_path.exists():
        raise UserMistake(
            f"keep={notebook!r}: has no good run at preset {preset!r}; make it first: "
            f"transnormer report --preset {preset} --only {notebook[:2]}"
        )
    store, records, made = RunStore(), [], []
    for config in runs(notebook, record["parameters"]):
        found = store.find(config)
        if found is None:
            raise UserMistake(f"keep={notebook!r}: the store has no run {config.name} of the present code")
        records.append({"name": config.name, "seed": config.seed} | {name: found.record[name] for name in _RUN_FIELDS})
        made.append(found.record["provenance"])
    ledger = json.loads(claims_path.read_text(encoding="utf-8"))
    made = made or [record["provenance"]]
    content = {
        "preset": preset,
        "scale": project.preset(preset).scale,
        "notebook": notebook,
        "parameters": record["parameters"],
        "claims": [claim for claim in ledger if claim["notebook"] == notebook],
        "runs": records,
        "device": _named(str(provenance["device"]) for provenance in made),
        "threads": project.preset(preset).threads,
        "commit": _named(map(_code, made)),
        "started": record["provenance"]["started"],
    }
    path = folder(project) / preset / f"{notebook}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return path


def _named(values: Iterable[str]) -> str:
    """The one value, or all of them where they differ."""
    return "; ".join(dict.fromkeys(values))


def _code(provenance: Mapping[str, Any]) -> str:
    if provenance["commit"] is None:
        return "not known"
    return f"{provenance['commit']}{', with local changes' if provenance['dirty'] else ''}"
