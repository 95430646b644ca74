"""Two results side by side: what differs, by how much, from presets, files and commits alike."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from history_factory import commit
from page_checks import check_page
from report_factory import CLAIMS, HOSTILE, make_report

from transnormer_lib import cli
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.compare import Change, changes, compare, read
from transnormer_lib.report.index import build_report


@pytest.fixture
def project(tmp_path: Path) -> Project:
    make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    return Project(tmp_path)


def ledger(project: Project) -> list[dict[str, Any]]:
    return json.loads((project.report_dir("quick") / "claims.json").read_text())


def changed(project: Project, name: str, **fields: Any) -> Path:
    claims = copy.deepcopy(ledger(project))
    for entry in claims:
        if entry["id"] == name:
            entry |= fields
    path = project.root / "other.json"
    path.write_text(json.dumps(claims))
    return path


def test_a_report_does_not_differ_from_itself(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(project, ["quick", "quick"]) == 0
    assert f"0 verdicts differ, 0 measurements besides; {len(CLAIMS)} claims are the same" in capsys.readouterr().out
    check_page(project.root / "reports" / "compare.html")


def test_a_verdict_that_turned_comes_first_with_both_words(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    other = changed(project, "bound-holds", verdict="refuted")
    assert cli.main(["report", "--root", str(project.root), "--compare", "quick", str(other)]) == 0
    assert "survives → refuted" in capsys.readouterr().out
    page = check_page(project.root / "reports" / "compare.html")
    assert "1 from survives to refuted" in page.text


def test_a_kept_file_is_a_side_and_claims_of_one_side_alone_are_counted(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = project.root / "kept.json"
    kept.write_text(json.dumps({"claims": ledger(project)[:2], "preset": "night"}))
    assert compare(project, ["quick", str(kept)]) == 0
    told = capsys.readouterr().out
    assert "0 verdicts differ, 0 measurements besides; 2 claims are the same" in told
    assert f"{len(CLAIMS) - 2} claims stand in quick alone, 0 in" in told


def test_a_file_at_a_commit_is_a_side_as_well(project: Project) -> None:
    path = changed(project, "bound-holds", verdict="refuted")
    commit(project.root, {})
    path.unlink()
    (found,) = changes(read(project, "quick"), read(project, f"HEAD:{path.name}"))
    assert found.verdicts == ("survives", "refuted")


def test_a_commit_alone_is_the_report_that_was_committed_there(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path, claims = "reports/published/claims.json", ledger(project)
    commit(project.root, {path: json.dumps(claims)})
    turned = [one | {"verdict": "refuted"} if one["id"] == "bound-holds" else one for one in claims]
    commit(project.root, {path: json.dumps(turned)}, day=21)
    assert cli.main(["report", "--root", str(project.root), "--compare", "HEAD~1", "HEAD"]) == 0
    assert "1 verdicts differ, 0 measurements besides" in capsys.readouterr().out
    assert read(project, "HEAD") == read(project, f"HEAD:{path}")


def test_a_commit_without_a_committed_report_is_refused_with_what_it_lacks(project: Project) -> None:
    commit(project.root, {})
    with pytest.raises(UserMistake, match=r"compare='HEAD': must be .* a COMMIT that has reports/published/claims"):
        read(project, "HEAD")


def entry(measured: Any) -> dict[str, Any]:
    return {"verdict": "reproduced", "measured": measured}


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (2.0, 2.5, "+0.5 (+25.0%)"),
        (-2.0, -3.0, "−1 (−50.0%)"),
        ({"difference": 0.2, "interval": [0.1, 0.3]}, {"difference": 0.1, "interval": [0.0, 0.2]}, "−0.1 (−50.0%)"),
        (0.0, 1e-9, "+10⁻⁹"),
        (True, False, ""),
        (None, 1.0, ""),
        ([1, 2], [1, 3], ""),
    ],
    ids=str,
)
def test_numbers_change_by_an_amount_and_a_share(before: Any, after: Any, by: str) -> None:
    assert Change("a", "Table 1", "It.", entry(before), entry(after)).by == by


@pytest.mark.parametrize(
    "side", ["", "no-such", "HEAD:no-such.json", "--output=x:y", "README", "x" * 300], ids=lambda side: side[:20]
)
def test_a_side_that_is_none_is_refused_with_what_it_may_be(project: Project, side: str) -> None:
    with pytest.raises(UserMistake, match=r"compare=.*: must be a preset .*quick"):
        read(project, side)


def test_a_verdict_of_an_older_form_is_shown_as_it_is(project: Project) -> None:
    other = changed(project, "bound-holds", verdict="no trend")
    assert compare(project, ["quick", str(other)]) == 0
    assert "no trend" in check_page(project.root / "reports" / "compare.html").text


def test_what_is_shown_alike_is_no_change(project: Project) -> None:
    before = {"a": entry({"difference": 0.5, "p": 0.01}) | {"locus": "Table 1", "statement": "It."}}
    after = {"a": entry({"difference": 0.5, "p": 0.02}) | {"locus": "Table 1", "statement": "It."}}
    assert changes(before, after) == []


BROKEN = ["{", "[1]", '{"claims": 3}', '[{"id": "a"}]']
BROKEN += ['[{"id": "a", "locus": "", "statement": 3, "verdict": "", "measured": 1}]']


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_of_another_kind_is_refused(project: Project, text: str) -> None:
    path = project.root / "other.json"
    path.write_text(text)
    with pytest.raises(UserMistake, match=r"is neither a claims\.json nor a kept file"):
        read(project, str(path))


def test_a_preset_without_a_report_says_how_to_make_it(tmp_path: Path) -> None:
    make_report(tmp_path)
    with pytest.raises(UserMistake, match="has no report yet; run: transnormer report --preset quick"):
        read(Project(tmp_path), "quick")


def test_text_from_a_file_stays_text(project: Project) -> None:
    fetches = r"It loads $\style{background:url(http://evil.example)}{x}$."
    for statement in (HOSTILE, fetches, "An $\\unknown$ macro, and a $\\frac{1$ brace."):
        other = changed(project, "bound-holds", verdict="not run", measured=HOSTILE, statement=statement)
        assert compare(project, ["quick", str(other)]) == 0
    check_page(project.root / "reports" / "compare.html")
