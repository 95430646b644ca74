"""The front page: the answers first, a plot per thesis, and nothing that they do not say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_checks import Page, check_page
from report_factory import CLAIMS, HOSTILE, TABLE, make_report

from transnormer_lib.ledger.claims import by_id
from transnormer_lib.ledger.theses import Answer, Part, Thesis
from transnormer_lib.report import front
from transnormer_lib.report.index import build_report

QUICK = Path("reports") / "quick"


def thesis(name: str, claim: str = "bound-holds", **fields: Any) -> Thesis:
    given = {
        "id": name,
        "locus": "Section 1",
        "sentence": f"Of {name}.",
        "short": name,
        "would_change": "More.",
        "objection": "No.",
        "reply": "Yes.",
    }
    given["for"] = [{"claim": claim, "holds": f"{claim} is so", "fails": f"{claim} is not so"}]
    return Thesis(**(given | fields))


EFFECT = {"claim": "ahead", "form": "percent", "unit": "percent of the loss"}
CAUSE = {"claim": "structure", "holds": "one change mends it", "fails": "no change mends it"}
ASKED = [
    ("transnormer", thesis("theory")),
    ("transnormer", thesis("broken", "bound-breaks", cause=[CAUSE])),
    ("transnormer", thesis("trained", "ahead", effect=EFFECT, headline=True)),
    (
        "transnormer",
        thesis("hostile", "unmeasured", sentence=HOSTILE, would_change=HOSTILE, objection=HOSTILE, reply=HOSTILE),
    ),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("front")
    make_report(root)
    build_report(root, "quick", CLAIMS, ASKED)
    return root


def answer(name: str, word: str, **fields: Any) -> Answer:
    asked = thesis(name, "ahead", headline=True, effect=EFFECT)
    part = Part("ahead", "against", "opposite", "ahead is not so", "night", "run", "x.html#claim-ahead")
    return Answer("transnormer", asked, word, (part,), **fields)


def test_the_answers_stand_before_everything_else_and_name_every_thesis(root: Path) -> None:
    page = check_page(root / QUICK / "index.html")
    order = ["Of its 4 theses 1 is contradicted, 1 is supported and 2 cannot be told yet", "The notebooks"]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert "Does not hold: broken." in page.text
    assert "Holds: theory." in page.text
    assert {f"thesis-{asked.id}" for _, asked in ASKED} <= set(page.ids)


def test_the_page_says_why_beside_the_thesis_and_in_a_table_of_its_own(root: Path) -> None:
    page = Page(root / QUICK / "index.html")
    assert page.text.count("One change mends it.") == 2
    assert "#why" in page.links
    assert "01_theory.html#claim-structure" in page.links


def test_models_at_quick_give_no_effect(root: Path) -> None:
    text = Page(root / QUICK / "index.html").text
    assert "No effect on models that have learned is settled" in text
    assert "measured at quick only" in text


def test_each_part_of_an_answer_leads_to_its_claim(root: Path) -> None:
    assert "01_theory.html#claim-bound-holds" in Page(root / QUICK / "index.html").links


def test_theses_json_holds_what_the_page_says(root: Path) -> None:
    written = json.loads((root / QUICK / "theses.json").read_text())
    assert [found["answer"] for found in written] == ["supported", "contradicted", "cannot tell", "cannot tell"]


def test_a_notebook_s_page_opens_with_the_theses_that_it_serves(root: Path) -> None:
    page = Page(root / QUICK / f"{TABLE}.html")
    assert "index.html#thesis-trained" in page.links
    assert "index.html#thesis-theory" not in page.links
    assert page.text.index("Of trained.") < page.text.index("The first paragraph")


@pytest.mark.parametrize(
    ("effect", "interval", "words"),
    [
        (11.72, (10.9, 12.5), "late lowers the loss by 11.7% (10.9 to 12.5)"),
        (-0.31, (-0.5, -0.1), "late raises the loss by 0.31% (0.10 to 0.50)"),
        (0.05, (-0.1, 0.2), "late: 0.05% (−0.10 to 0.20), an interval around zero"),
    ],
    ids=["ahead", "behind", "neither"],
)
def test_the_last_sentence_says_the_sizes(effect: float, interval: tuple[float, float], words: str) -> None:
    found = front.sentences([answer("late", "supported", effect=effect, interval=interval)])
    assert len(found) == 3
    assert found[2] == f"With 95% intervals, {words}."


@pytest.mark.parametrize(
    ("effect", "interval", "words"),
    [
        (-0.0048, (-0.0128, 0.0033), "late: −0.005 bits per symbol (−0.013 to 0.003), an interval around zero"),
        (0.0004, (0.0001, 0.0009), "late: 0.0004 bits per symbol (0.0001 to 0.0009) for it"),
        (-1.94, (-3.57, -0.04), "late: 1.9 bits per symbol (0.0 to 3.6) against it"),
    ],
    ids=["neither", "ahead", "behind"],
)
def test_a_size_that_is_no_loss_is_told_in_its_own_unit(
    effect: float, interval: tuple[float, float], words: str
) -> None:
    asked = thesis("late", "ahead", headline=True, effect=EFFECT | {"form": "difference", "unit": "bits per symbol"})
    found = Answer("transnormer", asked, "supported", (), effect=effect, interval=interval)
    assert front.sentences([found])[2] == f"With 95% intervals, {words}."


def test_questions_of_our_own_are_counted_beside_the_paper_s() -> None:
    ours = replace(answer("mine", "contradicted"), thesis=thesis("mine", "ahead", locus="Beyond the paper"))
    found = front.sentences([answer("a", "supported"), answer("b", "cannot tell"), ours])
    assert found[0] == (
        "Of its 2 theses 1 is supported and 1 cannot be told yet. Of 1 question beside it, 1 is contradicted."
    )
    assert found[1] == "Holds: a. Our own questions. Does not hold: mine."
    assert front.sentences([ours])[0].strip() == "Of 1 question beside it, 1 is contradicted."


def test_an_effect_names_what_it_is_over() -> None:
    asked = thesis("late", "ahead", effect=EFFECT | {"over": "over FLASH-quad"})
    found = Answer("transnormer", asked, "mixed", (), effect=0.4, interval=(-0.2, 1.0), standing="unresolved")
    assert front.effect_text(found) == "0.4% (−0.2 to 1.0) over FLASH-quad, unresolved"


def test_a_printed_effect_says_what_it_compares_where_the_claim_compares_something_else() -> None:
    cells = {"table": "table_4", "column": "ppl_val", "better": {}, "worse": {}}
    for of, text in (("", "2.8%"), ("between other models", "2.8% between other models")):
        asked = thesis("late", "ahead", effect=EFFECT | {"published": cells | {"of": of}})
        assert front.published_text(Answer("transnormer", asked, "mixed", (), published_effect=2.8)) == text


def test_an_effect_that_its_claim_leaves_open_is_no_headline_and_says_so() -> None:
    found = answer("late", "cannot tell", effect=0.24, interval=(0.04, 0.45), standing="unresolved")
    assert "is settled" in front.sentences([found])[2]
    assert front.effect_text(found) == "0.24% (0.04 to 0.45), unresolved"


def test_theses_with_one_answer_are_named_in_one_sentence() -> None:
    found = [answer("a", "supported"), answer("b", "mixed"), answer("c", "supported"), answer("d", "contradicted")]
    assert front.sentences(found)[1] == "Does not hold: d. Holds in part: b. Holds: a; c."


@pytest.mark.parametrize(
    ("value", "text"), [(0.06, "0.06%"), (0.5, "0.50%"), (0.0625, "0.062%"), (10.8, "10.8%"), (0.00002, "0.00%")]
)
def test_a_printed_size_has_no_digits_that_nothing_needs(value: float, text: str) -> None:
    assert front.published_text(answer("a", "supported", published_effect=value)) == text


def test_marks_of_one_paper_share_an_axis_that_holds_zero_and_all_of_them() -> None:
    answers = [
        answer("a", "supported", effect=10.0, interval=(8.0, 12.0), published_effect=13.0),
        answer("b", "contradicted", effect=-2.0, interval=(-3.0, -1.0)),
    ]
    (section,) = front.sections(answers, [], by_id(CLAIMS))
    plots = [row["plot"] for row in section["rows"]]
    places = [place for plot in plots for place in plot.values() if place is not None]
    assert all(0 <= place <= 100 for place in places)
    assert plots[0]["zero"] == plots[1]["zero"]
    assert plots[1]["high"] < plots[1]["zero"] < plots[0]["low"] < plots[0]["effect"] < plots[0]["published"]
    assert len(section["axis"].ticks) >= 3


def test_a_paper_without_an_effect_on_the_loss_has_no_axis() -> None:
    (section,) = front.sections([answer("a", "cannot tell")], [], by_id(CLAIMS))
    assert section["axis"] is None
    assert section["rows"][0]["plot"] is None


@pytest.mark.parametrize("standing", ["not run", "not learned"])
def test_a_row_without_a_size_says_what_became_of_the_measurement(standing: str) -> None:
    (section,) = front.sections([answer("a", "cannot tell", standing=standing)], [], by_id(CLAIMS))
    assert section["rows"][0]["unsized"] == standing


def test_without_theses_the_page_stands_all_the_same(tmp_path: Path) -> None:
    make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    check_page(tmp_path / QUICK / "index.html")


@pytest.mark.parametrize(("name", "number"), [("index", 1), ("ledger", 1), (TABLE, 2)])
def test_a_page_runs_only_its_own_scripts(name: str, number: int, root: Path) -> None:
    assert check_page(root / QUICK / f"{name}.html", scripts=number).tags.count("script") == number
