"""A report, the committed copy, README, pictures or benchmarks edited by hand: the edit is refused or found."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from chaos_trials import Tried, trials
from report_factory import ABSENT, CLAIMS, MEASURED, THEORY, executed_notebook, make_report, write_record
from transnormer_kernels.bench import results

from transnormer_lib import sums
from transnormer_lib.cli import main
from transnormer_lib.ledger.judging import read_json_list
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import publish
from transnormer_lib.report.index import build_overview, build_report

COMMITTED = Path(__file__).resolve().parents[2] / "reports" / publish.FOLDER
PUBLISHED = sorted(path.relative_to(COMMITTED).as_posix() for path in COMMITTED.rglob("*") if path.is_file())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a whole report."""
    folder = make_report(tmp_path)
    nbformat.write(executed_notebook(ABSENT, []), folder / f"{ABSENT}.ipynb")
    write_record(folder, ABSENT)
    build_report(tmp_path, "quick", CLAIMS)
    return Project(tmp_path)


def edit_first(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content[0].update(changes)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


LEDGER_EDITS: dict[str, Callable[[Path], object]] = {
    "a verdict": lambda path: edit_first(path, verdict="misprint"),
    "a measurement": lambda path: edit_first(path, measured=0.0),
    "a scale": lambda path: edit_first(path, scale="paper"),
    "a source": lambda path: edit_first(path, source="kept"),
    "a statement": lambda path: edit_first(path, statement="Another."),
    "an answer": lambda path: path.write_text("[]"),
    "a number": lambda path: path.write_text(path.read_text().replace("0.1", "0.2")),
    "a space": lambda path: path.write_text(path.read_text() + " "),
    "no digest": lambda path: (path.parent / sums.FILE).unlink(),
}


@pytest.mark.parametrize("fault", LEDGER_EDITS)
def test_an_edited_ledger_is_refused_by_all_that_read_it_and_written_again(
    fault: str, project: Project, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    path = project.report_dir("quick") / "claims.json"
    sound = path.read_bytes()
    LEDGER_EDITS[fault](path)
    with pytest.raises(UserMistake, match=r"reports/quick: .*; write it again: transnormer report --preset quick"):
        read_json_list(path)
    for command in (["claims"], ["claims", "--json"], ["claims", "--keep", "--only", "01"]):
        assert main([*command, "--root", str(project.root)]) == 2
        refused = capsys.readouterr()
        assert refused.out == ""
        assert refused.err.startswith("transnormer: reports/quick: ")
        assert refused.err.count("\n") == 1
    assert main(["report", "--root", str(project.root), "--compare", "quick", "quick"]) == 2
    assert "write it again" in build_overview(project.root, None).read_text()
    with pytest.raises(UserMistake, match="reports/quick: "):
        publish.publish(project)
    build_report(project.root, "quick", CLAIMS)
    assert path.read_bytes() == sound
    assert not sums.damage(path)
    tried("falsified report")


@pytest.mark.parametrize(
    "page", ["index.html", "found.html", "ledger.html", "terms.html", f"{THEORY}.html", "theses.json"]
)
def test_an_edited_page_is_not_published_and_is_written_again(page: str, project: Project, tried: Tried) -> None:
    path = project.report_dir("quick") / page
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"e", b"3", 1) if page.endswith("html") else sound + b" ")
    with pytest.raises(UserMistake, match=rf"reports/quick: {page} is not what was written"):
        publish.publish(project)
    build_report(project.root, "quick", CLAIMS)
    assert path.read_bytes() == sound
    publish.publish(project)
    tried("falsified report")


def test_a_page_that_no_report_wrote_is_not_published(project: Project, tried: Tried) -> None:
    (project.report_dir("quick") / "more.html").write_text("<p>All theses hold.</p>")
    with pytest.raises(UserMistake, match=r"SHA256SUMS does not list more\.html"):
        publish.publish(project)
    tried("falsified report")


def test_the_committed_report_is_what_was_published() -> None:
    sums.check(COMMITTED)
    assert set(PUBLISHED) == {name for _, name in sums.read(COMMITTED)} | {sums.FILE}


@pytest.mark.parametrize("kind", ["claims.json", "theses.json", "records", "html", "css"])
def test_an_edit_of_the_committed_report_is_found(kind: str, tmp_path: Path, tried: Tried) -> None:
    """One number of a file, or where it has none one letter, is another."""
    names = [name for name in PUBLISHED if kind in name]
    draw = random.Random(kind)
    shutil.copytree(COMMITTED, tmp_path / "published")
    for name in draw.sample(names, min(len(names), trials(2, len(names)))):
        path = tmp_path / "published" / name
        sound = path.read_bytes()
        places = [match.start() for match in re.finditer(rb"\d", sound)] or [len(sound) // 2]
        place = draw.choice(places)
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(ValueError, match=rf"{re.escape(name)} is not what was written"):
            sums.check(tmp_path / "published")
        path.write_bytes(sound)
        tried("falsified report")


def result() -> dict[str, Any]:
    row = {"name": "transnormer", "status": "measured", "seconds": {"median": 0.002}}
    conditions = {"schema": results.SCHEMA, "device": "A GPU", "date": "2026-11-21T20:00:00+00:00", "quick": False}
    return {**conditions, "commit": "abc", "cases": [{"name": "norm", "rows": [row], "shape": {1: 2}}]}


BENCH_EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a time": lambda r: r["cases"][0]["rows"][0]["seconds"].update(median=0.001),
    "a status": lambda r: r["cases"][0]["rows"][0].update(status="wrong"),
    "the machine": lambda r: r.update(device="Another GPU"),
    "the commit": lambda r: r.update(commit="def"),
    "the date": lambda r: r.update(date="2020-01-01T00:00:00+00:00"),
    "a quick result": lambda r: r.update(quick=True),
    "a case taken out": lambda r: r["cases"].clear(),
    "no digest": lambda r: r.pop("sha256"),
    "another digest": lambda r: r.update(sha256="0" * 64),
}


@pytest.mark.parametrize("fault", BENCH_EDITS)
def test_an_edited_benchmark_is_refused(fault: str, tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / "kernels-a-gpu-2026-11-21.json"
    results.write(result(), path)
    results.write(results.read(path), path)
    content = json.loads(path.read_text())
    BENCH_EDITS[fault](content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"kernels-a-gpu-2026-11-21\.json: is not what was measured"):
        results.read(path)
    tried("falsified report")


def test_what_was_measured_is_all_there(project: Project) -> None:
    assert MEASURED[THEORY]
    assert {entry["id"] for entry in read_json_list(project.report_dir("quick") / "claims.json")} == {
        claim.id for claim in CLAIMS
    }
