"""A study's plan is shown with its commit, and the kept file says whether the judged runs came after it."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest
from history_factory import commit

from transnormer_lib import studies
from transnormer_lib.project import find_project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import plans
from transnormer_lib.sums import sha256

STUDY = "glue"  # any without a plan of its own
CHECKOUT = find_project()
PLANNED = [study for study in CHECKOUT.notebook_of_study if plans.files(study)]


def patterns(monkeypatch: pytest.MonkeyPatch, found: Mapping[str, tuple[str, ...]]) -> None:
    monkeypatch.setattr(plans, "patterns_of", lambda study: found)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plans, "STUDIES", tmp_path)
    return tmp_path


def test_there_are_planned_studies() -> None:
    assert "autoregressive_lm" in PLANNED


@pytest.mark.parametrize("study", PLANNED)
def test_a_study_names_the_runs_of_each_of_its_plans_and_every_judged_run_has_one(study: str) -> None:
    found = plans.patterns_of(study)
    stems = [path.stem for path in plans.files(study)]
    assert len(stems) == 1 or sorted(found) == sorted(stems)
    notebook = CHECKOUT.notebook_of_study[study]
    values = resolve(CHECKOUT, "night", notebook)
    judged = [run.name for run in studies.runs(notebook, values) if run.seed in values["seeds"]]
    counts = {one["file"]: one["judged"] for one in plans.evidence(study, dict.fromkeys(judged))}
    assert all(counts.values())
    assert sum(counts.values()) == len(set(judged))
    assert all(any(fnmatch(run, name) for run in judged) for names in found.values() for name in names)


def test_a_plan_is_shown_part_by_part_with_its_commit(root: Path) -> None:
    first = commit(root, {f"{STUDY}/plan.yaml": "question: Why?\nprimary: a-claim\nagainst_the_paper: No lead.\n"})
    assert plans.table(STUDY) == [
        {"part": "question", "the plan": "Why?"},
        {"part": "primary", "the plan": "a-claim"},
        {"part": "against the paper", "the plan": "No lead."},
        {"part": "the primary claim's test", "the plan": plans.NO_EASIER},
        {"part": "commit", "the plan": f"{first[:12]}, 2026-11-20"},
    ]


def test_what_is_added_to_a_plan_leaves_what_came_after_it(root: Path) -> None:
    path = f"{STUDY}/plan.yaml"
    before = commit(root, {path: "question: Why not?\n"}, 19)
    decided = commit(root, {path: "question: Why?\n"}, 20)
    trained = commit(root, {"code.py": "x = 1\n"}, 21)
    commit(root, {path: "question: Why?\nadded: A rate was set.\n"}, 22)
    (found,) = plans.evidence(STUDY, {"one": before, "two": decided, "three": trained})
    assert (found["commit"], found["judged"], found["after"]) == (decided, 3, 2)


def test_a_plan_without_a_history_is_shown_without_a_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (root / STUDY).mkdir()
    (root / STUDY / "plan_of_more.yaml").write_text("question: Why?\n")
    assert plans.table(STUDY, "plan_of_more") == [{"part": "question", "the plan": "Why?"}]
    (one,) = plans.evidence(STUDY, {"a": "0" * 40, "b": None})
    assert (one["commit"], one["date"], one["judged"], one["after"]) == (None, None, 2, None)
    assert one["sha256"] == sha256(root / STUDY / "plan_of_more.yaml")


def test_a_study_without_a_plan_has_no_evidence_of_one(root: Path) -> None:
    assert plans.evidence(STUDY, {"a": None}) == []
    with pytest.raises(FileNotFoundError):
        plans.table(STUDY)


def test_the_runs_that_came_after_the_plan_are_those_whose_code_held_it(root: Path) -> None:
    path = f"{STUDY}/plan.yaml"
    draft = commit(root, {path: "question: a\n"}, 20)
    final = commit(root, {path: "question: b\n"}, 21)
    later = commit(root, {"code.py": ""}, 22)
    code = {"from the draft": draft, "at once": final, "later": later, "elsewhere": "0" * 40, "without git": None}
    (one,) = plans.evidence(STUDY, code)
    assert (one["file"], one["commit"], one["date"]) == ("plan.yaml", final, "2026-11-21T12:00:00+00:00")
    assert (one["judged"], one["after"]) == (5, 2)
    (unknown,) = plans.evidence(STUDY, {"elsewhere": "0" * 40, "without git": None})
    assert (unknown["judged"], unknown["after"]) == (2, None)


def test_a_run_belongs_to_the_first_plan_that_names_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns(monkeypatch, {"plan_b": ("b-*",), "plan": ("*",)})
    first = commit(root, {f"{STUDY}/plan.yaml": "question: a\n"}, 20)
    commit(root, {f"{STUDY}/plan_b.yaml": "question: b\n"}, 21)
    found = plans.evidence(STUDY, {"a-seed0": first, "b-seed0": first, "b-seed1": first})
    assert [(one["file"], one["judged"], one["after"]) for one in found] == [("plan.yaml", 1, 1), ("plan_b.yaml", 2, 0)]
