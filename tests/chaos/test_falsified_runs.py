"""Executed notebooks and records that were edited by hand: each edit is named, and nothing of the notebook counts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from chaos_trials import Tried
from report_factory import CLAIMS, MEASURED, TABLE, THEORY, executed_notebook, make_report, record_json, write_record

from transnormer_lib.ledger.judging import judge_claims, last_run
from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.project import Project
from transnormer_lib.report.index import build_report
from transnormer_lib.report.make import _refresh_prose
from transnormer_lib.report.pipeline import is_current, plan
from transnormer_lib.sums import sealed

NOTEBOOKS = sorted({claim.notebook for claim in CLAIMS})
Edit = Callable[[dict[str, Any]], object]
PICTURE = nbformat.v4.new_output("display_data", data={"text/html": "<table><td>4.0</td><td>3.1</td></table>"})


def measured(notebook: dict[str, Any], claim: str) -> dict[str, Any]:
    """The measurement of a claim in an executed notebook."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    found = [one for output in outputs for one in output.get("data", {}).get(MIME, []) if one["claim"] == claim]
    return found[0]


def output_of(notebook: dict[str, Any], number: int) -> dict[str, Any]:
    """The n-th output that holds measurements."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output for output in outputs if MIME in output.get("data", {})][number]


def last_outputs(notebook: dict[str, Any]) -> list[Any]:
    return notebook["cells"][-1]["outputs"]


def without_a_seed(one: dict[str, Any]) -> None:
    for name in ("better", "worse", "seeds"):
        one[name].pop(2)


EDITS: dict[str, tuple[str, Edit]] = {
    "a value": (THEORY, lambda n: measured(n, "structure").update(value=[1, 3])),
    "what is expected": (THEORY, lambda n: measured(n, "structure").update(expected=[1, 3])),
    "a refutation turned": (THEORY, lambda n: measured(n, "bound-breaks").update(holds=True, margin=0.5)),
    "a margin": (THEORY, lambda n: measured(n, "bound-holds").update(margin=0.2)),
    "how much was searched": (THEORY, lambda n: measured(n, "bound-holds").update(searched=5_000_000)),
    "the point of a counter-example": (THEORY, lambda n: measured(n, "bound-breaks").update(counter_example=None)),
    "one of the values": (TABLE, lambda n: measured(n, "ahead")["worse"].__setitem__(0, 4.2)),
    "both sides swapped": (
        TABLE, lambda n: measured(n, "ahead").update(better=[4, 4, 4.1, 4.2, 4], worse=[3, 3.1, 3, 3.2, 3])),
    "the direction": (TABLE, lambda n: measured(n, "ahead").update(higher_is_better=True)),
    "a seed taken out": (TABLE, lambda n: without_a_seed(measured(n, "ahead"))),
    "a seed counted twice": (TABLE, lambda n: measured(n, "ahead").update(seeds=[0, 1, 2, 3, 3])),
    "another seed": (TABLE, lambda n: measured(n, "ahead").update(seeds=[0, 1, 2, 3, 40])),
    "a floor lowered": (TABLE, lambda n: measured(n, "ahead")["floor"].update(value=9.0)),
    "a floor taken away": (TABLE, lambda n: measured(n, "ahead").pop("floor")),
    "a number": (TABLE, lambda n: measured(n, "perplexity").update(values=[4.98, 4.98])),
    "a reason": (TABLE, lambda n: measured(n, "speed").update(reason="is not needed")),
    "the scale": (TABLE, lambda n: measured(n, "ahead").update(scale="paper")),
    "a measurement of nothing": (
        THEORY, lambda n: output_of(n, 0)["data"][MIME].append({**measured(n, "bound-holds"), "claim": "unmeasured"})),
    "a measurement taken out": (THEORY, lambda n: output_of(n, 1)["data"].pop(MIME)),
    "an output taken out": (THEORY, lambda n: next(c for c in n["cells"] if c.get("outputs"))["outputs"].clear()),
    "the text of a card": (THEORY, lambda n: output_of(n, 0)["data"].update({"text/plain": "survives"})),
    "two cells of a table swapped": (
        TABLE, lambda n: last_outputs(n)[0]["data"].update({"text/html": "<table><td>3.1</td><td>4.0</td></table>"})),
    "a figure replaced": (TABLE, lambda n: last_outputs(n)[0]["data"].update({"image/svg+xml": "<svg></svg>"})),
    "the code that measured": (TABLE, lambda n: n["cells"][-2].update(source="claims.record(other)")),
}  # fmt: skip


@pytest.fixture
def report_dir(tmp_path: Path) -> Path:
    """A report of which both notebooks end with a table."""
    return make_report(tmp_path, [PICTURE])


def verdicts(report_dir: Path, notebook: str) -> set[str]:
    found = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS).claims
    return {entry["verdict"] for entry in found if entry["notebook"] == notebook}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_notebook_is_named_and_none_of_its_claims_counts(edit: str, report_dir: Path, tried: Tried) -> None:
    name, change = EDITS[edit]
    path = report_dir / f"{name}.ipynb"
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))
    assert last_run(report_dir, name).error == "its executed notebook is not what its run left; run the notebook again"
    assert verdicts(report_dir, name) == {"not run"}
    assert len(verdicts(report_dir, THEORY if name == TABLE else TABLE)) > 1
    project = Project(report_dir.parents[1])
    assert [is_current(project, "quick", job) for job in plan(project, "quick", [name])] == [False]
    tried("falsified notebook")


def test_text_around_the_code_is_no_falsification(report_dir: Path) -> None:
    path = report_dir / f"{TABLE}.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][0]["source"] = "# Another title"
    path.write_text(json.dumps(notebook, indent=3))
    assert last_run(report_dir, TABLE).status == "ok"


def test_text_edited_around_the_code_is_copied_again_from_the_source(tmp_path: Path, tried: Tried) -> None:
    path = make_report(tmp_path) / f"{TABLE}.ipynb"
    sound = json.loads(path.read_text())
    edited = json.loads(path.read_text())
    edited["cells"][0]["source"] = "# The paper is right"
    path.write_text(json.dumps(edited))
    _refresh_prose(Project(tmp_path), "quick")
    texts = [["".join(cell["source"]) for cell in one["cells"]] for one in (json.loads(path.read_text()), sound)]
    assert texts[0] == texts[1]
    tried("falsified notebook")


RECORD_EDITS: dict[str, dict[str, Any]] = {
    "the status": {"status": "no data"},
    "the error": {"error": "none"},
    "the parameters": {"parameters": {"scale": "quick", "steps": 30_000}},
    "the code's digest": {"digest": "fedcba9876543210"},
    "the notebook's digest": {"displayed": "0" * 64},
    "its own digest": {"sha256": "0" * 64},
    "another preset": {"preset": "night"},
    "another notebook": {"notebook": THEORY},
}
PROVENANCE_EDITS: dict[str, dict[str, Any]] = {
    "the commit": {"commit": "f" * 40},
    "the local changes": {"dirty": False},
    "the machine": {"device": "A larger machine"},
    "the versions": {"versions": {"torch": "9.9"}},
    "a seed missing": {"seeds": [0]},
    "a seed twice": {"seeds": [0, 0]},
    "the data": {"data": {"wikipedia": "sha256:11ff"}},
    "the date": {"started": "2020-01-02T03:04:05+00:00"},
    "the time it took": {"wall_seconds": 1.0},
}
FIELDS = RECORD_EDITS | {name: {"provenance": change} for name, change in PROVENANCE_EDITS.items()}


@pytest.mark.parametrize("edit", FIELDS)
def test_an_edited_record_is_named_and_none_of_its_claims_counts(edit: str, report_dir: Path, tried: Tried) -> None:
    path = report_dir / "records" / f"{TABLE}.json"
    record = json.loads(path.read_text())
    for name, value in FIELDS[edit].items():
        record[name] = {**record[name], **value} if name == "provenance" else value
    path.write_text(json.dumps(record))
    assert last_run(report_dir, TABLE).error == "its record is not what its run left; run the notebook again"
    assert verdicts(report_dir, TABLE) == {"not run"}
    tried("falsified record")


@pytest.mark.parametrize(
    ("changes", "of"),
    [
        ({"preset": "night"}, f"{TABLE} at preset 'night'"),
        ({"notebook": THEORY}, f"{THEORY} at preset 'quick'"),
    ],
    ids=["preset", "notebook"],
)
def test_a_whole_record_of_elsewhere_is_refused(
    changes: dict[str, Any], of: str, report_dir: Path, tried: Tried
) -> None:
    write_record(report_dir, TABLE, **changes)
    assert last_run(report_dir, TABLE).error == f"its record is that of {of}"
    tried("falsified record")


def test_a_stale_record_is_not_current(report_dir: Path, tried: Tried) -> None:
    project = Project(report_dir.parents[1])
    (job,) = plan(project, "quick", [TABLE])
    assert is_current(project, "quick", job)
    assert not is_current(project, "quick", replace(job, digest="of today's code"))
    tried("falsified record")


def test_the_notebook_of_an_older_run_does_not_pass_for_that_of_the_last(report_dir: Path, tried: Tried) -> None:
    older = executed_notebook(TABLE, MEASURED[TABLE][:2], [PICTURE])
    nbformat.write(older, report_dir / f"{TABLE}.ipynb")
    assert verdicts(report_dir, TABLE) == {"not run"}
    tried("falsified notebook")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seeds": [0, 1, 2, 3, 3]}, "must differ from each other"),
        ({"seeds": [0, 1, 2, 3]}, "better holds 5 values, worse 5"),
        ({"worse": [4, 4, 4.1, 4.2]}, "better holds 5 values, worse 4"),
        ({"kind": "property"}, "is of kind 'ordering', measured as 'property'"),
        ({"scale": "night"}, "at 'night', this report is 'quick'"),
        ({"claim": "bound-holds"}, "which belongs to"),
        ({"claim": "perplexity"}, "twice"),
    ],
    ids=["a seed twice", "a seed missing", "a value missing", "kind", "scale", "another's claim", "a claim twice"],
)
def test_what_contradicts_itself_is_refused_even_with_new_digests(
    change: dict[str, Any], problem: str, report_dir: Path, tried: Tried
) -> None:
    path = report_dir / f"{TABLE}.ipynb"
    notebook = json.loads(path.read_text())
    measured(notebook, "ahead").update(change)
    path.write_text(json.dumps(notebook))
    write_record(report_dir, TABLE)
    assert problem in judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS).problems[TABLE]
    tried("falsified notebook")


def test_an_edit_stands_on_the_index_and_on_the_notebook_s_page(report_dir: Path) -> None:
    path = report_dir / f"{TABLE}.ipynb"
    path.write_text(path.read_text().replace("4.2", "4.3", 1))
    summary = build_report(report_dir.parents[1], "quick", CLAIMS)
    line = "its executed notebook is not what its run left; run the notebook again"
    assert [(item.notebook, item.line) for item in summary.failed] == [(TABLE, line)]
    for page in ("index", TABLE):
        assert line in (report_dir / f"{page}.html").read_text()


def test_a_digest_covers_every_field_of_a_record() -> None:
    record = sealed(record_json(TABLE))
    for name in record:
        assert sealed({**record, name: "another"})["sha256"] != record["sha256"] or name == "sha256"
