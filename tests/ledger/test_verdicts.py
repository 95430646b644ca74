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
from transnormer_lib.ledger.verdicts import (
    SCALES,
    SUCCESSES,
    VERDICTS,
    at_least,
    judge,
    required_seeds,
)

BELOW_ONLY = {"trend", "no trend", "undecided"}
ALLOWED = {
    "theorem": {"verified", "refuted"},
    "property": {"reproduced", "not reproduced"},
    "number": {"reproduced", "not reproduced"},
    "ordering": {"reproduced", "not reproduced"},
}


def claim(kind: str, decided_at: str = "quick", **fields: Any) -> Claim:
    return report_factory.claim("a-claim", kind, report_factory.THEORY, decided_at=decided_at, **fields)


def number(*values: float | str) -> dict[str, Any]:
    return {"kind": "number", "values": list(values), "seeds": None}


def ordering(better: list[Any], worse: list[Any], higher: bool = False, floor: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "ordering",
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


def test_a_theorem_that_survives_is_verified_and_keeps_its_margin() -> None:
    judged = judge(claim("theorem"), HOLDS, "quick")
    assert judged.verdict == "verified"
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
    assert (judged.verdict, judged.measured, judged.seeds) == ("reproduced", 5.0, (3, 4))


@pytest.mark.parametrize(
    ("scale", "measured", "verdict"),
    [
        ("night", AHEAD, "reproduced"),
        ("night", BEHIND, "not reproduced"),
        ("quick", AHEAD, "trend"),
        ("quick", BEHIND, "no trend"),
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
    assert (judged.verdict, judged.reason) == ("not reproduced", "the interval does not exclude zero")


@pytest.mark.parametrize(("decided_at", "needed"), [("quick", 5), ("night", 3), ("gpu", 3), ("paper", 3)])
def test_an_ordering_with_too_few_seeds_is_not_run_whatever_it_shows(decided_at: str, needed: int) -> None:
    assert required_seeds(decided_at) == needed
    few = ordering(AHEAD["better"][: needed - 1], AHEAD["worse"][: needed - 1])
    judged = judge(claim("ordering", decided_at), few, "paper")
    assert (judged.verdict, judged.reason) == ("not run", f"needs at least {needed} seeds, has {needed - 1}")
    enough = ordering(AHEAD["better"][:needed], AHEAD["worse"][:needed])
    assert judge(claim("ordering", decided_at), enough, "paper").verdict == "reproduced"


@pytest.mark.parametrize(("scale", "verdict"), [("quick", "no trend"), ("night", "not reproduced")])
def test_a_better_model_that_does_not_beat_the_floor_with_every_seed_has_no_trend(scale: str, verdict: str) -> None:
    below_floor = judge(claim("ordering", "night"), {**AHEAD, "floor": {"name": "bigram", "value": 1.5}}, scale)
    assert below_floor.verdict in (*SUCCESSES, "trend")
    judged = judge(claim("ordering", "night"), {**AHEAD, "floor": {"name": "bigram", "value": 1.02}}, scale)
    assert judged.verdict == verdict
    assert judged.reason == "the better model does not beat bigram (1.02) with every seed"


def test_a_floor_for_scores_lies_below_what_must_beat_it() -> None:
    scores = ordering(AHEAD["worse"], AHEAD["better"], higher=True, floor=1.5)
    assert judge(claim("ordering"), scores, "quick").verdict == "reproduced"
    scores["floor"]["value"] = 1.95
    assert judge(claim("ordering"), scores, "quick").verdict == "not reproduced"


@pytest.mark.parametrize("scale", ["quick", "night"])
@pytest.mark.parametrize("bad", ["inf", "-inf"])
@pytest.mark.parametrize("side", ["better", "worse"])
def test_an_ordering_with_a_number_that_is_not_finite_never_succeeds(scale: str, bad: str, side: str) -> None:
    measured = {**AHEAD, side: [bad, *AHEAD[side][1:]]}
    assert judge(claim("ordering", "night"), measured, scale).verdict in ("no trend", "not reproduced")


@pytest.mark.parametrize("bad", ["inf", "-inf"])
def test_a_number_or_margin_that_is_not_finite_never_succeeds(bad: str) -> None:
    assert judge(claim("number"), number(bad), "quick").verdict == "not reproduced"
    assert judge(claim("number"), number(4.98, bad), "quick").verdict == "not reproduced"
    assert judge(claim("theorem"), {**HOLDS, "margin": bad}, "quick").verdict == "refuted"


@pytest.mark.parametrize(("kind", "measured"), [("theorem", HOLDS), ("property", EXACT)])
def test_what_has_no_weaker_verdict_is_not_run_below_its_scale(kind: str, measured: dict[str, Any]) -> None:
    judged = judge(claim(kind, "gpu"), measured, "night")
    assert (judged.verdict, judged.reason) == ("not run", "measured, but decided only at gpu or above")
    assert judged.measured is not None


def test_a_claim_that_was_not_measured_is_not_run_with_the_given_reason() -> None:
    judged = judge(claim("number"), {"kind": "not run", "reason": "needs a GPU"}, "paper")
    assert (judged.verdict, judged.reason, judged.measured) == ("not run", "needs a GPU", None)


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
}


@given(st.data(), st.sampled_from(sorted(measurements)), st.sampled_from(SCALES), st.sampled_from(SCALES))
def test_no_verdict_exceeds_its_scale(data: st.DataObject, kind: str, scale: str, decided_at: str) -> None:
    judged = judge(claim(kind, decided_at), data.draw(measurements[kind]), scale)
    assert judged.verdict in VERDICTS
    if at_least(scale, decided_at):
        assert judged.verdict in ALLOWED[kind] | {"not run"}
    else:
        assert judged.verdict in BELOW_ONLY | {"not run"}
    if judged.verdict == "not run":
        assert judged.reason
