"""The orderings of a table are judged together, and a misprint is one only if its correction holds."""

from typing import Any

import numpy as np
import pytest
import report_factory
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.analysis.seeds import holm
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.families import multiplicity, settle
from transnormer_lib.ledger.verdicts import Judgement, judge


def ordering(name: str, locus: str = "Table 4", **fields: Any) -> Claim:
    return report_factory.claim(name, "ordering", report_factory.TABLE, locus=locus, **fields)


def measured(lead: float, spread: float) -> dict[str, Any]:
    """Five seeds whose differences have this mean, and p-values that fall with the spread."""
    differences = lead + spread * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    fields = {"seeds": list(range(5)), "higher_is_better": False}
    return {"kind": "ordering", "better": [1.0] * 5, "worse": [1.0 + d for d in differences], **fields}


def judged(claims: list[Claim], leads: list[tuple[float, float]], scale: str = "quick") -> dict[str, Judgement]:
    found = {c.id: judge(c, measured(*lead), scale) for c, lead in zip(claims, leads, strict=True)}
    return settle(claims, found)


def test_a_difference_that_one_test_would_find_is_unresolved_among_many() -> None:
    claims = [ordering(f"a-{n}") for n in range(4)]
    weak, nothing = (1.0, 0.9), (0.0, 1.0)
    assert judged(claims[:1], [weak])["a-0"].verdict == "reproduced"
    among = judged(claims, [weak, nothing, nothing, nothing])["a-0"]
    assert among.verdict == "unresolved"
    assert "among 4 orderings of this part (Holm); an effect of" in str(among.reason)
    assert among.measured["family"] == 4
    assert among.measured["p"] < 0.05 < among.measured["p_holm"]


def test_other_tables_and_what_was_not_judged_do_not_count() -> None:
    claims = [ordering("a"), ordering("b", locus="Table 5"), ordering("c", locus="Table 6")]
    found = judged(claims, [(1.0, 0.9)] * 3)
    assert {j.verdict for j in found.values()} == {"reproduced"}
    few = judge(claims[1], measured(0.0, 1.0) | {"better": [1.0] * 4, "worse": [2.0] * 4, "seeds": range(4)}, "quick")
    same = [ordering("a"), ordering("b")]
    settled = settle(same, {"a": judge(same[0], measured(1.0, 0.9), "quick"), "b": few})
    assert settled["a"].verdict == "reproduced"
    assert settled["a"].measured["family"] == 1


def test_a_strong_difference_and_its_opposite_survive_the_correction() -> None:
    claims = [ordering("a"), ordering("b"), ordering("c")]
    found = judged(claims, [(1.0, 0.1), (-1.0, 0.1), (0.0, 1.0)])
    assert [found[name].verdict for name in "abc"] == ["reproduced", "opposite", "unresolved"]
    counted = multiplicity(claims, found)
    assert (counted.orderings, counted.families) == (3, 1)
    assert counted.expected_false == pytest.approx(0.05)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_s_p_values_are_those_of_his_step_down_test(p_values: list[float]) -> None:
    # At any level, going up from the smallest, hypotheses are rejected until one is not below level / those left.
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for left, index in zip(
            range(len(p_values), 0, -1), sorted(range(len(p_values)), key=p_values.__getitem__), strict=True
        ):
            if not p_values[index] * left < level:
                break
            rejected.add(index)
        assert {index for index, p in enumerate(holm(p_values)) if p < level} == rejected


def misprint(correction: Judgement | None, holds: bool = False) -> Judgement:
    printed = report_factory.claim("printed", "misprint", report_factory.THEORY, corrected="corrected")
    corrected = report_factory.claim("corrected", "theorem", report_factory.THEORY)
    found = {"printed": judge(printed, {"kind": "misprint", "holds": holds, "counter_example": {"n": 2}}, "quick")}
    if correction is not None:
        found["corrected"] = correction
    return settle([printed, corrected], found)["printed"]


@pytest.mark.parametrize("correction", ["survives", "reproduced", "consistent"])
def test_a_misprint_whose_correction_holds_is_one(correction: str) -> None:
    assert misprint(Judgement(correction)).verdict == "misprint"


def test_a_printed_form_that_holds_needs_no_correction() -> None:
    assert misprint(None, holds=True).verdict == "survives"


@pytest.mark.parametrize("correction", [None, Judgement("refuted"), Judgement("not run")], ids=str)
def test_a_misprint_whose_correction_is_left_out_or_fails_is_not_judged(correction: Judgement | None) -> None:
    found = misprint(correction)
    assert (found.verdict, found.reason) == ("not run", "its correction, corrected, does not hold here")
