"""Theses: the answer follows from the claims that bear on one, and says no more than they do."""

import math
from pathlib import Path
from typing import Any

import pytest
import report_factory
import yaml

from transnormer_lib.ledger import claims as ledger_claims
from transnormer_lib.ledger import theses
from transnormer_lib.ledger.claims import Claim, by_id
from transnormer_lib.ledger.theses import Answer, Thesis
from transnormer_lib.papers.catalogue import papers

KEYS = {
    "id", "paper", "locus", "sentence", "answer", "effect", "interval", "published_effect", "unit", "scale", "seeds",
    "because", "claims", "would_change",
}  # fmt: skip
CLAIMS = by_id(
    [
        report_factory.claim("bound", "theorem", report_factory.THEORY),
        report_factory.claim("lead", "ordering", report_factory.TABLE, decided_at="night"),
        report_factory.claim("second", "ordering", report_factory.TABLE, decided_at="night"),
        report_factory.claim("speed", "ordering", report_factory.TABLE, decided_at="gpu", timing=True),
        report_factory.claim("slower", "ordering", report_factory.TABLE, decided_at="gpu", timing=True),
        report_factory.claim("ratio", "number", report_factory.TABLE),
        report_factory.claim("later", "ordering", report_factory.TABLE, decided_at="night", exploratory=True),
        report_factory.claim("printed", "print", report_factory.TABLE),
        report_factory.claim("slip", "misprint", report_factory.THEORY, corrected="bound"),
    ]
)


def thesis(in_favour: list[str], against: list[str] = (), **fields: Any) -> Thesis:  # type: ignore[assignment]
    def bearing(name: str) -> dict[str, str]:
        return {"claim": name, "holds": f"{name} holds", "fails": f"{name} fails"}

    given = {
        "id": "t",
        "locus": "Section 1",
        "sentence": "It is so.",
        "short": "it",
        "would_change": "More of it.",
        "objection": "No.",
        "reply": "Yes.",
    }
    given |= {"for": [bearing(name) for name in in_favour], "against": [bearing(name) for name in against]}
    return Thesis(**(given | fields))


def entry(name: str, verdict: str, scale: str = "night", measured: Any = None) -> dict[str, Any]:
    if verdict == "unresolved" and measured is None:
        measured = {"interval": [-0.1, 0.1], "p": 0.5}
    found = {"id": name, "verdict": verdict, "scale": scale, "measured": measured, "seeds": [0, 1, 2, 3, 4]}
    return found | {"source": "run", "anchor": f"02_table.html#claim-{name}"}


def answered(asked: Thesis, **verdicts: str | dict[str, Any]) -> Answer:
    entries = {
        name: found if isinstance(found, dict) else entry(name, found)
        for name, found in {**dict.fromkeys(CLAIMS, "not run"), **verdicts}.items()
    }
    return theses.answer("transnormer", asked, CLAIMS, entries)


@pytest.mark.parametrize(
    ("lead", "second", "answer"),
    [
        ("reproduced", "reproduced", "supported"),
        ("trend", "reproduced", "supported"),
        ("opposite", "opposite", "contradicted"),
        ("opposite", "not run", "contradicted"),
        ("not run", "opposite", "cannot tell"),
        ("reproduced", "opposite", "mixed"),
        ("reproduced", "unresolved", "cannot tell"),
        ("not learned", "not learned", "cannot tell"),
        ("not reproduced", "trend", "mixed"),
    ],
)
def test_the_answer_follows_from_what_each_claim_says(lead: str, second: str, answer: str) -> None:
    assert answered(thesis(["lead", "second"]), lead=lead, second=second).answer == answer


@pytest.mark.parametrize(("bound", "answer"), [("survives", "mixed"), ("refuted", "supported")])
def test_a_claim_against_the_thesis_counts_the_other_way_round(bound: str, answer: str) -> None:
    found = answered(thesis(["lead"], ["bound"]), lead="reproduced", bound=bound)
    assert found.answer == answer
    assert found.parts[1].says == ("bound holds" if bound == "survives" else "bound fails")


@pytest.mark.parametrize("verdict", ["reproduced", "trend", "opposite"])
def test_trained_models_at_quick_decide_nothing(verdict: str) -> None:
    found = answered(thesis(["lead"]), lead=entry("lead", verdict, "quick"))
    assert (found.answer, found.scale) == ("cannot tell", None)
    assert found.because == "Open: whether lead holds (measured at quick only)."


def test_a_theorem_and_a_time_are_decided_where_they_are_measured() -> None:
    found = answered(
        thesis(["bound", "speed"]), bound=entry("bound", "survives", "quick"), speed=entry("speed", "trend", "quick")
    )
    assert (found.answer, found.scale) == ("supported", "quick")


def test_the_reasons_name_every_side() -> None:
    found = answered(thesis(["lead", "second", "speed"]), lead="reproduced", second="opposite", speed="unresolved")
    assert found.because == (
        "For it: lead holds. Against it: second fails. Open: whether speed holds (unresolved at night)."
    )


@pytest.mark.parametrize(
    ("verdict", "says"), [("opposite", "it is behind"), ("not reproduced", "b"), ("trend", "a")], ids=str
)
def test_the_reverse_of_an_ordering_has_words_of_its_own(verdict: str, says: str) -> None:
    bearing = {"claim": "lead", "holds": "a", "fails": "b", "reverse": "it is behind"}
    found = answered(thesis([], **{"for": [bearing]}), lead=verdict)
    assert found.parts[0].says == says


@pytest.mark.parametrize(
    ("interval", "answer", "leans"),
    [
        ((0.1, 0.3), "cannot tell", "for"),
        ((-0.3, -0.1), "contradicted", "against"),
        ((-0.1, 0.3), "contradicted", "open"),
    ],
    ids=["for", "against", "neither"],
)
def test_nothing_is_contradicted_while_an_open_claim_leans_for_it(
    interval: tuple[float, float], answer: str, leans: str
) -> None:
    open_one = entry("second", "unresolved", measured={"interval": list(interval), "p": 0.012})
    found = answered(thesis(["lead", "second"]), lead="opposite", second=open_one)
    assert (found.answer, found.parts[1].leans) == (answer, leans)
    told = f"; before the correction it speaks {leans} the thesis, p = 0.012" if leans != "open" else ""
    assert found.parts[1].says == f"whether second holds (unresolved at night{told})"


def test_a_claim_against_the_thesis_leans_the_other_way_round() -> None:
    open_one = entry("second", "unresolved", measured={"interval": [0.1, 0.3], "p": 0.012})
    part = answered(thesis(["lead"], ["second"]), second=open_one).parts[1]
    assert part.leans == "against"
    assert part.says == (
        "whether second holds (unresolved at night; before the correction it speaks against the thesis, p = 0.012)"
    )


@pytest.mark.parametrize(("verdict", "below"), [("trend", 1), ("opposite", 1), ("reproduced", 0)])
def test_an_answer_says_which_claims_were_measured_below_their_deciding_scale(verdict: str, below: int) -> None:
    found = answered(thesis(["lead", "speed"]), lead="reproduced", speed=verdict)
    assert found.trends == (f"{below} of its 2 decided claims is a trend, measured below gpu." if below else "")
    assert found.trends in found.because


def test_an_answer_of_trends_alone_says_so() -> None:
    both = answered(thesis(["speed", "slower"]), speed="trend", slower="opposite")
    assert both.trends == "All of its 2 decided claims are trends, measured below gpu."
    one = answered(thesis(["speed", "second"]), speed="trend", second="unresolved")
    assert one.trends == "Its one decided claim is a trend, measured below gpu."


def measured(difference: float = 0.2) -> dict[str, Any]:
    sides = {"better": [3.8, 3.9, 3.7, 3.8, 3.8], "worse": [4.0] * 5, "difference": difference, "interval": [0.1, 0.3]}
    return sides | {"controls": {"softmax": [3.0]}, "floor": {"name": "the bigram", "value": 4.5}}


EFFECT = {"claim": "lead", "form": "percent", "unit": "percent of the loss"}


def test_an_effect_in_percent_is_the_difference_over_the_other_side_s_loss() -> None:
    found = answered(thesis(["lead"], effect=EFFECT), lead=entry("lead", "reproduced", measured=measured()))
    assert (found.effect, found.interval) == (5.0, (2.5, 7.5))
    beaten = "The matched controls (softmax) beat the bigram, 4.5, with every seed"
    assert found.controls == f"{beaten}; the closest by 1.5, of the two sides by 0.5."


def test_an_effect_whose_claim_speaks_against_the_thesis_has_the_other_sign() -> None:
    found = answered(thesis(["bound"], ["lead"], effect=EFFECT), lead=entry("lead", "reproduced", measured=measured()))
    assert (found.effect, found.interval) == (-5.0, (-7.5, -2.5))


def test_a_claim_that_was_added_after_the_plan_is_told_and_decides_nothing() -> None:
    asked = thesis(["later"], effect=EFFECT | {"claim": "later"})
    found = answered(asked, later=entry("later", "reproduced", measured=measured()))
    assert (found.exploratory, found.answer, found.parts[0].leans) == (True, "cannot tell", "for")
    assert found.because.startswith("Open: whether later holds (found so, but asked afterwards). The matched controls")
    assert not answered(
        thesis(["lead"], effect=EFFECT), lead=entry("lead", "reproduced", measured=measured())
    ).exploratory


def test_an_effect_that_nobody_measured_stands_as_not_run() -> None:
    asked = thesis(["second"], effect={"claim": "lead", "form": "percent", "unit": "percent of the loss"})
    found = answered(asked, second="reproduced", lead=entry("lead", "not run", "quick"))
    assert (found.effect, found.standing) == (None, "not run")


@pytest.mark.parametrize(
    ("verdict", "says"), [("reproduced", "it is so"), ("opposite", "the reverse"), ("unresolved", "whether it is so")]
)
def test_a_cause_is_told_by_its_claim_s_verdict_and_decides_nothing(verdict: str, says: str) -> None:
    change = {"claim": "second", "holds": "it is so", "fails": "it is not", "reverse": "the reverse"}
    found = answered(thesis(["lead"], cause=[change]), lead="reproduced", second=verdict)
    assert found.answer == "supported"
    assert [part.says.partition(" (")[0] for part in found.causes] == [says]
    assert "second" not in found.thesis.claims


def test_an_effect_that_quick_measured_is_not_shown() -> None:
    found = answered(thesis(["lead"], effect=EFFECT), lead=entry("lead", "trend", "quick", measured()))
    assert (found.effect, found.interval) == (None, None)


@pytest.mark.parametrize(("verdict", "standing"), [("reproduced", ""), ("undecided", "undecided")])
def test_the_value_of_a_number_that_was_not_decided_is_shown_as_such(verdict: str, standing: str) -> None:
    effect = {"claim": "speed", "form": "value", "unit": "as the exponent"}
    found = answered(thesis(["speed"], effect=effect), speed=entry("speed", verdict, "night", 0.5))
    assert (found.effect, found.standing) == (0.5, standing)
    (written,) = theses.as_json([found])
    assert written["effect"] == (None if standing else 0.5)


def test_a_published_perplexity_s_effect_is_in_percent_of_its_logarithm() -> None:
    cells = {
        "table": "table_1",
        "column": "ppl_val",
        "better": {"method": "NormAttention"},
        "worse": {"method": "1+elu"},
    }
    found = answered(thesis(["lead"], effect=EFFECT | {"published": cells}))
    assert found.published_effect == pytest.approx(100 * (1 - math.log(4.94) / math.log(4.98)), abs=1e-4)


@pytest.mark.parametrize(
    ("table", "column", "expected"), [("table_2", "rsd", 0.38), ("table_5", "avg", -8.78)], ids=["lower", "higher"]
)
def test_a_published_difference_is_positive_in_the_thesis_s_favour(table: str, column: str, expected: float) -> None:
    better, worse = ("NormAttention", "1+elu") if table == "table_2" else ("1+elu", "TransNormer T2")
    cells = {"table": table, "column": column, "better": {"method": better}, "worse": {"method": worse}}
    effect = {"claim": "lead", "form": "difference", "unit": "points", "published": cells}
    assert answered(thesis(["lead"], effect=effect)).published_effect == pytest.approx(expected)


def test_the_json_has_exactly_the_agreed_keys() -> None:
    found = answered(thesis(["lead"], effect=EFFECT), lead=entry("lead", "reproduced", measured=measured()))
    (written,) = theses.as_json([found])
    assert set(written) == KEYS
    assert (written["answer"], written["interval"], written["claims"]) == ("supported", [2.5, 7.5], ["lead"])


@pytest.mark.parametrize(
    ("name", "message"),
    [("leed", "no such claim; did you mean 'lead'"), ("printed", "kind 'print'"), ("slip", "kind 'misprint'")],
)
def test_a_thesis_names_claims_that_can_decide_it(name: str, message: str, tmp_path: Path) -> None:
    bearing = {"claim": name, "holds": "a", "fails": "b"}
    fields = {
        "id": "t",
        "locus": "x",
        "sentence": "y",
        "short": "z",
        "would_change": "w",
        "objection": "o",
        "reply": "r",
        "for": [bearing],
    }
    path = tmp_path / "transnormer" / "theses.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump([fields]))
    with pytest.raises(ValueError, match=message):
        theses.read(path, list(CLAIMS.values()))


def real() -> list[tuple[str, Thesis, tuple[Claim, ...]]]:
    claims = ledger_claims.load()
    return [(paper, thesis, claims) for paper in papers() for thesis in theses.load(paper, claims)]


REAL = real()


@pytest.mark.parametrize(("paper", "asked", "claims"), REAL, ids=[thesis.id for _, thesis, _ in REAL])
def test_every_thesis_can_be_answered_and_its_published_effect_be_read(
    paper: str, asked: Thesis, claims: tuple[Claim, ...]
) -> None:
    known = by_id(claims)
    nothing = {claim.id: entry(claim.id, "not run") for claim in claims}
    found = theses.answer(paper, asked, known, nothing)
    assert found.answer == "cannot tell"
    if asked.effect is not None:
        assert asked.effect.claim in asked.claims or asked.effect.form == "value"
        assert asked.effect.published is None or found.published_effect is not None


def test_a_paper_has_ten_to_fifteen_theses_with_ids_of_their_own() -> None:
    own = [thesis.id for paper, thesis, _ in REAL if paper == "transnormer"]
    assert 10 <= len(own) <= 15
    assert len({thesis.id for _, thesis, _ in REAL}) == len(REAL)
