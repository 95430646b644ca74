"""What was found, in words: every thesis once, with its answer and its numbers, and on what that rests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_checks import Page, check_page
from report_factory import CLAIMS, make_report
from test_front import ASKED, EFFECT, thesis

from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer, Part
from transnormer_lib.report import findings
from transnormer_lib.report.index import build_report

CHECKOUT = Path(__file__).resolve().parents[2]


def answer(name: str, word: str, sides: str, locus: str = "Section 1", **fields: Any) -> Answer:
    """An answer whose parts speak "f"or and "a"gainst the thesis."""
    asked = thesis(name, "ahead", locus=locus, effect=EFFECT)
    words = {"f": "for", "a": "against"}
    parts = [
        Part("ahead", words[side], "reproduced", f"clause {number}", "night", "kept", "x.html#claim-ahead")  # type: ignore[arg-type]
        for number, side in enumerate(sides)
    ]
    return Answer("transnormer", asked, word, tuple(parts), **fields)


def kept(**fields: Any) -> Kept:
    study = fields.get("notebook", "01_a")
    runs = [
        {"name": f"{study}-{seed}", "seconds": 1800.0, "parameters": 1000 * (seed + 1), "steps": 600}
        for seed in range(4)
    ]
    given = {
        "preset": "night",
        "scale": "night",
        "notebook": "01_a",
        "parameters": {"seeds": [10, 11, 12, 13, 14]},
        "claims": [],
    }
    made = {"runs": runs, "device": "a CPU", "threads": 1, "commit": "c", "started": "2026-01-01T00:00:00+00:00"}
    return Kept(**(given | made | fields))


@pytest.mark.parametrize(
    ("word", "sides", "text"),
    [
        ("supported", "ff", "Of it."),
        ("contradicted", "aaa", "Of it. It does not hold: clause 0 (and 2 more)."),
        ("contradicted", "a", "Of it. It does not hold: clause 0."),
        ("mixed", "fa", "Of it. But clause 1."),
    ],
    ids=["supported", "many clauses", "contradicted", "mixed"],
)
def test_an_answer_is_told_by_what_decided_it(word: str, sides: str, text: str) -> None:
    (paper,) = findings.found([answer("it", word, sides)])
    assert [told.text for told in paper.told] == [text]


def test_effects_come_with_interval_and_print() -> None:
    sized = answer("it", "supported", "f", effect=11.72, interval=(10.9, 12.5), published_effect=10.8)
    (paper,) = findings.found([sized])
    assert paper.told[0].text.endswith("Measured: 11.7% (10.9 to 12.5); in print 10.8%.")


def test_every_thesis_stands_in_one_place() -> None:
    answers = [
        answer("a", "supported", "f"),
        answer("b", "cannot tell", ""),
        answer("c", "contradicted", "a", locus="Beyond the paper"),
        answer("d", "mixed", "fa", locus="Beyond the paper, after Section 1"),
    ]
    (paper,) = findings.found(answers)
    assert [told.id for told in paper.told] == ["a"]
    assert [told.id for told in paper.own] == ["c", "d"]
    assert paper.open == ("b",)


def test_how_sure_is_counted_from_the_kept_runs() -> None:
    first, second = findings.how_sure([kept(), kept(notebook="02_b", device="another")])
    told = "8 kept runs: 1,000 to 4,000 parameters, 600 to 600 steps, 5 seeds a row, 4 hours of training"
    assert told in first
    assert "a CPU; another" in first
    both = kept(notebook="04_d", device="another; a CPU")  # trained on two, each of which is named once
    assert "on a CPU; another." in findings.how_sure([kept(), both])[0]
    assert "learning rate" in second
    shared = kept(notebook="03_c", runs=kept().runs)  # a run that two studies read counts once
    assert findings.how_sure([kept(), shared, kept(notebook="02_b", device="another")]) == [first, second]
    few = kept(parameters={"seeds": [1, 2, 3]})  # judge no ordering
    assert findings.how_sure([few, kept(), kept(notebook="02_b", device="another")]) == [first, second]
    assert findings.how_sure([few]) == findings.how_sure([]) == []


def test_what_is_measured_and_not_settled_is_told_with_its_size() -> None:
    open_part = Part(
        "ahead", "open", "not run", "whether nearness is the cause (not run)", "night", "run", "x.html#claim-a"
    )
    sized = replace(answer("it", "cannot tell", "f", effect=11.8, interval=(11.5, 12.1)), parts=(open_part,))
    (paper,) = findings.found([sized, answer("other", "cannot tell", "")])
    assert paper.unsettled == ("it: 11.8% (11.5 to 12.1); 1 open",)
    assert paper.open == ("other",)


def test_the_page_is_sound_and_the_first_screen_leads_to_it(tmp_path: Path) -> None:
    make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS, ASKED)
    page = check_page(tmp_path / "reports" / "quick" / "found.html")
    assert "Supported. Of theory." in page.text
    assert "No trained model has decided anything yet" in page.text
    assert "found.html" in check_page(tmp_path / "reports" / "quick" / "index.html").links


def test_the_committed_page_is_short_enough_to_be_read_and_says_enough() -> None:
    text = Page(CHECKOUT / "reports" / "published" / "found.html").text  # its styles are files of its folder
    body = text[text.index(findings.OPENING) : text.index("What larger models would do")]
    assert 600 <= len(body.split()) <= 900
