"""Kept evidence that was edited, renamed or replaced by hand: the file is named, and does not count."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_trials import Tried, trials
from report_factory import CLAIMS, THEORY, make_report, write_kept

from transnormer_lib import sums
from transnormer_lib.ledger import kept
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.index import build_report
from transnormer_lib.report.keep import keep
from transnormer_lib.training import carried
from transnormer_lib.training.store import RunStore

CHECKOUT = Path(__file__).resolve().parents[2]
NIGHT = CHECKOUT / "reports" / "kept" / "night"
FILES = sorted(path.stem for path in NIGHT.glob("*.json"))

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with all that is kept."""
    shutil.copytree(NIGHT, tmp_path / "reports" / "kept" / "night")
    return Project(tmp_path)


def compared(content: dict[str, Any]) -> dict[str, Any]:
    """The first comparison that was measured."""
    return next(c for c in content["claims"] if isinstance(c["measured"], dict) and "better" in c["measured"])


def raise_by_a_little(values: list[Any]) -> None:
    values[0] = float(values[0]) + 1e-5


EDITS: dict[str, Edit] = {
    "a verdict": lambda c: c["claims"][0].update(verdict="refuted"),
    "a measurement": lambda c: raise_by_a_little(compared(c)["measured"]["better"]),
    "a difference": lambda c: compared(c)["measured"].update(difference=9.0),
    "an interval": lambda c: compared(c)["measured"].update(interval=[0.001, 0.002]),
    "a p-value": lambda c: compared(c)["measured"].update(p_holm=0.001),
    "a floor": lambda c: compared(c)["measured"].update(floor={"name": "nothing", "value": 99.0}),
    "a seed missing": lambda c: compared(c)["seeds"].pop(),
    "a seed twice": lambda c: compared(c)["seeds"].__setitem__(0, compared(c)["seeds"][1]),
    "a scale": lambda c: c.update(scale="paper"),
    "a reason": lambda c: c["claims"][0].update(reason="it was so"),
    "a statement": lambda c: c["claims"][0].update(statement="Something else."),
    "a tolerance": lambda c: c["claims"][0].update(tolerance=99.0),
    "a claim taken out": lambda c: c["claims"].pop(),
    "a loss of a run": lambda c: c["runs"][0]["validation"][-1].update(bits_per_token=0.1),
    "a run's seed": lambda c: c["runs"][0].update(seed=7),
    "a run's time": lambda c: c["runs"][0].update(seconds=1.0),
    "a run taken out": lambda c: c["runs"].pop(),
    "a run twice": lambda c: c["runs"].append(c["runs"][0]),
    "the machine": lambda c: c.update(device="a better machine"),
    "the threads": lambda c: c.update(threads=64),
    "the commit": lambda c: c.update(commit="f" * 40),
    "the notebook's commit": lambda c: c.update(measured_at={"commit": "f" * 40, "dirty": False}),
    "the date": lambda c: c.update(started="2020-01-01T00:00:00+00:00"),
    "a parameter": lambda c: c["parameters"].update(steps=10**9),
    "the plans": lambda c: c.update(plans=[]) if c.get("plans") else c.update(plans=[{"file": "plan.yaml"}]),
    "what was shown": lambda c: c.update(exhibits={"samples": ["better"]}),
    "the notebook": lambda c: c.update(notebook="01_gradient_theory"),
    "the preset": lambda c: c.update(preset="paper"),
}


def has_what_is_edited(name: str, edit: str) -> bool:
    """A notebook that trains nothing has no runs, one that only reads has no comparison."""
    try:
        EDITS[edit](json.loads((NIGHT / f"{name}.json").read_text()))
    except (IndexError, StopIteration):
        return False
    return True


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_named_and_does_not_count(edit: str, project: Project, tried: Tried) -> None:
    drawn = random.Random(edit).sample(FILES, len(FILES))
    names = [name for name in drawn if has_what_is_edited(name, edit)][: trials(1, len(FILES))]
    assert names
    for name in names:
        path = kept.folder(project) / "night" / f"{name}.json"
        content = json.loads(path.read_text())
        EDITS[edit](content)
        path.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        with pytest.raises(UserMistake) as refused:
            kept.read("night", name, project)
        line = (
            f"reports/kept/night/{name}.json: does not count: {name}.json is not what was written; its digest differs"
        )
        assert str(refused.value) == line
    tried("falsified kept file", len(names))


def exchange(folder: Path) -> None:
    first, second = (folder / f"{name}.json" for name in FILES[:2])
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def lists(folder: Path, text: Callable[[str], str]) -> None:
    path = folder / sums.FILE
    path.write_text(text(path.read_text()))


REPLACED: dict[str, tuple[Callable[[Path], object], str]] = {
    "renamed": (lambda f: (f / f"{FILES[0]}.json").rename(f / f"{THEORY}.json"), f"does not list {THEORY}"),
    "exchanged": (exchange, "is not what was written"),
    "no digests": (lambda f: (f / sums.FILE).unlink(), "SHA256SUMS cannot be read"),
    "emptied digests": (lambda f: (f / sums.FILE).write_text(""), "does not list"),
    "a line taken out": (lambda f: lists(f, lambda text: text.partition("\n")[2]), f"does not list {FILES[0]}"),
    "digests of elsewhere": (lambda f: lists(f, lambda text: text.replace("  ", "  ../")), "not in its folder"),
    "a new digest of nothing": (lambda f: lists(f, lambda text: "0" * 64 + text[64:]), "is not what was written"),
    "truncated": (lambda f: (f / f"{FILES[0]}.json").write_text("{"), "is not what was written"),
}


@pytest.mark.parametrize("fault", REPLACED)
def test_a_file_in_another_s_place_is_refused(fault: str, project: Project, tried: Tried) -> None:
    make, problem = REPLACED[fault]
    make(kept.folder(project) / "night")
    there = FILES[0] if fault != "renamed" else THEORY
    with pytest.raises(UserMistake, match=problem):
        kept.read("night", there, project)
    tried("falsified kept file")


@pytest.mark.parametrize(
    ("preset", "name", "problem"),
    [
        ("night", "05_bidirectional_lm", "notebook='04_autoregressive_lm': must be '05_bidirectional_lm'"),
        ("paper", "04_autoregressive_lm", "preset='night': must be 'paper'"),
    ],
    ids=["notebook", "preset"],
)
def test_a_file_of_another_place_is_refused_even_with_a_digest(
    preset: str, name: str, problem: str, project: Project, tried: Tried
) -> None:
    text = (NIGHT / "04_autoregressive_lm.json").read_text()
    write_kept(project.root, name, text, preset)
    with pytest.raises(UserMistake, match=problem):
        kept.read(preset, name, project)
    tried("falsified kept file")


def test_an_edited_file_stands_on_the_index_and_counts_for_nothing(tmp_path: Path) -> None:
    make_report(tmp_path)
    fields = {"preset": "night", "scale": "night", "notebook": THEORY, "parameters": {}, "runs": [], "threads": 1}
    fields |= {"device": "a machine", "commit": "abc", "started": "2026-11-21T20:00:00+00:00"}
    claim = {"id": "unmeasured", "verdict": "refuted", "scale": "night", "measured": None, "seeds": None}
    path = write_kept(tmp_path, THEORY, {**fields, "claims": [claim]})
    assert build_report(tmp_path, "quick", CLAIMS).counts["refuted"] == 2
    path.write_text(path.read_text().replace("refuted", "survives"))
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert (summary.counts["refuted"], summary.counts["survives"]) == (1, 1)
    line = f"reports/kept/night/{THEORY}.json: does not count: {THEORY}.json is not what was written"
    assert [item.line.startswith(line) for item in summary.failed] == [True]
    assert line in (tmp_path / "reports" / "quick" / "index.html").read_text()


def measure_otherwise(project: Project) -> None:
    path = project.notebook_path(THEORY)
    path.write_text(path.read_text().replace("claims.record(0)", "claims.record(2)"))


def give_a_parameter(project: Project) -> None:
    project.values_path("quick", THEORY).write_text("scale: night\n")


SINCE = {"a measuring cell": measure_otherwise, "a parameter": give_a_parameter}


@pytest.mark.parametrize("change", SINCE)
def test_a_result_of_what_changed_since_is_not_kept(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setattr("transnormer_lib.report.keep.runs", lambda notebook, parameters: [])  # it trains nothing
    monkeypatch.setattr("transnormer_lib.studies.common.plans.evidence", lambda study, judged: [])
    make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    project = Project(tmp_path)
    assert kept.read("quick", THEORY, project) is None
    path = keep(project, "quick", THEORY)
    before = path.read_bytes()
    SINCE[change](project)
    with pytest.raises(UserMistake, match=rf"keep='{THEORY}': .*; run it again: transnormer report"):
        keep(project, "quick", THEORY)
    assert path.read_bytes() == before
    tried("falsified kept file")


def test_edited_records_are_not_imported(project: Project, tmp_path: Path, tried: Tried) -> None:
    path = kept.folder(project) / "night" / "records.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    for change in (
        lambda run: run["record"]["validation"][-1].update(bits_per_token=0.1),
        lambda run: run["record"].update(seconds=1.0),
        lambda run: run["record"]["provenance"].update(commit="f" * 40),
    ):
        changed = json.loads(json.dumps(content))
        change(next(iter(changed.values())))
        path.write_bytes(gzip.compress(json.dumps(changed).encode(), mtime=0))
        with pytest.raises(ValueError, match=r"records\.json\.gz is not what was written"):
            carried.read(path, RunStore(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    tried("falsified kept file", 3)


def test_every_committed_kept_file_is_what_was_written() -> None:
    sums.check(NIGHT)
    assert {path.name for path in NIGHT.iterdir()} == {name for _, name in sums.read(NIGHT)} | {sums.FILE}
    for name in FILES:
        assert kept.read("night", name, Project(CHECKOUT))


def test_keeping_one_file_leaves_the_digests_of_the_others(project: Project) -> None:
    folder = kept.folder(project) / "night"
    edited = folder / f"{FILES[1]}.json"
    edited.write_text(edited.read_text().replace("seed", "need", 1))
    before = {name: digest for digest, name in sums.read(folder)}
    (folder / f"{FILES[0]}.json").write_text("{}")
    sums.enter(folder / f"{FILES[0]}.json")
    after = {name: digest for digest, name in sums.read(folder)}
    assert {name for name in before if before[name] != after[name]} == {f"{FILES[0]}.json"}
    assert sums.damage(edited)
