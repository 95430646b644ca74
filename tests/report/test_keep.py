"""Results that are kept of scales that take long: written from a finished report, read as they were written."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from history_factory import commit
from project_factory import make_project, write_notebook
from report_factory import write_kept, write_record

from transnormer_lib.ledger import kept
from transnormer_lib.ledger.judging import write_json_list
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.keep import keep
from transnormer_lib.report.staleness import digest
from transnormer_lib.studies.common import plans
from transnormer_lib.training.config import DataConfig, OptimizerConfig

NOTEBOOK = "09_ablations"
CLAIMS = [
    {"id": "a", "notebook": NOTEBOOK, "verdict": "trend", "scale": "quick", "measured": 1.0, "seeds": [1]},
    {"id": "b", "notebook": "01_other", "verdict": "survives", "scale": "quick", "measured": 1.0, "seeds": None},
]
CLAIMS = [claim | {"locus": "Table 9", "reason": "", "source": "run", "anchor": "#"} for claim in CLAIMS]


def ran(report_dir: Path, status: str = "ok") -> None:
    """The last run of the notebook, as the guard leaves it."""
    provenance = {"device": "the notebook's machine", "commit": "c0ffee", "dirty": False}
    provenance |= {"started": "2026-11-21T20:00:00+00:00"}
    write_record(report_dir, NOTEBOOK, status, parameters={"seeds": [1]}, provenance=provenance)


def trained(seed: int, device: str = "a machine") -> dict[str, Any]:
    made: dict[str, Any] = {"device": device, "commit": "abc", "dirty": False}
    fields = {"status": "finished", "steps": 2, "parameters": 7, "flops": 9, "seconds": 60.0, "train_loss": [1.0]}
    return {
        **fields,
        "validation": [{"step": 2, "bits_per_token": 3.0 - seed, "nats_per_token": 3.0 - seed}],
        "at_end": {"test": {"accuracy": 0.5}} if seed else {},
        "provenance": made,
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose notebook 09 ran well at quick and asked for two runs, which the store has."""
    made = make_project(tmp_path, {NOTEBOOK: ["x = 1"]})
    folder = made.report_dir("quick")
    write_notebook(folder / f"{NOTEBOOK}.ipynb", ["x = 1"])
    ran(folder)
    write_json_list(folder / "claims.json", CLAIMS)
    serve(monkeypatch, {0: trained(0), 1: trained(1)})
    return made


def _config(seed: int) -> Any:
    """Seed 0 serves the search of seed 1, at another rate."""
    searched = () if seed == 0 else ("run-seed0", "run-seed1")
    own = {"name": f"run-seed{seed}", "seed": seed, "rate_search": searched}
    return SimpleNamespace(**own, data=DataConfig(), optimizer=OptimizerConfig(learning_rate=0.1 * (1 + seed)))


def serve(monkeypatch: pytest.MonkeyPatch, stored: dict[int, dict[str, Any]]) -> None:
    """Let the study ask for seeds 0 and 1, of which the store has ``stored``."""
    from transnormer_lib.training.store import RunStore

    configs = [_config(seed) for seed in (0, 1)]
    monkeypatch.setattr("transnormer_lib.report.keep.runs", lambda notebook, parameters: configs)
    found = {
        seed: SimpleNamespace(record=content, config=_config(seed), validation=content["validation"][-1])
        for seed, content in stored.items()
    }
    monkeypatch.setattr(RunStore, "find", lambda self, config: found.get(config.seed))


def test_what_is_kept_is_what_the_report_and_the_store_have(project: Project) -> None:
    path = keep(project, "quick", NOTEBOOK)
    assert path == project.root / "reports" / "kept" / "quick" / f"{NOTEBOOK}.json"
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    assert [claim["id"] for claim in found.claims] == ["a"]
    assert [run.get("at_end") for run in found.runs] == [None, {"test": {"accuracy": 0.5}}]
    assert [(run["name"], run["validation"][0]["bits_per_token"]) for run in found.runs] == [
        ("run-seed0", 3.0),
        ("run-seed1", 2.0),
    ]
    assert (found.device, found.commit, found.training_seconds) == ("a machine", "abc", 120.0)
    assert found.sentence().endswith(
        "2 training runs, 2 minutes of training in all, on a machine, 1 thread a run, commit abc; "
        "the notebook ran at commit c0ffee."
    )


def test_the_notebook_s_own_commit_is_kept_beside_that_of_its_runs(project: Project) -> None:
    content = json.loads(keep(project, "quick", NOTEBOOK).read_text())
    assert (content["commit"], content["measured_at"]) == ("abc", {"commit": "c0ffee", "dirty": False})


@pytest.mark.parametrize("measured_at", [{"commit": "c0ffee"}, ["c0ffee"]], ids=["half", "a list"])
def test_a_commit_of_another_form_is_refused(measured_at: object, project: Project) -> None:
    path = keep(project, "quick", NOTEBOOK)
    write_kept(project.root, NOTEBOOK, {**json.loads(path.read_text()), "measured_at": measured_at}, "quick")
    with pytest.raises(UserMistake, match="is not a kept result: "):
        kept.read("quick", NOTEBOOK, project)


def test_two_machines_are_both_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {0: trained(0), 1: trained(1, "another machine")})
    keep(project, "quick", NOTEBOOK)
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    assert found.device == "a machine; another machine"


def test_a_run_that_the_store_lacks_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {0: trained(0)})
    with pytest.raises(UserMistake, match="keep='09_ablations': the store has no run run-seed1 of the present code"):
        keep(project, "quick", NOTEBOOK)
    assert kept.read("quick", NOTEBOOK, project) is None


@pytest.mark.parametrize("status", ["failed", "interrupted", "no data"])
def test_a_run_that_is_not_good_is_not_kept(project: Project, status: str) -> None:
    ran(project.report_dir("quick"), status)
    with pytest.raises(UserMistake, match=r"has no good run at preset 'quick' .*; make it first: transnormer report"):
        keep(project, "quick", NOTEBOOK)


def test_a_run_of_other_code_is_not_kept(project: Project) -> None:
    write_notebook(project.notebook_path(NOTEBOOK), ["x = 2"])
    with pytest.raises(UserMistake) as refused:
        keep(project, "quick", NOTEBOOK)
    assert str(refused.value) == (
        "keep='09_ablations': its code, its parameters or what it reads changed since it ran; "
        "run it again: transnormer report --preset quick --only 09"
    )
    assert kept.read("quick", NOTEBOOK, project) is None


def test_a_row_that_is_not_judged_at_the_best_rate_of_its_search_is_not_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse = trained(1) | {"validation": [{"step": 2, "bits_per_token": 5.0, "nats_per_token": 5.0}]}
    serve(monkeypatch, {0: trained(0), 1: worse})
    with pytest.raises(UserMistake, match=r"run is judged at 0\.2, and 0\.1 was the best of its search; set"):
        keep(project, "quick", NOTEBOOK)
    assert not list((project.root / "reports").glob("kept/*/*.json"))


def test_a_file_of_another_kind_is_refused(project: Project) -> None:
    write_kept(project.root, NOTEBOOK, {"preset": "quick"}, "quick")
    with pytest.raises(ValueError, match=r"09_ablations\.json: is not a kept result"):
        kept.read("quick", NOTEBOOK, project)


def test_only_what_larger_scales_kept_is_larger(project: Project) -> None:
    written = keep(project, "quick", NOTEBOOK)
    write_kept(project.root, NOTEBOOK, {**json.loads(written.read_text()), "preset": "night", "scale": "night"})
    assert [found.preset for found in kept.larger("quick", NOTEBOOK, project)] == ["night"]
    assert kept.larger("night", NOTEBOOK, project) == []


@pytest.mark.parametrize(("scale", "stale"), [("quick", True), ("night", False), ("gpu", False)])
def test_a_notebook_that_shows_it_is_stale_once_a_larger_scale_kept_something(
    project: Project, scale: str, stale: bool
) -> None:
    write_notebook(project.notebook_path(NOTEBOOK), ["from transnormer_lib.ledger import kept"])
    ran(project.report_dir("quick"))
    before = digest(project, NOTEBOOK, {"scale": scale})
    path = keep(project, "quick", NOTEBOOK)
    write_kept(project.root, NOTEBOOK, {**json.loads(path.read_text()), "preset": "night", "scale": "night"})
    assert (digest(project, NOTEBOOK, {"scale": scale}) != before) is stale


def test_code_that_differs_from_its_commit_is_said_to(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    dirty, unknown = trained(0), trained(1)
    dirty["provenance"]["dirty"], unknown["provenance"]["commit"] = True, None
    serve(monkeypatch, {0: dirty, 1: unknown})
    keep(project, "quick", NOTEBOOK)
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    assert found.commit == "abc, with local changes; not known"
    assert "commits abc, with local changes, not known; the notebook ran" in found.sentence()


def test_many_commits_are_counted_on_a_page_and_named_in_the_file() -> None:
    commit = "; ".join(["a" * 40, "b" * 40 + ", with local changes", "c" * 40])
    found = kept.Kept("night", "night", NOTEBOOK, {}, [], [], "a machine", 1, commit, "2026-01-02")
    assert found.sentence().endswith("3 commits, 1 of them with local changes.")


def test_the_plan_is_kept_with_its_commit_and_the_runs_that_came_after_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "STUDIES", tmp_path / "studies")
    monkeypatch.setattr(kept, "PACKAGE", tmp_path)
    planned = commit(tmp_path / "studies", {"ablations/plan.yaml": "question: Why?\n"})
    of_search, judged = trained(0), trained(1)  # the parameters judge seed 1 alone
    judged["provenance"]["commit"] = planned
    serve(monkeypatch, {0: of_search, 1: judged})
    keep(project, "quick", NOTEBOOK)
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    (plan,) = found.plans
    assert (plan["file"], plan["commit"], plan["judged"], plan["after"]) == ("plan.yaml", planned, 1, 1)
    assert found.planned() == [
        f"plan.yaml: decided beforehand, commit {planned[:12]}, 2026-11-20; "
        "the code that trained the judged runs (1) came after it."
    ]
    assert found.origin({})["plans"] == found.planned()


def test_the_plan_is_kept_and_a_file_of_an_older_form_is_read(project: Project) -> None:
    path = keep(project, "quick", NOTEBOOK)
    content = json.loads(path.read_text())
    assert [plan["file"] for plan in content.pop("plans")] == ["plan.yaml"]
    write_kept(project.root, NOTEBOOK, content, "quick")
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    assert list(found.plans) == found.planned() == []


def test_a_plan_that_lacks_a_field_is_refused(project: Project) -> None:
    path = keep(project, "quick", NOTEBOOK)
    write_kept(project.root, NOTEBOOK, {**json.loads(path.read_text()), "plans": [{"file": "plan.yaml"}]}, "quick")
    with pytest.raises(
        ValueError, match=r"09_ablations\.json: is not a kept result: a plan lacks one of after, commit"
    ):
        kept.read("quick", NOTEBOOK, project)


PLAN = {"file": "plan.yaml", "sha256": "0", "commit": "c" * 40, "date": "2026-11-20T12:00:00+00:00"}
PLAN |= {"judged": 5, "after": 5}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {},
            "decided beforehand, commit cccccccccccc, 2026-11-20; the code that trained the judged runs (5) came after",
        ),
        ({"after": 3}, "the code that trained 2 of the 5 judged runs did not come after it"),
        ({"after": 0}, "the code that trained 5 of the 5 judged runs did not come after it"),
        ({"judged": 0, "after": None}, "none of these runs was judged by it"),
        ({"commit": None, "date": None, "after": None}, "the commit of its content is not known"),
        ({"after": None}, "before the notebook ran; when the judged runs (5) were trained is not known"),
        ({"after": None, "date": "2026-11-22T12:00:00+01:00"}, "after the notebook ran; when the judged runs (5) were"),
    ],
    ids=["before all", "after some", "after all", "no run", "no commit", "runs unknown", "after the notebook"],
)
def test_only_a_plan_that_came_before_all_of_its_runs_was_decided_beforehand(
    project: Project, changes: dict[str, Any], says: str
) -> None:
    keep(project, "quick", NOTEBOOK)
    found = kept.read("quick", NOTEBOOK, project)
    assert found is not None
    (line,) = replace(found, plans=[PLAN | changes]).planned()
    assert says in line
    assert ("decided beforehand" in line) is (not changes)
