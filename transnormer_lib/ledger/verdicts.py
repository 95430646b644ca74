"""From a claim and a measurement to a verdict: pure functions, the only place that judges.

A measurement is the JSON object that ``measurements`` records; infinities are the strings ``"inf"`` and ``"-inf"``.
A claim's ``decided_at`` is the smallest scale that may decide it. An ordering may have a floor, the score of a simple
model, such as a bigram, that the better row must beat. The rules:

- ``theorem``: verified or refuted.
- ``property``: reproduced or not reproduced.
- ``number``: reproduced or not reproduced at or above the claim's ``decided_at``; undecided below it.
- ``ordering``: reproduced or not reproduced at or above ``decided_at``; trend or no trend below it. The 95% interval
  of the differences paired by seed must exclude zero in the claimed direction.
- ``not run``, with the reason: nothing was measured, there are too few seeds, or a theorem or property was measured
  below its ``decided_at``, where neither has a weaker verdict.

A number that is not finite never succeeds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transnormer_lib.analysis.seeds import paired_difference
from transnormer_lib.checks import check_choice
from transnormer_lib.choices import SCALES
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.values import rounded, shown

ON_REAL_DATA = ("gpu", "paper")  # the scales that train on the published data
SUCCESSES = ("verified", "reproduced")
FAILURES = ("refuted", "not reproduced")
# In the order of the report: failed, missing, not decided, succeeded.
VERDICTS = ("refuted", "not reproduced", "not run", "no trend", "undecided", "trend", "reproduced", "verified")


@dataclass(frozen=True)
class Judgement:
    """A verdict with what was measured, as claims.json has it, and the reason where the verdict needs one."""

    verdict: str
    measured: Any = None
    seeds: tuple[int, ...] | None = None
    reason: str | None = None
    interval: tuple[float, float] | None = None  # of the paired difference; positive in the claimed direction


def at_least(scale: str, decided_at: str) -> bool:
    """Whether ``scale`` is at or above ``decided_at``. Raises ValueError for an unknown scale."""
    check_choice("scale", scale, SCALES)
    check_choice("decided_at", decided_at, SCALES)
    return SCALES.index(scale) >= SCALES.index(decided_at)


def required_seeds(decided_at: str) -> int:
    """How many seeds an ordering needs: 5 where the quick scale decides, 3 where only larger ones do."""
    return 5 if decided_at == "quick" else 3


def judge(claim: Claim, measurement: Mapping[str, Any], scale: str) -> Judgement:
    """The verdict on ``claim`` from its measurement at ``scale``.

    Raises ValueError where the measurement is of another kind than the claim.
    """
    if measurement["kind"] == "not run":
        return Judgement("not run", reason=measurement["reason"])
    if measurement["kind"] != claim.kind:
        raise ValueError(f"claim {claim.id!r}: is of kind {claim.kind!r}, measured as {measurement['kind']!r}")
    rule = {"theorem": _theorem, "property": _property, "number": _number, "ordering": _ordering}[claim.kind]
    return rule(claim, measurement, at_least(scale, claim.decided_at))


def _theorem(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    holds, margin = measurement["holds"] is True, measurement.get("margin")
    measured = {key: measurement[key] for key in ("holds", "margin", "searched") if measurement.get(key) is not None}
    evidence = "tightest" if holds else "counter_example"
    if measurement.get(evidence) is not None:
        measured[evidence] = measurement[evidence]
    if not decisive:
        return _too_small(claim, measured)
    if holds and margin is not None and not math.isfinite(float(margin)):
        return Judgement("refuted", measured, reason=f"the margin is not finite: {margin}")
    return Judgement("verified" if holds else "refuted", measured)


def _property(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    value, expected = measurement["value"], measurement["expected"]
    if not decisive:
        return _too_small(claim, value)
    tolerance = claim.tolerance or 0.0
    reproduced = _equal(value, expected, tolerance)
    reason = None if reproduced else f"expected {shown(expected)}" + (f" ± {shown(tolerance)}" if tolerance else "")
    return Judgement("reproduced" if reproduced else "not reproduced", value, reason=reason)


def _number(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    values = [float(value) for value in measurement["values"]]
    finite = all(map(math.isfinite, values))
    measured = rounded(math.fsum(values) / len(values)) if finite else "inf"
    seeds = _seeds(measurement)
    if not decisive:
        return Judgement("undecided", measured, seeds, f"decided at {claim.decided_at}")
    assert isinstance(claim.published, int | float)
    assert claim.tolerance is not None
    reproduced = finite and _near(float(measured), claim.published, claim.tolerance)
    reason = None if finite else f"not finite: {shown(measurement['values'])}"
    return Judgement("reproduced" if reproduced else "not reproduced", measured, seeds, reason)


def _ordering(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    succeeded, failed = ("reproduced", "not reproduced") if decisive else ("trend", "no trend")
    better, worse = ([float(value) for value in measurement[side]] for side in ("better", "worse"))
    higher, seeds = measurement["higher_is_better"], _seeds(measurement)
    measured: dict[str, Any] = {side: measurement[side] for side in ("better", "worse")}
    floor = measurement.get("floor")
    if floor is not None:
        measured["floor"] = floor
    needed = required_seeds(claim.decided_at)
    if len(better) < needed:
        return Judgement("not run", measured, seeds, f"needs at least {needed} seeds, has {len(better)}")
    if not all(map(math.isfinite, [*better, *worse])):
        return Judgement(failed, measured, seeds, "a run is not finite, so the paired difference has no interval")
    ahead = paired_difference(better, worse, higher)
    interval = (rounded(ahead.low), rounded(ahead.high))
    measured |= {"difference": rounded(ahead.mean), "interval": list(interval)}
    if ahead.low <= 0.0:
        reason = "the other side is ahead" if ahead.high < 0.0 else "the interval does not exclude zero"
        return Judgement(failed, measured, seeds, reason, interval)
    if floor is not None:
        limit = float(floor["value"])
        if not all(value > limit if higher else value < limit for value in better):
            reason = f"the better model does not beat {floor['name']} ({shown(limit)}) with every seed"
            return Judgement(failed, measured, seeds, reason, interval)
    return Judgement(succeeded, measured, seeds, None, interval)


def _too_small(claim: Claim, measured: Any) -> Judgement:
    return Judgement("not run", measured, reason=f"measured, but decided only at {claim.decided_at} or above")


def _seeds(measurement: Mapping[str, Any]) -> tuple[int, ...] | None:
    seeds = measurement.get("seeds")
    return None if seeds is None else tuple(seeds)


def _near(ours: float, published: float, tolerance: float) -> bool:
    # In binary 31.02 - 31.01 is slightly more than 0.01: allow for the rounding of the two decimals.
    rounding = 4 * math.ulp(max(abs(ours), abs(published)))
    return abs(ours - published) <= tolerance + rounding


def _equal(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return math.isfinite(value) and math.isfinite(expected) and _near(value, expected, tolerance)
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_equal(value[k], expected[k], tolerance) for k in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected, [tolerance] * len(value)))
    return type(value) is type(expected) and value == expected and value not in ("inf", "-inf")
