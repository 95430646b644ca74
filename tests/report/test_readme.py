"""README's answers come from a report, and agree with it; nothing between the marks is typed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_front import EFFECT, answer, thesis

from transnormer_lib.ledger import kept
from transnormer_lib.ledger.judging import NEVER_RUN
from transnormer_lib.ledger.theses import Answer, Part
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import readme
from transnormer_lib.report.plan import Device, plan
from transnormer_lib.show.data_uri import data_uri

PAGE = "reports/published/index.html"
CHECKOUT = Path(__file__).resolve().parents[2]


def part(side: str, says: str) -> Part:
    return Part("ahead", side, "reproduced", says, "night", "kept", "x.html#claim-ahead")  # type: ignore[arg-type]


def decided(name: str, word: str, *parts: Part, **fields: Any) -> Answer:
    return Answer("transnormer", thesis(name, "ahead", effect=EFFECT), word, parts, **fields)


def test_every_thesis_stands_once_decided_or_by_its_short_name() -> None:
    found = [decided("a", "supported", part("for", "it is")), answer("b", "cannot tell"), answer("c", "cannot tell")]
    text = readme.block(found, [])
    assert "(1 of 3 theses decided)" in text
    ours = replace(found[0], thesis=thesis("a", "ahead", locus="Beyond the paper"))
    assert "(0 of 2 theses decided, and 1 of 1 questions of our own)" in readme.block([ours, *found[1:]], [])
    assert f"- [Supported]({PAGE}#thesis-a): Of a." in text
    assert f"- Cannot tell yet: [b]({PAGE}#thesis-b); [c]({PAGE}#thesis-c)." in text


def test_what_speaks_against_a_thesis_is_told_with_its_size() -> None:
    mixed = decided(
        "a", "mixed", part("for", "it is"), part("against", "it is not"), effect=11.72, interval=(10.9, 12.5),
        published_effect=10.8,
    )  # fmt: skip
    words = "Of a. But it is not. Measured: 11.7% (10.9 to 12.5); in print 10.8%."
    assert readme.line(mixed) == f"- [Mixed]({PAGE}#thesis-a): {words}"


BEGIN, END = readme.marks("answers")


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert readme.write(path, {"answers": "new"})
    assert path.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert not readme.write(path, {"answers": "new"})


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", 2 * f"{BEGIN}{END}"])
def test_a_file_without_its_marks_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UserMistake, match=r"README\.md: must hold"):
        readme.write(path, {"answers": "new"})
    assert path.read_text() == text


@pytest.mark.parametrize(
    "preset", ["quick", "night", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpu", "paper"))]
)
def test_the_costs_in_the_committed_readme_are_those_of_the_plan(preset: str) -> None:
    """All but the estimated hours, which are another machine's."""
    project, device = Project(CHECKOUT), Device("here", 1e9)
    above = [one for notebook in project.notebooks for one in kept.larger("quick", notebook, project)]
    planned = {preset: plan(project, preset, project.notebooks, device)}
    (line,) = readme.costs(planned, device, above).splitlines()[2:3]
    text = (CHECKOUT / "README.md").read_text()
    assert line.rpartition(" | ")[0] in text


def test_the_pictures_are_the_figures_of_the_executed_notebooks(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "quick"
    folder.mkdir(parents=True)
    for notebook, figure in readme.PICTURES.values():
        source = data_uri("image/svg+xml", figure)
        html = f'<figure id="fig-other"></figure><figure id="fig-{figure}"><img src="{source}">'
        cell = {"cell_type": "code", "outputs": [{"data": {"text/html": html}}]}
        (folder / f"{notebook}.ipynb").write_text(json.dumps({"cells": [cell]}))
    found = readme.pictures(Project(tmp_path))
    assert set(found.values()) == {figure.encode() for _, figure in readme.PICTURES.values()}
    assert all((CHECKOUT / name).exists() for name in found)


def test_a_picture_that_no_notebook_shows_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="figure='losses': 04_autoregressive_lm of preset quick does not show it"):
        readme.pictures(Project(tmp_path))


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
    text = (CHECKOUT / "README.md").read_text().split(BEGIN)[1].split(END)[0]
    for found in readme.answers(Project(CHECKOUT))[0]:
        if timed & set(found.thesis.claims):
            continue
        if found.answer == "cannot tell":
            assert found.thesis.sentence not in text
            assert re.search(rf"Cannot tell yet:.*{re.escape(found.thesis.short)}", text)
        else:
            assert readme.line(found) in text.splitlines()
