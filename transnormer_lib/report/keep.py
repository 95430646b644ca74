"""``transnormer claims --keep``: write what a finished report found to ``reports/kept/<preset>/<notebook>.json``."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transnormer_lib.ledger.judging import last_run, read_claims
from transnormer_lib.ledger.kept import folder
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.records import write_json
from transnormer_lib.show.evidence import exhibits
from transnormer_lib.studies import runs
from transnormer_lib.studies.common import plans

# The fields of a run's record that figures and tables read.
_RUN_FIELDS = ("status", "steps", "parameters", "flops", "seconds", "validation")


def keep(project: Project, preset: str, notebook: str) -> Path:
    """Write what the last report of ``preset`` found in ``notebook`` and return the file.

    Raises UserMistake if the notebook's last run failed or the store lacks one of its training runs.
    """
    from transnormer_lib.training.store import RunStore

    run, judged_claims = last_run(project.report_dir(preset), notebook), read_claims(project.report_dir(preset))
    if run.status != "ok" or run.executed is None or judged_claims is None:
        raise UserMistake(
            f"keep={notebook!r}: has no good run at preset {preset!r}; make it first: "
            f"transnormer report --preset {preset} --only {notebook[:2]}"
        )
    store, record, records, made = RunStore(), run.record, [], []
    judged: dict[str, str | None] = {}  # the runs on judged seeds, with the commit of the code that trained them
    for config in runs(notebook, record["parameters"]):
        found = store.find(config)
        if found is None:
            raise UserMistake(f"keep={notebook!r}: the store has no run {config.name} of the present code")
        records.append({"name": config.name, "seed": config.seed} | {name: found.record[name] for name in _RUN_FIELDS})
        made.append(found.record["provenance"])
        if config.seed in record["parameters"].get("seeds", [config.seed]):
            judged[config.name] = found.record["provenance"]["commit"]
    ledger = json.loads(judged_claims)
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
        "plans": plans.evidence(notebook[3:], judged),
    }
    if shown := exhibits(json.loads(run.executed.read_text(encoding="utf-8"))):
        content["exhibits"] = shown
    path = folder(project) / preset / f"{notebook}.json"
    write_json(path, content)
    return path


def _named(values: Iterable[str]) -> str:
    """The value, or all of them if they differ."""
    return "; ".join(dict.fromkeys(values))


def _code(provenance: Mapping[str, Any]) -> str:
    if provenance["commit"] is None:
        return "not known"
    return f"{provenance['commit']}{', with local changes' if provenance['dirty'] else ''}"
