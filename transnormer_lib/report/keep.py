"""``transnormer claims --keep``: write what a finished report found to ``reports/kept/<preset>/<notebook>.json``."""

from collections.abc import Iterable
from pathlib import Path

from transnormer_lib import sums
from transnormer_lib.files import parse_json
from transnormer_lib.ledger.judging import last_run, read_json_list
from transnormer_lib.ledger.kept import code_of, folder
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.pipeline import is_current, plan
from transnormer_lib.report.records import write_json
from transnormer_lib.show.evidence import exhibits
from transnormer_lib.studies import runs
from transnormer_lib.studies.common import plans, rates

# The fields of a run's record that figures and tables read.
_RUN_FIELDS = ("status", "steps", "parameters", "flops", "seconds", "validation")


def keep(project: Project, preset: str, notebook: str) -> Path:
    """Write what the last report of ``preset`` found in ``notebook`` and return the file.

    Raises UserMistake if the notebook's last run failed or is not of today's code and parameters, if notebook, record
    or claims.json were edited since, if the store lacks one of its training runs, or if a row is not judged at the best
    learning rate of its search.
    """
    from transnormer_lib.training.store import RunStore

    run = last_run(project.report_dir(preset), notebook)
    again = f"transnormer report --preset {preset} --only {notebook[:2]}"
    if run.status != "ok" or run.executed is None:
        raise UserMistake(
            f"keep={notebook!r}: has no good run at preset {preset!r} ({run.error}); make it first: {again}"
        )
    (job,) = plan(project, preset, [notebook])
    if not is_current(project, preset, job):
        changed = job.mistake or "its code, its parameters or what it reads changed since it ran"
        raise UserMistake(f"keep={notebook!r}: {changed}; run it again: {again}")
    record, ledger = run.record, read_json_list(project.report_dir(preset) / "claims.json")
    store, records, made, stored = RunStore(), [], [], []
    judged: dict[str, str | None] = {}  # the runs on judged seeds, with the commit of the code that trained them
    for config in runs(notebook, record["parameters"]):
        found = store.find(config)
        if found is None:
            raise UserMistake(f"keep={notebook!r}: the store has no run {config.name} of the present code")
        stored.append(found)
        own = {name: found.record[name] for name in _RUN_FIELDS}
        if found.record["at_end"]:  # scores on test examples, which few runs have
            own["at_end"] = found.record["at_end"]
        records.append({"name": config.name, "seed": config.seed} | own)
        made.append(found.record["provenance"])
        if config.seed in record["parameters"].get("seeds", [config.seed]):
            judged[config.name] = found.record["provenance"]["commit"]
    if passed := rates.passed_over(stored):
        raise UserMistake(f"keep={notebook!r}: {'; '.join(passed)}; set the rates of params/{preset} and train again")
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
        "commit": _named(map(code_of, made)),
        "measured_at": {name: record["provenance"][name] for name in ("commit", "dirty")},
        "started": record["provenance"]["started"],
        "plans": plans.evidence(notebook[3:], judged),
    }
    if shown := exhibits(parse_json(run.executed.read_text(encoding="utf-8"))):
        content["exhibits"] = shown
    path = folder(project) / preset / f"{notebook}.json"
    write_json(path, content)
    sums.enter(path)
    return path


def _named(values: Iterable[str]) -> str:
    """The value, or all of them if they differ."""
    return "; ".join(dict.fromkeys(values))
