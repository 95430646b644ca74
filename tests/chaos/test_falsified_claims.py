"""Claims, plans, theses and tables that were changed after the evidence: what was kept does not pass for theirs."""

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos_trials import Tried, trials
from report_factory import CLAIMS, TABLE, make_report

from transnormer_lib.ledger import kept, theses
from transnormer_lib.ledger.claims import Claim, by_id, load
from transnormer_lib.ledger.judging import judge_claims
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.papers import tables
from transnormer_lib.papers.catalogue import PACKAGE, papers
from transnormer_lib.project import Project
from transnormer_lib.report import staleness
from transnormer_lib.report.parameters import resolve

CHECKOUT = Project(Path(__file__).resolve().parents[2])
NOTEBOOKS = sorted({claim.notebook for claim in CLAIMS})


def at_night(claim: Claim, **changes: Any) -> Kept:
    """A verdict that was kept of this claim, as it then was."""
    entry = claim.model_dump(mode="json") | {"verdict": "opposite", "scale": "night", "source": "run", "reason": None}
    entry |= {"measured": {"interval": [0.1, 0.3]}, "seeds": [1, 2], "anchor": "#"} | changes
    return Kept("night", "night", claim.notebook, {}, [entry], [], "a machine", 1, "abc", "2026-11-21")


CHANGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a tolerance widened": ("perplexity", {"tolerance": 0.01}, "tolerance=0.05: was 0.01 then"),
    "a tolerance given": ("perplexity", {"tolerance": None}, "tolerance=0.05: was None then"),
    "a published value": ("perplexity", {"published": 5.28}, "published=4.98: was 5.28 then"),
    "a kind": ("speed", {"kind": "comparable"}, "kind='ordering': was 'comparable' then"),
    "a property for an ordering": ("speed", {"kind": "property"}, "kind='ordering': was 'property' then"),
    "a scale that decides": ("perplexity", {"decided_at": "quick"}, "decided_at='paper': was 'quick' then"),
    "a scale that decides an ordering": ("speed", {"decided_at": "night"}, "decided_at='quick': was 'night' then"),
}


@pytest.mark.parametrize("fault", CHANGED)
def test_what_was_kept_of_another_claim_does_not_count(fault: str, tmp_path: Path, tried: Tried) -> None:
    name, then, problem = CHANGED[fault]
    claim = by_id(CLAIMS)[name]
    report_dir = make_report(tmp_path)
    sound = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS, [at_night(claim)])
    assert next(entry for entry in sound.claims if entry["id"] == name)["source"] == "kept"
    found = judge_claims(report_dir, "quick", CLAIMS, NOTEBOOKS, [at_night(claim, **then)])
    entry = next(entry for entry in found.claims if entry["id"] == name)
    assert (entry["source"], entry["scale"]) == ("run", "quick")
    assert entry["verdict"] != "opposite"
    assert entry["reason"].endswith(f"what was kept at night does not count: {problem}")
    tried("falsified claim")


def test_a_real_claim_changed_after_its_evidence_does_not_count(tmp_path: Path, tried: Tried) -> None:
    """Every judged claim of every kept file, with its scale changed."""
    claims = {claim.id: claim for claim in load()}
    above = [one for notebook in CHECKOUT.notebooks for one in kept.larger("quick", notebook, CHECKOUT)]
    judged = [e["id"] for one in above for e in one.claims if e["verdict"] != "not run" and e["id"] in claims]
    standing = [e["id"] for e in judge_claims(tmp_path, "quick", load(), (), above).claims if e["source"] == "kept"]
    assert set(standing) == set(judged)
    for name in judged[:: max(1, len(judged) // trials(10, len(judged)))]:
        claim = claims[name]
        other = claim.model_copy(update={"decided_at": "paper" if claim.decided_at != "paper" else "night"})
        found = judge_claims(tmp_path, "quick", [*(c for c in load() if c.id != name), other], (), above)
        assert [e["source"] for e in found.claims if e["id"] == name] == ["run"]
        tried("falsified claim")


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_another_statement_is_told_beside_what_was_kept(direction: str, tried: Tried) -> None:
    claim = by_id(CLAIMS)["ahead"].model_copy(update={"statement": f"A has a {direction} loss than B."})
    found = at_night(claim, statement="A has a lower loss than B.")
    assert found.reworded({claim.id: claim}) == ([] if direction == "lower" else ["ahead"])
    told = "1 of the kept claims has another wording today."
    assert found.origin({claim.id: claim})["reworded"] == (None if direction == "lower" else told)
    tried("falsified claim")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("question: Why?\n", ""),
        ("question: Why not?\n", " The plan was edited after these results were kept."),
        ("question: Why?\n# and more\n", " The plan was edited after these results were kept."),
        (None, " The plan is gone."),
    ],
    ids=["as it was", "edited", "longer", "gone"],
)
def test_a_plan_edited_after_its_runs_is_told(
    text: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    monkeypatch.setattr(kept, "PACKAGE", tmp_path)
    path = tmp_path / "studies" / TABLE[3:] / "plan.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("question: Why?\n")
    plan = {"file": "plan.yaml", "sha256": staleness.sha256(path), "commit": "c" * 40, "judged": 5, "after": 5}
    plan["date"] = "2026-11-20T12:00:00+00:00"
    found = Kept("night", "night", TABLE, {}, [], [], "a machine", 1, "abc", "2026-11-21T20:00:00+00:00", [plan])
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    (line,) = found.planned()
    assert line.endswith(f"came after it.{told}")
    tried("falsified claim")


THESIS = {"id": "t", "locus": "x", "sentence": "y", "short": "z", "would_change": "w", "objection": "o", "reply": "r"}
Change = Callable[[dict[str, Any]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "a claim that is gone": (lambda t: t["for"][0].update(claim="long-gone"), "claim='long-gone': no such claim"),
    "a claim of another paper": (
        lambda t: t["for"][0].update(claim="elsewhere"), "claim='elsewhere': belongs to the paper 'gau'"),
    "a claim of another paper against it": (
        lambda t: t.update(against=[{"claim": "elsewhere", "holds": "a", "fails": "b"}]), "belongs to the paper 'gau'"),
    "an effect of another paper": (
        lambda t: t.update(effect={"claim": "elsewhere", "form": "value", "unit": "x"}), "belongs to the paper 'gau'"),
    "an effect that is gone": (
        lambda t: t.update(effect={"claim": "long-gone", "form": "value", "unit": "x"}), "no such claim"),
    "no claim's meaning": (lambda t: t["for"][0].pop("fails"), "fails"),
    "an answer of its own": (lambda t: t.update(answer="supported"), "answer"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_thesis_on_other_claims_is_refused(fault: str, tmp_path: Path, tried: Tried) -> None:
    change, problem = BROKEN[fault]
    thesis = {**THESIS, "for": [{"claim": "ahead", "holds": "a", "fails": "b"}]}
    path = tmp_path / "transnormer" / "theses.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump([thesis]))
    assert theses.read(path, CLAIMS)
    change(thesis)
    path.write_text(yaml.safe_dump([thesis]))
    with pytest.raises(ValueError, match=problem):
        theses.read(path, CLAIMS)
    tried("falsified thesis")


def test_a_thesis_whose_claim_failed_is_not_supported_by_the_kept_evidence(tried: Tried) -> None:
    """Turning every verdict that speaks for a supported thesis changes its answer."""
    entries = {entry["id"]: entry for entry in json.loads((_PUBLISHED / "claims.json").read_text(encoding="utf-8"))}
    claims = load()
    known, turned = by_id(claims), {"reproduced": "not reproduced", "survives": "refuted", "trend": "opposite"}
    for paper in papers():
        for thesis in theses.load(paper, claims):
            sound = theses.answer(paper, thesis, known, entries)
            deciding = [part.claim for part in sound.parts if part.side == "for" and part.verdict in turned]
            if sound.answer != "supported" or not deciding:
                continue
            for name in deciding:
                other = {**entries, name: entries[name] | {"verdict": turned[entries[name]["verdict"]]}}
                assert theses.answer(paper, thesis, known, other).answer != "supported"
                tried("falsified thesis")


_PUBLISHED = CHECKOUT.root / "reports" / "published"
TABLES = sorted(PACKAGE.glob("*/tables/*.yaml"))


@pytest.fixture(scope="module")
def readers() -> dict[Path, str]:
    """For each file that digests cover, a notebook whose digest does."""
    seen: dict[Path, str] = {}
    real = staleness.sha256
    for notebook in CHECKOUT.notebooks:

        def noted(path: Path, notebook: str = notebook) -> str:
            seen[path] = notebook
            return real(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staleness, "sha256", noted)
            digest_of(notebook)
    return seen


def digest_of(notebook: str) -> str:
    return staleness.digest(CHECKOUT, notebook, resolve(CHECKOUT, "quick", notebook))


def with_another_cell(path: Path, folder: Path) -> Path:
    """A copy of a published table in which the first number of the paper is another; all else is as it was."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    published = [place for place, column in enumerate(content["columns"]) if column.get("published")]
    row, place = next((row, place) for row in content["rows"] for place in published if row[place] is not None)
    row[place] += 1
    copy = folder / path.name
    copy.write_text(yaml.safe_dump(content), encoding="utf-8")
    paper = path.parents[1].name
    before, after = ([*chain(*tables.read(file, paper).rows)] for file in (path, copy))
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    return copy


@pytest.mark.parametrize("table", TABLES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_a_cell_changed_in_any_published_table_makes_a_notebook_run_again(
    table: Path, readers: dict[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    before, copy, real = digest_of(readers[table]), with_another_cell(table, tmp_path), staleness.sha256
    monkeypatch.setattr(staleness, "sha256", lambda path: real(copy if path == table else path))
    assert digest_of(readers[table]) != before
    copy.write_bytes(table.read_bytes())
    assert digest_of(readers[table]) == before
    tried("falsified table")
