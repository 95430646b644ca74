"""Kept runs are made again from nothing: a sample, the same numbers, and an exit code that says whether they are."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from project_factory import STUDY, TINY, study_project
from report_factory import write_kept

from transnormer_lib import cli, studies
from transnormer_lib.ledger import kept
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.parameters import resolve
from transnormer_lib.report.repeat import draw, largest_difference, repeat
from transnormer_lib.training.store import RunStore


def record(**changes: Any) -> dict[str, Any]:
    points = [{"step": 5, "bits_per_token": 4.0}, {"step": 10, "bits_per_token": 2.0}]
    return {"status": "finished", "steps": 10, "validation": points, "parameters": 7} | changes


def kept_runs(number: int, notebook: str = STUDY) -> Kept:
    runs = [{"name": f"run-{seed}", "seed": seed} for seed in range(number)]
    return Kept("quick", "quick", notebook, {}, [], runs, "a machine", 1, "abc", "2026-11-21T20:00:00+00:00")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in which four tiny runs of a study were trained and kept."""
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    project = study_project(tmp_path)
    parameters = resolve(project, "quick", STUDY) | TINY
    store, trained = RunStore(), []
    for config in studies.runs(STUDY, parameters):
        found = store.get(config).record
        fields = {name: found[name] for name in ("status", "steps", "validation", "seconds", "parameters")}
        trained.append({"name": config.name, "seed": config.seed} | fields)
    whole = kept_runs(0).__dict__ | {"parameters": parameters, "runs": trained}
    write_kept(tmp_path, STUDY, whole, "quick")
    return project


def change(project: Project, number: int, **fields: Any) -> None:
    path = kept.folder(project) / "quick" / f"{STUDY}.json"
    content = json.loads(path.read_text())
    content["runs"][number] |= fields
    write_kept(project.root, STUDY, content, "quick")


def test_the_runs_made_again_are_the_same_bit_for_bit(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSNORMER_RUNS", str(project.root / "nobody-reads-this"))
    command = ["repeat", "--root", str(project.root), "--only", "03", "--sample", "3", "--tolerance", "0"]
    assert cli.main(command) == 0
    told = capsys.readouterr().out.splitlines()
    assert "repeat: 3 of 4 kept runs, from nothing" in told[0]
    assert [line.count("the same bit for bit (kept from a machine)") for line in told[1:4]] == [1, 1, 1]
    assert "3 of 3 give the kept numbers" in told[-1]
    assert not (project.root / "nobody-reads-this").exists()


def test_an_interrupted_repeat_goes_on_with_what_was_made_and_leaves_nothing_at_its_end(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["repeat", "--root", str(project.root), "--only", "03", "--sample", "4"]
    trained, train = [], RunStore._train

    def two_at_most(store: RunStore, config: Any, *others: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(config.name)
        return train(store, config, *others)

    monkeypatch.setattr(RunStore, "_train", two_at_most)
    assert cli.main(command) == 130
    out, err = capsys.readouterr()
    assert err.endswith("repeat: interrupted; what is finished is kept, and the same command goes on from there\n")
    assert [line.partition(":")[0].partition(", ")[2] for line in out.splitlines()[1:]] == ["1 of 4", "2 of 4"]
    assert all(line.endswith(" left") for line in out.splitlines()[1:])

    monkeypatch.setattr(RunStore, "_train", lambda store, config, *others: train(store, config, *others))
    before = {path.name for path in (project.report_dir("quick") / ".repeat").glob("*/[!.]*")}
    assert len(before) == 2
    assert cli.main(command) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "repeat: 2 of them were made before the interruption"
    assert told[-1] == "repeat: 4 of 4 give the kept numbers"
    assert not (project.report_dir("quick") / ".repeat").exists()


def test_runs_that_other_code_made_are_made_again(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.report_dir("quick") / ".repeat"
    shutil.copytree(project.root / "runs", folder / "other-code")
    assert repeat(project, "quick", [STUDY], 4, 0, 0.0) == 0
    assert "made before" not in capsys.readouterr().out
    assert not folder.exists()


def test_two_repeats_of_a_preset_do_not_run_at_once(project: Project) -> None:
    folder = project.report_dir("quick")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".repeat.lock"), pytest.raises(UserMistake, match="another repeat of it is running"):
        repeat(project, "quick", [STUDY], 1, 0, 0.0)


def test_a_number_that_was_edited_is_found(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept.folder(project) / "quick" / f"{STUDY}.json"
    points = json.loads(path.read_text())["runs"][2]["validation"]
    points[-1]["bits_per_token"] *= 1.02
    change(project, 2, validation=points)
    assert repeat(project, "quick", [STUDY], 10, 0, 0.01) == 1
    told = capsys.readouterr().out
    assert told.count("differs: at most 0.02 away") == 1
    assert "3 of 4 give the kept numbers" in told
    assert repeat(project, "quick", [STUDY], 10, 0, 0.05) == 0


def test_runs_that_the_study_no_longer_has_are_refused_before_any_is_trained(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, 3, name="causal-of-old-seed1")
    monkeypatch.setattr(RunStore, "get", lambda *_: pytest.fail("trained a run"))
    with pytest.raises(UserMistake, match="has no run 'causal-of-old-seed1' any more, which was kept"):
        repeat(project, "quick", [STUDY], 4, 0, 0.01)


def test_a_parameter_that_came_later_has_today_s_value(project: Project) -> None:
    path = kept.folder(project) / "quick" / f"{STUDY}.json"
    content = json.loads(path.read_text())
    del content["parameters"]["bands"]
    write_kept(project.root, STUDY, content, "quick")
    (project.root / "params" / "quick" / f"{STUDY}.yaml").write_text("bands: []\n")
    assert repeat(project, "quick", [STUDY], 1, 0, 0.0) == 0


def test_a_parameter_that_the_code_has_lost_is_named(project: Project) -> None:
    path = kept.folder(project) / "quick" / f"{STUDY}.json"
    content = json.loads(path.read_text())
    content["parameters"]["of_old"] = 3
    write_kept(project.root, STUDY, content, "quick")
    with pytest.raises(UserMistake, match="has lost the kept parameter 'of_old'"):
        repeat(project, "quick", [STUDY], 1, 0, 0.0)


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="preset='night': no training run of these notebooks is kept"):
        repeat(Project(tmp_path), "night", [STUDY], 4, 0, 0.01)


@pytest.mark.parametrize(("sample", "number"), [(1, 1), (5, 5), (8, 7), (1000, 7)])
def test_a_sample_holds_no_run_twice_and_every_notebook_s_in_order(sample: int, number: int) -> None:
    found = [kept_runs(3), kept_runs(4, "04_autoregressive_lm")]
    picks = draw(found, sample, seed=0)
    places = [(found.index(pick.origin), pick.number) for pick in picks]
    assert len(places) == number
    assert places == sorted(set(places))
    assert [pick.record for pick in picks] == [found[first].runs[second] for first, second in places]


def test_another_seed_draws_another_sample() -> None:
    samples = {tuple(pick.number for pick in draw([kept_runs(50)], 10, seed)) for seed in range(5)}
    assert len(samples) == 5


CASES: dict[str, tuple[dict[str, Any], float | None]] = {
    "the same": ({}, 0.0),
    "a tenth more at the end": (
        {"validation": [{"step": 5, "bits_per_token": 4.0}, {"step": 10, "bits_per_token": 2.2}]},
        0.1,
    ),
    "another measurement besides": (
        {
            "validation": [
                {"step": 5, "bits_per_token": 4.0, "more": 1.0},
                {"step": 10, "bits_per_token": 2.0, "more": 1.0},
            ]
        },
        0.0,
    ),
    "not a number": (
        {"validation": [{"step": 5, "bits_per_token": 4.0}, {"step": 10, "bits_per_token": float("nan")}]},
        float("inf"),
    ),
    "diverged": ({"status": "diverged"}, None),
    "fewer steps": ({"steps": 9}, None),
    "another model": ({"parameters": 8}, None),
    "fewer points": ({"validation": [{"step": 10, "bits_per_token": 2.0}]}, None),
    "measured elsewhere": (
        {"validation": [{"step": 4, "bits_per_token": 4.0}, {"step": 10, "bits_per_token": 2.0}]},
        None,
    ),
    "nothing in common": ({"validation": [{"step": 5, "accuracy": 4.0}, {"step": 10, "accuracy": 2.0}]}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_largest_difference_is_a_share_of_what_was_kept(case: str) -> None:
    changes, expected = CASES[case]
    found = largest_difference(record(), record(**changes))
    assert found == (None if expected is None else pytest.approx(expected))


def test_two_runs_that_measured_nothing_are_not_called_the_same() -> None:
    nothing = record(status="diverged", validation=[])
    assert largest_difference(nothing, nothing) is None


def test_two_runs_that_both_ended_without_a_number_agree() -> None:
    lost = record(validation=[{"step": 5, "bits_per_token": float("nan")}])
    assert largest_difference(lost, lost) == 0.0
