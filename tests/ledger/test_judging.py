"""The ledger: one judged object per claim, from nothing but the executed notebooks and their records."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from report_factory import ABSENT, CLAIMS, MEASURED, TABLE, THEORY, executed_notebook, fail, make_report, write_record

from transnormer_lib.ledger.judging import counts, judge_claims, last_run, write_json_list
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.ledger.verdicts import EXPLORATORY, VERDICTS

NOTEBOOKS = [THEORY, TABLE, ABSENT]
KEYS = {
    "id", "paper", "locus", "statement", "kind", "published", "measured", "tolerance", "decided_at", "scale",
    "verdict", "reason", "seeds", "notebook", "anchor", "source",
}  # fmt: skip


def ledger(report_dir: Path) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS).claims}


def test_every_claim_has_exactly_the_agreed_keys_in_the_order_of_the_claims(tmp_path: Path) -> None:
    entries = judge_claims(make_report(tmp_path), "quick", CLAIMS, NOTEBOOKS).claims
    assert [entry["id"] for entry in entries] == [claim.id for claim in CLAIMS]
    for entry in entries:
        assert set(entry) == KEYS | ({"timing"} if entry["id"] == "speed" else set())
        assert entry["source"] == "run"
        assert entry["reason"] or entry["verdict"] != "not run"
        assert entry.get("timing", True) is True


def test_verdicts_seeds_and_anchors_follow_from_the_measurements(tmp_path: Path) -> None:
    found = ledger(make_report(tmp_path))
    assert {name: entry["verdict"] for name, entry in found.items()} == {
        "bound-holds": "survives",
        "bound-breaks": "refuted",
        "structure": "reproduced",
        "unmeasured": "not run",
        "perplexity": "undecided",
        "ahead": "reproduced",
        "speed": "not run",
        "elsewhere": "not run",
    }
    assert found["ahead"]["seeds"] == [0, 1, 2, 3, 4]
    assert found["ahead"]["measured"]["floor"] == {"name": "the floor", "value": 4.5}
    assert found["perplexity"]["measured"] == {"mean": 5.2, "range": [5.1, 5.3]}
    assert found["bound-holds"]["anchor"] == "01_theory.html#claim-bound-holds"
    assert found["bound-breaks"]["measured"]["counter_example"] == {"q": [1.5]}


def test_what_was_not_run_says_why(tmp_path: Path) -> None:
    found = ledger(make_report(tmp_path))
    assert found["unmeasured"]["reason"] == "the notebook ran and did not measure it"
    assert found["speed"]["reason"] == "needs a GPU"
    assert found["elsewhere"]["reason"] == "the notebook has not been run at this preset"


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_failed_notebook_keeps_what_this_run_measured_and_not_what_an_older_run_did(
    tmp_path: Path, status: str
) -> None:
    report_dir = make_report(tmp_path)
    fail(report_dir, THEORY, "code cell 3: ValueError: no", status=status)
    found = ledger(report_dir)
    assert found["bound-holds"]["verdict"] == "survives"
    assert found["bound-breaks"]["verdict"] == "not run"
    assert found["bound-breaks"]["reason"] == f"notebook {status}: code cell 3: ValueError: no"
    assert found["ahead"]["verdict"] == "reproduced"


def test_a_notebook_that_failed_before_it_began_leaves_its_claims_not_run(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    write_record(report_dir, THEORY, "failed", "step='3': unknown parameter")
    assert {e["verdict"] for e in ledger(report_dir).values() if e["notebook"] == THEORY} == {"not run"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"claim": "made-up"}, "it measured 'made-up', which is no claim"),
        ({"claim": "perplexity"}, f"it measured claim 'perplexity', which belongs to {TABLE}"),
        ({"claim": "bound-breaks"}, "it measured claim 'bound-breaks' twice"),
        ({"scale": "paper"}, "at 'paper', this report is 'quick'"),
        ({"kind": "number"}, "is of kind 'theorem', measured as 'number'"),
    ],
    ids=["unknown", "elsewhere", "twice", "scale", "kind"],
)
def test_a_measurement_that_cannot_be_judged_is_a_problem_of_its_notebook_alone(
    tmp_path: Path, change: dict[str, str], problem: str
) -> None:
    report_dir = make_report(tmp_path)
    path = report_dir / f"{THEORY}.ipynb"
    notebook = json.loads(path.read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    outputs[0]["data"][MIME][0] |= change
    path.write_text(json.dumps(notebook))
    write_record(report_dir, THEORY)
    judged = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS)
    assert list(judged.problems) == [THEORY]
    assert problem in judged.problems[THEORY]
    verdicts = {entry["id"]: entry["verdict"] for entry in judged.claims}
    assert verdicts["bound-holds"] == "not run"
    assert verdicts["ahead"] == "reproduced"


def test_measurements_in_a_form_of_the_past_are_a_problem_of_their_notebook_alone(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    path = report_dir / f"{THEORY}.ipynb"
    notebook = json.loads(path.read_text())
    outputs = [output["data"] for cell in notebook["cells"] for output in cell.get("outputs", [])]
    outputs[0][MIME] = outputs[0][MIME][0]
    path.write_text(json.dumps(notebook))
    write_record(report_dir, THEORY)
    judged = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS)
    assert "not a list; run the notebook again" in judged.problems[THEORY]
    assert {entry["verdict"] for entry in judged.claims if entry["notebook"] == TABLE} != {"not run"}


def test_a_record_without_its_notebook_counts_as_failed(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    (report_dir / f"{TABLE}.ipynb").unlink()
    assert last_run(report_dir, TABLE).error == "its executed notebook is missing"
    assert ledger(report_dir)["ahead"]["reason"] == "notebook failed: its executed notebook is missing"


def test_a_record_that_cannot_be_read_costs_its_notebook_alone(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    (report_dir / "records" / f"{TABLE}.json").write_text("{")
    found = ledger(report_dir)
    assert found["ahead"]["reason"].startswith("notebook failed: its record cannot be read")
    assert found["bound-holds"]["verdict"] == "survives"


def test_claims_of_a_notebook_without_a_page_are_anchored_in_the_ledger(tmp_path: Path) -> None:
    entries = judge_claims(make_report(tmp_path), "quick", CLAIMS, [THEORY]).claims
    assert {e["anchor"].split("#")[0] for e in entries if e["notebook"] == ABSENT} == {"ledger.html"}


def test_identical_runs_give_identical_claims(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        report_dir = make_report(tmp_path / name)
        write_json_list(report_dir / "claims.json", judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS).claims)
        texts.append((report_dir / "claims.json").read_bytes())
    assert texts[0] == texts[1]


def test_an_unchanged_ledger_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "claims.json"
    write_json_list(path, [{"id": "a"}])
    before = path.stat().st_mtime_ns
    write_json_list(path, [{"id": "a"}])
    assert path.stat().st_mtime_ns == before
    assert {p.name for p in tmp_path.iterdir()} == {"claims.json", "SHA256SUMS"}


def test_counts_name_every_verdict_failures_and_gaps_before_successes(tmp_path: Path) -> None:
    found = counts(judge_claims(make_report(tmp_path), "quick", CLAIMS, NOTEBOOKS).claims)
    assert list(found) == list(VERDICTS)
    assert list(found)[:5] == ["refuted", "not reproduced", "inconsistent", "opposite", "misprint"]
    assert sum(found.values()) == len(CLAIMS)
    assert (found["refuted"], found["not run"], found["survives"]) == (1, 3, 1)


def at_night(*names: str) -> Kept:
    """What a night found of these claims: the other side is ahead."""
    found = {"verdict": "opposite", "scale": "night", "measured": {"interval": [0.1, 0.3]}, "seeds": [1, 2]}
    claims = [{"id": name, "reason": None, **found} for name in names]
    return Kept("night", "night", TABLE, {}, claims, [], "a machine", 1, "abc", "2026-11-21T20:00:00+00:00")


def test_what_was_kept_stands_where_this_scale_cannot_decide_or_did_not_measure(tmp_path: Path) -> None:
    kept = at_night("ahead", "perplexity", "speed")
    found = judge_claims(make_report(tmp_path), "quick", CLAIMS, NOTEBOOKS, [kept])
    shown = {entry["id"]: tuple(entry[key] for key in ("verdict", "scale", "source")) for entry in found.claims}
    assert shown["perplexity"] == shown["speed"] == ("opposite", "night", "kept")
    assert shown["ahead"] == ("reproduced", "quick", "run")  # quick decides it
    assert found.best["perplexity"].interval == (0.1, 0.3)
    assert found.judgements["perplexity"].verdict == "undecided"


def test_what_was_kept_stands_for_an_order_that_this_scale_left_unresolved(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    sides = {"better": [3, 3.1, 3, 3.2, 3], "worse": [3.1, 3, 3.1, 3, 3.2], "seeds": range(5)}
    records = [MEASURED[TABLE][0], lambda m: m.ordering("ahead", **sides), MEASURED[TABLE][2]]
    nbformat.write(executed_notebook(TABLE, records), report_dir / f"{TABLE}.ipynb")
    write_record(report_dir, TABLE)
    assert ledger(report_dir)["ahead"]["verdict"] == "unresolved"
    found = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS, [at_night("ahead")])
    (entry,) = (entry for entry in found.claims if entry["id"] == "ahead")
    assert (entry["verdict"], entry["scale"], entry["source"]) == ("opposite", "night", "kept")
    assert found.judgements["ahead"].verdict == "unresolved"


@pytest.mark.parametrize("name", [claim.id for claim in CLAIMS])
def test_an_exploratory_claim_says_so_in_its_reason_and_nothing_else_changes(tmp_path: Path, name: str) -> None:
    report_dir = make_report(tmp_path)
    marked = [claim.model_copy(update={"exploratory": claim.id == name}) for claim in CLAIMS]
    found = {entry["id"]: entry for entry in judge_claims(report_dir, "quick", marked, NOTEBOOKS).claims}
    plain = ledger(report_dir)
    reason = found[name].pop("reason")
    before = plain[name].pop("reason")
    assert reason == (f"{EXPLORATORY}; {before}" if before else EXPLORATORY)
    assert found == plain


@pytest.mark.parametrize("kept_reason", [None, "why", EXPLORATORY, f"{EXPLORATORY}; why"])
def test_a_kept_claim_is_marked_as_exploratory_once(tmp_path: Path, kept_reason: str | None) -> None:
    entry = {"id": "unmeasured", "verdict": "survives", "scale": "night", "measured": None, "seeds": None}
    above = Kept("night", "night", THEORY, {}, [entry | {"reason": kept_reason}], [], "a machine", 1, "abc", "2026")
    marked = [claim.model_copy(update={"exploratory": True}) for claim in CLAIMS]
    found = judge_claims(make_report(tmp_path), "quick", marked, NOTEBOOKS, [above])
    (reason,) = (entry["reason"] for entry in found.claims if entry["id"] == "unmeasured")
    assert reason == (f"{EXPLORATORY}; why" if kept_reason and "why" in kept_reason else EXPLORATORY)


def test_the_ledger_reads_notebooks_as_nbformat_writes_them(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    nbformat.write(executed_notebook(TABLE, MEASURED[TABLE][1:]), report_dir / f"{TABLE}.ipynb")
    write_record(report_dir, TABLE)
    assert ledger(report_dir)["perplexity"]["verdict"] == "not run"


def test_judging_without_orderings_imports_nothing_heavy() -> None:
    script = (
        "import sys; import transnormer_lib.report.index, transnormer_lib.show.claims\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'scipy', 'nbformat', 'nbconvert', 'papermill', "
        "'matplotlib', 'snakemake') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
