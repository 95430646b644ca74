"""Which results of a report are not those of the project as it is.

``--only`` runs some notebooks again and leaves the records of the others, which count as they are. A record from
another commit whose digest is today's is of the same code, parameters and kept results, and no such record.
"""

from collections.abc import Sequence

from transnormer_lib.ledger.judging import last_run
from transnormer_lib.project import Project
from transnormer_lib.report.pages import commit_text
from transnormer_lib.report.pipeline import plan


def told(project: Project, preset: str, notebooks: Sequence[str]) -> list[str]:
    """A sentence on the notebooks that changed since they ran, with the commits they ran at; none without one."""
    runs = [last_run(project.report_dir(preset), notebook) for notebook in notebooks]
    records = {run.notebook: run.record for run in runs if run.executed}
    stale = [
        f"{job.notebook} (at {commit_text(records[job.notebook]['provenance'] or {}) or 'no known commit'})"
        for job in plan(project, preset, list(records))
        if job.digest != records[job.notebook].get("digest")
    ]
    if not stale:
        return []
    return [
        f"Code, parameters or kept results changed since these notebooks ran: {', '.join(stale)}. Their results count"
        f" as they are; make report PRESET={preset} runs them again."
    ]
