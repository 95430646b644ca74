"""Where the results of a report come from, if not all from one commit and from the project as it is.

``--only`` runs some notebooks again and leaves the records of the others, which count as they are.
"""

from collections.abc import Sequence

from transnormer_lib.ledger.judging import last_run
from transnormer_lib.project import Project
from transnormer_lib.report.pages import commit_text
from transnormer_lib.report.pipeline import plan


def told(project: Project, preset: str, notebooks: Sequence[str]) -> list[str]:
    """A sentence on the notebooks that changed since they ran, one on those that ran at another commit than most."""
    runs = [last_run(project.report_dir(preset), notebook) for notebook in notebooks]
    records = {run.notebook: run.record for run in runs if run.executed}
    found = []
    jobs = plan(project, preset, list(records))
    if stale := [job.notebook for job in jobs if job.digest != records[job.notebook].get("digest")]:
        found.append(
            f"Code, parameters or kept results changed since these notebooks ran: {', '.join(stale)}. Their"
            f" results count as they are; make report PRESET={preset} runs them again."
        )
    ran_at: dict[str, list[str]] = {}
    for notebook, record in records.items():
        ran_at.setdefault(commit_text(record["provenance"] or {}) or "no known commit", []).append(notebook)
    most, *others = sorted(ran_at, key=lambda commit: -len(ran_at[commit])) or [""]
    if others:
        places = "; ".join(f"{', '.join(ran_at[commit])} at {commit}" for commit in others)
        found.append(f"The notebooks ran at several commits: {places}; the others at {most}.")
    return found
