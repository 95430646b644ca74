"""From a claim and a measurement to a verdict: pure functions, the only place that judges one claim.

A measurement is the JSON object that ``measurements`` records; infinities are the strings ``"inf"`` and ``"-inf"``.
A claim's ``decided_at`` is the smallest scale that may decide it. The kinds and their verdicts:

- ``theorem``: survives the search for a counter-example, or refuted by one.
- ``misprint``: as printed it cannot be meant, which a counter-example shows; its correction is a claim of its own. If
  it holds as printed after all, it survives.
- ``property``, exact, of what was built: reproduced or not reproduced.
- ``print``, print against print: consistent or inconsistent.
- ``number``: reproduced or not reproduced at or above ``decided_at``; undecided below it.
- ``ordering``: differences paired by seed, at least five. Reproduced (below ``decided_at``: trend) if their 95%
  interval lies on the claimed side; opposite if it lies on the other; unresolved if it holds zero; not reproduced if it
  holds zero and, at ``decided_at``, excludes the claim's ``least`` lead.
- ``comparable``: the same about a lead of minus the claim's ``tolerance``, by which it may be behind.
- An ordering or comparison is ``not learned`` if a run of either side, or of a matched control, does not beat the
  floor, the score of a simple model such as a bigram; where the sides are no losses, if those of their rows do not.
- ``not run``, with the reason, and below ``decided_at`` with that scale: nothing was measured, there are too few seeds,
  the differences between trained models are all equal, which says nothing of other seeds, or a claim without a weaker
  verdict was measured below its ``decided_at``.

A number that is not finite never succeeds. The reason of an exploratory claim, one that was added after the plan,
begins with that. ``ledger.families`` corrects for the number of orderings in a table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transnormer_lib.analysis.seeds import paired_difference
from transnormer_lib.checks import check_choice, check_distinct
from transnormer_lib.choices import SCALES
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.values import rounded, shown

ON_REAL_DATA = ("gpu", "paper")  # the scales that train on the published data
SUCCESSES = ("survives", "reproduced", "consistent")
FAILURES = ("refuted", "not reproduced", "inconsistent", "opposite")
# In the order of the report: failed, misprinted, not decided, succeeded.
VERDICTS = (
    *FAILURES,
    "misprint",
    "not learned",
    "unresolved",
    "undecided",
    "not run",
    "trend",
    "consistent",
    "reproduced",
    "survives",
)
EXPLORATORY = "exploratory: added after the plan"
SEEDS = 5  # the fewest on which an ordering is judged


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


def marked(claim: Claim, judgement: Judgement) -> Judgement:
    """The judgement, whose reason begins with ``EXPLORATORY`` if the claim is; once, however often it is marked."""
    reason = judgement.reason or ""
    if not claim.exploratory or reason.startswith(EXPLORATORY):
        return judgement
    return replace(judgement, reason=f"{EXPLORATORY}; {reason}" if reason else EXPLORATORY)


def judge(claim: Claim, measurement: Mapping[str, Any], scale: str) -> Judgement:
    """The verdict on ``claim`` from its measurement at ``scale``.

    Raises ValueError where the measurement is of another kind than the claim, counts a seed twice, or lacks one.
    """
    if measurement["kind"] == "not run":
        at = "" if at_least(scale, claim.decided_at) else f"decided at {claim.decided_at}: "
        return marked(claim, Judgement("not run", reason=f"{at}{measurement['reason']}"))
    if measurement["kind"] != claim.kind:
        raise ValueError(f"claim {claim.id!r}: is of kind {claim.kind!r}, measured as {measurement['kind']!r}")
    rules = {
        "theorem": _theorem,
        "misprint": _misprint,
        "property": _exact,
        "print": _exact,
        "number": _number,
        "ordering": _ordering,
        "comparable": _ordering,
    }
    return marked(claim, rules[claim.kind](claim, measurement, at_least(scale, claim.decided_at)))


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
    return Judgement("survives" if holds else "refuted", measured)


def _misprint(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    measured = {key: measurement[key] for key in ("holds", "counter_example")}
    if not decisive:
        return _too_small(claim, measured)
    if measurement["holds"] is True:
        return Judgement("survives", measured, reason="it holds as printed")
    return Judgement("misprint", measured)


def _exact(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    value, expected = measurement["value"], measurement["expected"]
    if not decisive:
        return _too_small(claim, value)
    tolerance = claim.tolerance or 0.0
    equal = _equal(value, expected, tolerance)
    reason = None if equal else f"expected {shown(expected)}" + (f" ± {shown(tolerance)}" if tolerance else "")
    succeeded, failed = ("consistent", "inconsistent") if claim.kind == "print" else ("reproduced", "not reproduced")
    return Judgement(succeeded if equal else failed, value, reason=reason)


def _number(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    cells = measurement["values"] if isinstance(measurement["values"], Mapping) else {"": measurement["values"]}
    published: Mapping[str, Any] = claim.published if isinstance(claim.published, Mapping) else {"": claim.published}
    if cells.keys() != published.keys():
        raise ValueError(f"claim {claim.id!r}: measured {shown(list(cells))}, published {shown(list(published))}")
    means = {name: _mean(values) for name, values in cells.items()}
    found = {name: _with_range(means[name], values) for name, values in cells.items()}
    measured: Any = found if isinstance(claim.published, Mapping) else found[""]
    seeds = _seeds(measurement)
    if not decisive:
        return Judgement("undecided", measured, seeds, f"decided at {claim.decided_at}")
    assert claim.tolerance is not None
    infinite = [name for name, mean in means.items() if mean == "inf"]
    far = [
        name for name in means if name in infinite or not _near(float(means[name]), published[name], claim.tolerance)
    ]
    reason = f"not finite: {shown(cells[infinite[0]])}" if infinite else None
    if far and reason is None and far != [""]:
        reason = f"outside the tolerance: {', '.join(far)}"
    return Judgement("not reproduced" if far else "reproduced", measured, seeds, reason)


def _mean(values: Sequence[Any]) -> float | str:
    numbers = [float(value) for value in values]
    return rounded(math.fsum(numbers) / len(numbers)) if all(map(math.isfinite, numbers)) else "inf"


def _with_range(mean: float | str, values: Sequence[Any]) -> Any:
    """The mean; of several values, with the smallest and the largest."""
    return mean if len(values) == 1 else {"mean": mean, "range": [min(values, key=float), max(values, key=float)]}


def _ordering(claim: Claim, measurement: Mapping[str, Any], decisive: bool) -> Judgement:
    better, worse = ([float(value) for value in measurement[side]] for side in ("better", "worse"))
    seeds = _seeds(measurement)
    if seeds is not None and not len(better) == len(worse) == len(seeds):
        raise ValueError(f"seeds={list(seeds)!r}: better holds {len(better)} values, worse {len(worse)}")
    measured: dict[str, Any] = {side: measurement[side] for side in ("better", "worse")}
    measured |= {name: measurement[name] for name in ("floor", "controls", "learned") if measurement.get(name)}
    if len(better) < SEEDS:
        return Judgement("not run", measured, seeds, f"needs at least {SEEDS} seeds, has {len(better)}")
    if reason := _not_learned(measurement):
        return Judgement("not learned", measured, seeds, reason)
    # Times and counts may be exact; losses and scores of models that the seeds make different are not.
    of_models = not (claim.timing or claim.rounds or measurement.get("learned"))
    if of_models and len({b - w for b, w in zip(better, worse, strict=True)}) == 1:
        return Judgement("not run", measured, seeds, "all differences are equal: the seeds change nothing")
    ahead = paired_difference(better, worse, measurement["higher_is_better"])
    behind = claim.tolerance or 0.0  # what a comparable side may be behind
    interval = (rounded(ahead.low), rounded(ahead.high))
    measured |= {"difference": rounded(ahead.mean), "interval": list(interval)}
    measured |= {"p": rounded(ahead.p(-behind)), "visible": rounded(ahead.visible)}
    if ahead.low > -behind:
        return Judgement("reproduced" if decisive else "trend", measured, seeds, None, interval)
    if ahead.high < -behind:
        return Judgement("opposite", measured, seeds, "the other side is ahead", interval)
    if decisive and claim.least is not None and ahead.high < claim.least:
        reason = f"a lead, if there is one, is below {shown(claim.least)}"
        return Judgement("not reproduced", measured, seeds, reason, interval)
    holds = f"−{shown(behind)}" if behind else "zero"
    return Judgement("unresolved", measured, seeds, f"the interval holds {holds}; {visible(measured)}", interval)


def visible(measured: Mapping[str, Any]) -> str:
    """The smallest effect that could have been seen, in words."""
    return f"an effect of {shown(measured['visible'], 3)} would have been seen in 4 of 5 tries"


def _not_learned(measurement: Mapping[str, Any]) -> str:
    """Which side's runs diverged or do not beat the floor; empty if all do."""
    floor, higher = measurement.get("floor"), measurement["higher_is_better"]
    sides = {"the favoured side": measurement["better"], "the other side": measurement["worse"]}
    losses = measurement.get("learned")  # where the sides are none; lower is better
    for name, values in (dict(losses or {}) | sides | dict(measurement.get("controls") or {})).items():
        numbers = [float(value) for value in values]
        diverged = sum(not math.isfinite(number) for number in numbers)
        if diverged:
            return f"{diverged} of {len(numbers)} runs of {name} diverged"
        if floor is None or (losses and name not in losses):
            continue
        limit = float(floor["value"])
        behind = sum(number <= limit if higher and not losses else number >= limit for number in numbers)
        if behind:
            return f"{behind} of {len(numbers)} runs of {name} do not beat {floor['name']} ({shown(limit)})"
    return ""


def _too_small(claim: Claim, measured: Any) -> Judgement:
    return Judgement("not run", measured, reason=f"measured, but decided only at {claim.decided_at} or above")


def _seeds(measurement: Mapping[str, Any]) -> tuple[int, ...] | None:
    seeds = measurement.get("seeds")
    if seeds is None:
        return None
    check_distinct("seeds", seeds)
    return tuple(seeds)


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
