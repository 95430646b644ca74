"""Results of scales that take long, committed to the repository: ``reports/kept/<preset>/<notebook>.json``.

``transnormer claims --preset night --only 09 --keep`` writes the file from a finished report: the verdicts of the
notebook's claims, the record of every training run, the parameters, machine, date and commit, and the commits of the
study's plans. Notebooks and pages of a smaller scale show it with its origin. Kept results are never judged again.

``SHA256SUMS`` beside the files has their digests. A file that is not what was written does not count, and the report
names it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from transnormer_lib import sums
from transnormer_lib.checks import check_choice
from transnormer_lib.choices import SCALES
from transnormer_lib.files import parse_json
from transnormer_lib.ledger.claims import PACKAGE, Claim
from transnormer_lib.project import Project, UserMistake, find_project

_ENTRY = {"id", "verdict", "scale", "measured", "seeds"}  # what the ledger reads of a claim
_PLAN = {"file", "sha256", "commit", "date", "judged", "after"}
_CODE = {"commit", "dirty"}  # what :func:`code_of` reads
JUDGED_BY = ("kind", "published", "tolerance", "decided_at")  # what a claim's verdict depends on

_NAMED = 2  # commits, on a page
_COMMIT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")  # people cite its beginning


@dataclass(frozen=True)
class Kept:
    """What was kept of one notebook at one preset."""

    preset: str
    scale: str  # the preset's
    notebook: str
    parameters: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]  # as in claims.json
    runs: Sequence[Mapping[str, Any]]  # records, in the order of the study's runs
    device: str  # that trained the runs; several are joined by semicolons
    threads: int
    commit: str  # whose code trained them, and whether there were local changes
    started: str  # when the notebook started; ISO 8601
    plans: Sequence[Mapping[str, Any]] = ()  # of ``studies.common.plans``; files of an older form have none
    exhibits: Mapping[str, Any] = field(default_factory=dict)  # by name, of ``show.evidence.exhibit``
    # Commit and dirty flag of the code that ran the notebook, which may not be the code that trained the runs; files of
    # an older form have none.
    measured_at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def training_seconds(self) -> float:
        """Total over all runs."""
        return sum(run["seconds"] for run in self.runs)

    @property
    def devices(self) -> list[str]:
        """Each that trained some of the runs."""
        return self.device.split("; ")

    @property
    def href(self) -> str:
        """The file's address from a page of a report."""
        return f"../kept/{self.preset}/{self.notebook}.json"

    def sentence(self) -> str:
        """Where these results come from."""
        return (
            f"Kept from the preset {self.preset}, {self.started[:10]}: {len(self.runs)} training runs, "
            f"{self.training_seconds / 60:.0f} minutes of training in all, on {self.device}, {self.threads} "
            f"thread{'' if self.threads == 1 else 's'} a run, {self._commits()}."
        )

    def _commits(self) -> str:
        """The commits, or how many where a line would hold nothing else; the kept file names each run's."""
        named = [_COMMIT.sub(r"\1", commit) for commit in self.commit.split("; ")]
        if len(named) <= _NAMED:
            trained = f"commit{'' if len(named) == 1 else 's'} {', '.join(named)}"
        else:
            changed = sum(commit.endswith("with local changes") for commit in named)
            trained = f"{len(named)} commits" + (f", {changed} of them with local changes" if changed else "")
        if not self.measured_at or code_of(self.measured_at) == self.commit:
            return trained
        measured = _COMMIT.sub(r"\1", code_of(self.measured_at))
        return f"{trained}; the notebook ran at commit {measured}"

    def planned(self) -> list[str]:
        """Per plan, its commit, whether it came before the runs that were judged by it, and whether it has changed."""
        return [f"{plan['file']}: {self._came_first(plan)}{self._since(plan)}" for plan in self.plans]

    def _since(self, plan: Mapping[str, Any]) -> str:
        path = PACKAGE / "studies" / self.notebook[3:] / plan["file"]
        if not path.is_file():
            return " The plan is gone."
        return "" if sums.sha256(path) == plan["sha256"] else " The plan was edited after these results were kept."

    def _came_first(self, plan: Mapping[str, Any]) -> str:
        if plan["commit"] is None:
            return "the commit of its content is not known, nor whether it came before the runs."
        commit, judged, after = f"commit {plan['commit'][:12]}, {plan['date'][:10]}", plan["judged"], plan["after"]
        if judged == 0:
            return f"{commit}; none of these runs was judged by it."
        if after is None:
            before = datetime.fromisoformat(plan["date"]) < datetime.fromisoformat(self.started)
            return (
                f"{commit}, {'before' if before else 'after'} the notebook ran; when the judged runs ({judged}) were "
                "trained is not known."
            )
        if after == judged:
            return f"decided beforehand, {commit}; the code that trained the judged runs ({judged}) came after it."
        missing = f"{judged - after} of the {judged} judged runs"
        return f"{commit}; the code that trained {missing} did not come after it, as far as git knows."

    def reworded(self, claims: Mapping[str, Claim]) -> list[str]:
        """The claims whose statement is not the one that was kept."""
        known = [entry for entry in self.claims if entry["id"] in claims and "statement" in entry]
        return [entry["id"] for entry in known if entry["statement"] != claims[entry["id"]].statement]

    def origin(self, claims: Mapping[str, Claim]) -> dict[str, Any]:
        """For a page of a report: where these results come from, the plans, every run's record, the command.

        ``claims`` are those of today, by id.
        """
        count = len(self.reworded(claims))
        verb = "has" if count == 1 else "have"
        return {
            "sentence": self.sentence(),
            "plans": self.planned(),
            "reworded": f"{count} of the kept claims {verb} another wording today." if count else None,
            "href": self.href,
            "command": f"make report PRESET={self.preset} ONLY={self.notebook.split('_')[0]}",
        }


def code_of(provenance: Mapping[str, Any]) -> str:
    """The commit of a run's code and whether there were local changes, from its ``commit`` and ``dirty``."""
    if provenance["commit"] is None:
        return "not known"
    return f"{provenance['commit']}{', with local changes' if provenance['dirty'] else ''}"


def folder(project: Project) -> Path:
    """Where results are kept."""
    return project.root / "reports" / "kept"


def paths(project: Project, notebook: str) -> list[Path]:
    """The kept files of a notebook, at any preset."""
    return sorted(folder(project).glob(f"*/{notebook}.json"))


def larger(scale: str, notebook: str, project: Project | None = None) -> list[Kept]:
    """What was kept of ``notebook`` at the scales above ``scale``, smallest first."""
    project = project or find_project()
    kept = [found for path in paths(project, notebook) if (found := read(path.parent.name, notebook, project))]
    above = [found for found in kept if SCALES.index(found.scale) > SCALES.index(scale)]
    return sorted(above, key=lambda found: SCALES.index(found.scale))


def read(preset: str, notebook: str, project: Project | None = None) -> Kept | None:
    """What was kept of ``notebook`` at ``preset``, or None.

    Raises UserMistake for a file that is not what was written, of another form, or of another notebook or preset.
    """
    path = folder(project or find_project()) / preset / f"{notebook}.json"
    if not path.exists():
        return None
    where = f"reports/kept/{preset}/{path.name}"
    if damage := sums.damage(path):
        raise UserMistake(f"{where}: does not count: {damage}")
    try:
        found = Kept(**parse_json(path.read_text(encoding="utf-8")))
        if not all(claim.keys() >= _ENTRY for claim in found.claims):
            raise ValueError(f"a claim lacks one of {', '.join(sorted(_ENTRY))}")
        if not all(plan.keys() >= _PLAN for plan in found.plans):
            raise ValueError(f"a plan lacks one of {', '.join(sorted(_PLAN))}")
        if found.measured_at and found.measured_at.keys() != _CODE:
            raise ValueError("measured_at: must have commit and dirty")
        check_choice("scale", found.scale, SCALES)
        for name, value, own in (("preset", found.preset, preset), ("notebook", found.notebook, notebook)):
            if value != own:
                raise ValueError(f"{name}={value!r}: must be {own!r}, as its place says")
    except (AttributeError, ValueError, TypeError, RecursionError) as fault:
        raise UserMistake(f"{where}: is not a kept result: {fault}") from None
    return found


def judged_otherwise(claim: Claim, entry: Mapping[str, Any]) -> str:
    """By what a claim is judged today that was another when ``entry`` was kept; empty if nothing is."""
    today = claim.model_dump(mode="json")
    for name in JUDGED_BY:
        if name in entry and entry[name] != today[name]:
            return f"{name}={today[name]!r}: was {entry[name]!r} then"
    return ""
