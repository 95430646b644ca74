"""Every rule by which a measurement becomes a verdict, and that no verdict claims more than its scale allows."""

import math
from typing import Any

import pytest
import report_factory
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from transnormer_lib.analysis.seeds import paired_difference
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.verdicts import SCALES, SEEDS, VERDICTS, at_least, judge

OF_ORDERINGS = {"opposite", "unresolved", "not learned"}  # at any scale
BELOW = {"trend", "undecided"} | OF_ORDERINGS
ALLOWED = {
    "theorem": {"survives", "refuted"},
    "misprint": {"misprint"},
    "property": {"reproduced", "not reproduced"},
    "print": {"consistent", "inconsistent"},
    "number": {"reproduced", "not reproduced"},
    "ordering": {"reproduced", "not reproduced"} | OF_ORDERINGS,
    "comparable": {"reproduced"} | OF_ORDERINGS,
}
OWN: dict[str, dict[str, Any]] = {"comparable": {"tolerance": 0.5}, "misprint": {"corrected": "another"}}


def claim(kind: str, decided_at: str = "quick", **fields: Any) -> Claim:
    own = OWN.get(kind, {}) | fields
    return report_factory.claim("a-claim", kind, report_factory.THEORY, decided_at=decided_at, **own)


def number(*values: float | str) -> dict[str, Any]:
    return {"kind": "number", "values": list(values), "seeds": None}


def ordering(
    better: list[Any], worse: list[Any], higher: bool = False, floor: float | None = None, kind: str = "ordering"
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": kind,
        "better": better,
        "worse": worse,
        "seeds": list(range(len(better))),
        "higher_is_better": higher,
    }
    return found if floor is None else {**found, "floor": {"name": "the bigram model", "value": floor}}


AHEAD = ordering([1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.9, 2.1, 2.0])
BEHIND = ordering(AHEAD["worse"], AHEAD["better"])
HOLDS = {"kind": "theorem", "holds": True, "margin": 0.2, "searched": 10, "tightest": {"n": 2}}
BROKEN = {"kind": "theorem", "holds": False, "margin": -1.0, "searched": 10, "counter_example": {"n": 2}}
EXACT = {"kind": "property", "value": 124_672_512, "expected": 124_672_512}


def test_scales_are_ordered_from_quick_to_paper() -> None:
    assert SCALES == ("quick", "night", "gpu", "paper")
    assert [[at_least(a, b) for b in SCALES] for a in SCALES] == [[i >= j for j in range(4)] for i in range(4)]
    with pytest.raises(ValueError, match="scale='fast': must be one of 'quick', 'night', 'gpu', 'paper'"):
        at_least("fast", "quick")


def test_a_theorem_that_survives_keeps_its_margin() -> None:
    judged = judge(claim("theorem"), HOLDS, "quick")
    assert judged.verdict == "survives"
    assert judged.measured == {"holds": True, "margin": 0.2, "searched": 10, "tightest": {"n": 2}}


def test_a_broken_theorem_is_refuted_with_its_counter_example() -> None:
    judged = judge(claim("theorem"), BROKEN, "quick")
    assert judged.verdict == "refuted"
    assert judged.measured["counter_example"] == {"n": 2}


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "verdict"),
    [
        (3, 3, None, "reproduced"),
        (3, 4, None, "not reproduced"),
        (True, 1, None, "not reproduced"),
        (155.988, 155.99, None, "not reproduced"),
        (155.988, 155.99, 0.005, "reproduced"),
        ([1, {"a": 2.0}], [1, {"a": 2.0}], None, "reproduced"),
        ([1, 2], [1, 2, 3], None, "not reproduced"),
        ({"a": 1}, {"b": 1}, None, "not reproduced"),
        ("inf", "inf", None, "not reproduced"),
        ("linear", "linear", None, "reproduced"),
    ],
)
def test_a_property_is_compared_exactly_or_within_its_tolerance(
    value: Any, expected: Any, tolerance: float | None, verdict: str
) -> None:
    measured = {"kind": "property", "value": value, "expected": expected}
    assert judge(claim("property", tolerance=tolerance), measured, "quick").verdict == verdict
    of_print = {"reproduced": "consistent", "not reproduced": "inconsistent"}[verdict]
    assert judge(claim("print", tolerance=tolerance), measured | {"kind": "print"}, "quick").verdict == of_print


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (4.98, "reproduced"),
        (5.03, "reproduced"),
        (4.93, "reproduced"),
        (5.04, "not reproduced"),
        (4.9, "not reproduced"),
    ],
)
def test_a_number_is_reproduced_within_its_tolerance_and_undecided_below_its_scale(value: float, verdict: str) -> None:
    assert judge(claim("number", "night"), number(value), "night").verdict == verdict
    assert judge(claim("number", "night"), number(value), "paper").verdict == verdict
    assert judge(claim("number", "night"), number(value), "quick").verdict == "undecided"


def test_the_mean_over_seeds_is_judged() -> None:
    judged = judge(claim("number"), {"kind": "number", "values": [4.5, 5.5], "seeds": [3, 4]}, "quick")
    assert (judged.verdict, judged.seeds) == ("reproduced", (3, 4))
    assert judged.measured == {"mean": 5.0, "range": [4.5, 5.5]}


TABLE = {"t1": 4.98, "t2": 3.0}


@pytest.mark.parametrize(
    ("cells", "verdict", "reason"),
    [
        ({"t1": [4.98], "t2": [3.02]}, "reproduced", None),
        ({"t1": [4.98], "t2": [3.98]}, "not reproduced", "outside the tolerance: t2"),
        ({"t1": [3.0], "t2": [4.98]}, "not reproduced", "outside the tolerance: t1, t2"),
        ({"t1": ["inf"], "t2": [3.0]}, "not reproduced", "not finite: ∞"),
    ],
    ids=["near", "a cell is far", "two cells are swapped", "a cell is not finite"],
)
def test_a_column_of_a_table_is_reproduced_if_every_cell_is(cells: Any, verdict: str, reason: str | None) -> None:
    measured = {"kind": "number", "values": cells, "seeds": None}
    judged = judge(claim("number", published=TABLE), measured, "quick")
    assert (judged.verdict, judged.reason) == (verdict, reason)


def test_a_column_with_a_cell_missing_is_refused() -> None:
    measured = {"kind": "number", "values": {"t1": [4.98]}, "seeds": None}
    with pytest.raises(ValueError, match="claim 'a-claim': measured t1, published t1, t2"):
        judge(claim("number", published=TABLE), measured, "quick")


@pytest.mark.parametrize(
    ("scale", "measured", "verdict"),
    [
        ("night", AHEAD, "reproduced"),
        ("night", BEHIND, "opposite"),
        ("quick", AHEAD, "trend"),
        ("quick", BEHIND, "opposite"),
    ],
)
def test_an_ordering_is_decided_at_its_scale_and_a_trend_below_it(
    scale: str, measured: dict[str, Any], verdict: str
) -> None:
    assert judge(claim("ordering", "night"), measured, scale).verdict == verdict


def test_an_interval_that_holds_zero_is_no_success_though_the_mean_is_ahead() -> None:
    judged = judge(claim("ordering"), ordering([1, 1, 1, 1, 5], [2, 2, 2, 2, 4]), "quick")
    assert judged.interval is not None
    assert judged.interval[0] < 0 < judged.interval[1]
    assert judged.verdict == "unresolved"
    visible = judged.measured["visible"]
    assert judged.reason == f"the interval holds zero; an effect of {visible:.3g} would have been seen in 4 of 5 tries"


def test_the_smallest_visible_effect_is_found_in_four_of_five_tries() -> None:
    differences = [0.5, -1.0, 2.0, 0.2, 0.9, -0.3]
    found = paired_difference(differences, [0.0] * 6, higher_is_better=True)
    critical = stats.t.ppf(0.975, 5)
    power = stats.nct.sf(critical, 5, found.visible / found.error) + stats.nct.cdf(
        -critical, 5, found.visible / found.error
    )
    assert power == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize(
    ("scale", "least", "verdict"),
    [("night", 9.0, "not reproduced"), ("night", 1.0, "unresolved"), ("quick", 9.0, "unresolved")],
    ids=["the lead is excluded", "the lead is possible", "below its scale"],
)
def test_a_lead_that_the_interval_excludes_is_not_reproduced(scale: str, least: float, verdict: str) -> None:
    nothing = ordering([1, 2, 3, 4, 5], [2, 1, 4, 3, 5.1])
    assert judge(claim("ordering", "night", least=least), nothing, scale).verdict == verdict


@pytest.mark.parametrize(
    ("behind", "verdict"),
    [(-1.0, "reproduced"), (0.2, "reproduced"), (0.5, "unresolved"), (1.0, "opposite")],
    ids=["ahead", "a little behind", "behind by the margin", "far behind"],
)
def test_what_is_comparable_may_be_behind_by_its_tolerance(behind: float, verdict: str) -> None:
    worse = [2.0, 2.1, 1.9, 2.0, 2.05]
    better = [w + behind + d for w, d in zip(worse, [0.05, -0.05, 0.02, -0.02, 0.0], strict=True)]
    assert judge(claim("comparable"), ordering(better, worse, kind="comparable"), "quick").verdict == verdict


@pytest.mark.parametrize("decided_at", SCALES)
def test_an_ordering_with_too_few_seeds_is_not_run_whatever_it_shows(decided_at: str) -> None:
    few = ordering(AHEAD["better"][: SEEDS - 1], AHEAD["worse"][: SEEDS - 1])
    judged = judge(claim("ordering", decided_at), few, "paper")
    assert (judged.verdict, judged.reason) == ("not run", f"needs at least {SEEDS} seeds, has {SEEDS - 1}")


EQUAL = {"ahead": ([1.0] * 5, [2.0] * 5), "behind": ([2.5, 3.0, 2.0, 2.5, 2.0], [1.5, 2.0, 1.0, 1.5, 1.0])}


@pytest.mark.parametrize("kind", ["ordering", "comparable"])
@pytest.mark.parametrize("sides", EQUAL)
def test_equal_differences_of_trained_models_are_not_judged(sides: str, kind: str) -> None:
    judged = judge(claim(kind), ordering(*EQUAL[sides], kind=kind), "quick")
    assert (judged.verdict, judged.interval) == ("not run", None)
    assert judged.reason == "all differences are equal: the seeds change nothing"


@pytest.mark.parametrize(
    ("fields", "more"),
    [({"timing": True}, {}), ({"rounds": True}, {}), ({}, {"learned": {"t2": [1.0] * 5}})],
    ids=["times", "rounds", "counts of models that learned"],
)
def test_equal_differences_of_what_is_exact_are_judged(fields: dict[str, Any], more: dict[str, Any]) -> None:
    exact = ordering(*EQUAL["ahead"]) | more
    assert judge(claim("ordering", **fields), exact, "quick").verdict == "reproduced"


@pytest.mark.parametrize("scale", ["quick", "night"])
@pytest.mark.parametrize(
    ("floor", "reason"),
    [
        (2.5, None),
        (2.15, "1 of 5 runs of the other side do not beat bigram (2.15)"),
        (1.02, "2 of 5 runs of the favoured side do not beat bigram (1.02)"),
    ],
)
def test_nobody_wins_against_a_model_that_has_not_learned(scale: str, floor: float, reason: str | None) -> None:
    judged = judge(claim("ordering", "night"), {**AHEAD, "floor": {"name": "bigram", "value": floor}}, scale)
    assert (judged.verdict == "not learned") == (reason is not None)
    assert judged.reason == reason


def test_no_comparison_before_the_matched_controls_have_learned() -> None:
    measured = {**AHEAD, "floor": {"name": "bigram", "value": 3.0}}
    good = measured | {"controls": {"linear-matched": [2.9] * 5}}
    bad = measured | {"controls": {"linear-matched": [2.9] * 4 + [3.1]}}
    assert judge(claim("ordering"), good, "quick").verdict == "reproduced"
    judged = judge(claim("ordering"), bad, "quick")
    assert (judged.verdict, judged.reason) == ("not learned", "1 of 5 runs of linear-matched do not beat bigram (3)")


def test_where_the_sides_are_no_losses_those_of_their_rows_must_beat_the_floor() -> None:
    ranks = ordering([0.9, 0.91, 0.9, 0.92, 0.9], [0.8, 0.81, 0.8, 0.8, 0.8], higher=True, floor=3.0)
    good, bad = ({**ranks, "learned": {"softmax": [2.9] * 4 + [last]}} for last in (2.9, 3.0))
    assert judge(claim("ordering"), good, "quick").verdict == "reproduced"
    judged = judge(claim("ordering"), bad, "quick")
    assert (judged.verdict, judged.reason) == ("not learned", "1 of 5 runs of softmax do not beat the bigram model (3)")


def test_a_floor_for_scores_lies_below_what_must_beat_it() -> None:
    scores = ordering(AHEAD["worse"], AHEAD["better"], higher=True, floor=0.5)
    assert judge(claim("ordering"), scores, "quick").verdict == "reproduced"
    scores["floor"]["value"] = 0.95
    assert judge(claim("ordering"), scores, "quick").verdict == "not learned"


@pytest.mark.parametrize("scale", ["quick", "night"])
@pytest.mark.parametrize("bad", ["inf", "-inf"])
@pytest.mark.parametrize("side", ["better", "worse"])
def test_an_ordering_with_a_number_that_is_not_finite_never_succeeds(scale: str, bad: str, side: str) -> None:
    measured = {**AHEAD, side: [bad, *AHEAD[side][1:]]}
    judged = judge(claim("ordering", "night"), measured, scale)
    assert judged.verdict == "not learned"
    assert str(judged.reason).startswith("1 of 5 runs of the ")


@pytest.mark.parametrize("bad", ["inf", "-inf"])
def test_a_number_or_margin_that_is_not_finite_never_succeeds(bad: str) -> None:
    assert judge(claim("number"), number(bad), "quick").verdict == "not reproduced"
    assert judge(claim("number"), number(4.98, bad), "quick").verdict == "not reproduced"
    assert judge(claim("theorem"), {**HOLDS, "margin": bad}, "quick").verdict == "refuted"


MISPRINT = {"kind": "misprint", "holds": False, "counter_example": {"n": 2}}


def test_a_printed_form_that_holds_after_all_is_no_misprint() -> None:
    assert judge(claim("misprint"), MISPRINT, "quick").verdict == "misprint"
    judged = judge(claim("misprint"), MISPRINT | {"holds": True, "counter_example": None}, "quick")
    assert (judged.verdict, judged.reason) == ("survives", "it holds as printed")


@pytest.mark.parametrize(
    ("kind", "measured"),
    [("theorem", HOLDS), ("property", EXACT), ("print", EXACT | {"kind": "print"}), ("misprint", MISPRINT)],
)
def test_what_has_no_weaker_verdict_is_not_run_below_its_scale(kind: str, measured: dict[str, Any]) -> None:
    judged = judge(claim(kind, "gpu"), measured, "night")
    assert (judged.verdict, judged.reason) == ("not run", "measured, but decided only at gpu or above")
    assert judged.measured is not None


def test_a_claim_that_was_not_measured_is_not_run_with_the_given_reason() -> None:
    judged = judge(claim("number"), {"kind": "not run", "reason": "needs a GPU"}, "paper")
    assert (judged.verdict, judged.reason, judged.measured) == ("not run", "needs a GPU", None)
    below = judge(claim("number", decided_at="gpu"), {"kind": "not run", "reason": "needs a GPU"}, "quick")
    assert below.reason == "decided at gpu: needs a GPU"


def test_a_measurement_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="claim 'a-claim': is of kind 'theorem', measured as 'number'"):
        judge(claim("theorem"), number(1.0), "quick")


finite = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=12), st.booleans())
def test_the_interval_is_that_of_the_paired_t_test(pairs: list[tuple[float, float]], higher: bool) -> None:
    better, worse = map(list, zip(*pairs, strict=True))
    ours = paired_difference(better, worse, higher)
    first, second = (better, worse) if higher else (worse, better)
    if len({round(a - b, 6) for a, b in zip(first, second, strict=True)}) == 1:
        assert ours.high - ours.low <= 1e-6 * max(1.0, abs(ours.mean))
        return
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    scale = max(1.0, *map(abs, better), *map(abs, worse))
    assert math.isclose(ours.low, expected.low, rel_tol=1e-6, abs_tol=1e-8 * scale)
    assert math.isclose(ours.high, expected.high, rel_tol=1e-6, abs_tol=1e-8 * scale)


measurements = {
    "theorem": st.sampled_from([HOLDS, BROKEN]),
    "property": st.builds(lambda v, e: {"kind": "property", "value": v, "expected": e}, *[st.integers(0, 2)] * 2),
    "number": st.builds(number, st.floats(4.8, 5.2)),
    "ordering": st.integers(1, 6).flatmap(
        lambda n: st.builds(ordering, *[st.lists(finite, min_size=n, max_size=n)] * 2, st.booleans())
    ),
    "comparable": st.integers(1, 6).flatmap(
        lambda n: st.builds(
            lambda b, w: ordering(b, w, kind="comparable"), *[st.lists(finite, min_size=n, max_size=n)] * 2
        )
    ),
}


@given(st.data(), st.sampled_from(sorted(measurements)), st.sampled_from(SCALES), st.sampled_from(SCALES))
def test_no_verdict_exceeds_its_scale(data: st.DataObject, kind: str, scale: str, decided_at: str) -> None:
    judged = judge(claim(kind, decided_at), data.draw(measurements[kind]), scale)
    assert judged.verdict in VERDICTS
    if at_least(scale, decided_at):
        assert judged.verdict in ALLOWED[kind] | {"not run"}
    else:
        assert judged.verdict in BELOW | {"not run"}
    if judged.verdict == "not run":
        assert judged.reason
