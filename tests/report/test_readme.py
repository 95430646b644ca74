"""README's answers come from a report, and agree with it; nothing between the marks is typed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_front import EFFECT, answer, thesis

from transnormer_lib.ledger.judging import NEVER_RUN
from transnormer_lib.ledger.theses import Answer, Part
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import readme

CHECKOUT = Path(__file__).resolve().parents[2]


def part(side: str, says: str) -> Part:
    return Part("ahead", side, "reproduced", says, "night", "kept", "x.html#claim-ahead")  # type: ignore[arg-type]


def decided(name: str, word: str, *parts: Part, **fields: Any) -> Answer:
    return Answer("transnormer", thesis(name, "ahead", effect=EFFECT), word, parts, settled=True, **fields)


def test_every_thesis_stands_once_decided_or_by_its_short_name() -> None:
    found = [decided("a", "supported", part("for", "it is")), answer("b", "cannot tell"), answer("c", "cannot tell")]
    text = readme.block(found, [])
    assert "(1 of 3 theses decided)" in text
    assert "- *Supported:* Of a." in text
    assert "- *Cannot tell yet:* b; c." in text


def test_what_speaks_against_a_thesis_is_told_with_its_size() -> None:
    mixed = decided(
        "a", "mixed", part("for", "it is"), part("against", "it is not"), effect=11.72, interval=(10.9, 12.5),
        published_effect=10.8,
    )  # fmt: skip
    expected = "- *Mixed:* Of a. In part: it is; but it is not. Measured: 11.7% (10.9 to 12.5); in print 10.8%."
    assert readme.line(mixed) == expected


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    assert readme.write(path, "new")
    assert path.read_text() == f"before\n{readme.BEGIN}\nnew\n{readme.END}\nafter\n"
    assert not readme.write(path, "new")


@pytest.mark.parametrize("text", ["", readme.BEGIN, f"{readme.END}{readme.BEGIN}", 2 * f"{readme.BEGIN}{readme.END}"])
def test_a_file_without_its_marks_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UserMistake, match=r"README\.md: must hold"):
        readme.write(path, "new")
    assert path.read_text() == text


def test_without_a_report_there_is_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="has no report yet; run: make report PRESET=quick"):
        readme.answers(Project(tmp_path))


def test_the_committed_readme_agrees_with_the_report_of_this_checkout() -> None:
    """Theses that a timing decides may fall otherwise on another machine, so their answers are not compared."""
    path = CHECKOUT / "reports" / "quick" / "theses.json"
    if not path.exists():
        pytest.skip("no report to agree with: make report")
    claims = json.loads((path.parent / "claims.json").read_text())
    if any(claim["reason"] == NEVER_RUN for claim in claims):
        pytest.skip("the report is not whole")
    timed = {claim["id"] for claim in claims if claim.get("timing")}
    text = (CHECKOUT / "README.md").read_text().split(readme.BEGIN)[1].split(readme.END)[0]
    for found in readme.answers(Project(CHECKOUT))[0]:
        if timed & set(found.thesis.claims):
            continue
        if found.answer == "cannot tell":
            assert found.thesis.sentence not in text
            assert re.search(rf"Cannot tell yet:.*{re.escape(found.thesis.short)}", text)
        else:
            assert readme.line(found) in text.splitlines()
