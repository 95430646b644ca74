"""Sentences for captions, computed from the numbers of a run: which row leads, which stay behind, what grows.

``values`` are by row, one per seed; a run that diverged has an infinite one. A sentence about one seed says so.
"""

import math
from collections.abc import Mapping, Sequence

from transnormer_lib.analysis import seeds
from transnormer_lib.analysis.decoding import StepCost
from transnormer_lib.ledger.values import shown

_NAMED = 4  # so many things a sentence names; more it only counts
Rows = Mapping[str, Sequence[float]]


def number(value: float, digits: int) -> str:
    """The number with so many decimals and a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def signed(value: float, digits: int) -> str:
    """The number with so many decimals and its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def lead(values: Rows, *, what: str, unit: str, digits: int, higher_is_better: bool = False) -> str:
    """Which row has the best mean, and how far it is from the next one, with the interval of the paired difference.

    ``what`` names the value, ``unit`` ends a number (`` bits``, ``%``). One seed orders nothing, and the sentence says
    so. Runs that diverged are counted; a row without a finished run is in no order.
    """
    ranked = sorted((row for row in values if seeds.finished(values[row])), key=lambda row: seeds.mean(values[row]))
    if not ranked:
        return "Every run diverged."
    first, *others = reversed(ranked) if higher_is_better else ranked
    best = f"{first}, {number(seeds.mean(values[first]), digits)}{unit}"
    end = "highest" if higher_is_better else "lowest"
    single = max(map(len, values.values())) == 1
    if not others:
        text = f"{what.capitalize()}: {best}{', with one seed' if single else ''}."
    else:
        then = f"then {others[0]}, {number(seeds.mean(values[others[0]]), digits)}{unit}"
        if single:
            text = f"With one seed, which orders nothing, the {end} {what}: {best}; {then}."
        else:
            text = f"{end.capitalize()} mean {what}: {best}; {then} ({_apart(values, first, others[0], digits)})."
    lost = {row: len(of) - len(seeds.finished(of)) for row, of in values.items()}
    named = [f"{row} {count} of {len(values[row])}" for row, count in lost.items() if count]
    return text + (f" Diverged: {', '.join(named)}." if named else "")


def _apart(values: Rows, row: str, other: str, digits: int) -> str:
    """The paired difference of two rows with its interval."""
    both = [*values[row], *values[other]]
    if len(seeds.finished(both)) < len(both):
        return "no interval: a run diverged"
    found = seeds.paired_difference(values[row], values[other], higher_is_better=True)
    shown = (
        f"difference {signed(found.mean, digits)}, 95% in [{signed(found.low, digits)}, {signed(found.high, digits)}]"
    )
    return shown + (", not distinguishable" if found.low <= 0 <= found.high else "")


def behind(
    values: Rows, name: str, limit: float, *, digits: int, unit: str = "", higher_is_better: bool = False
) -> str:
    """Whether the runs beat a simple model whose value is ``limit``: all, none, or all but some of each row.

    ``name`` has its article.
    """
    beats = {row: [v > limit if higher_is_better else v < limit for v in of] for row, of in values.items()}
    than = f"{name}, {number(limit, digits)}{unit}"
    runs = [one for of in beats.values() for one in of]
    if all(runs):
        return f"Every run beats {than}."
    if not any(runs):
        return f"No run beats {than}."
    short = [f"{row} {of.count(False)} of {len(of)}" for row, of in beats.items() if not all(of)]
    return f"Runs that do not beat {than}: {', '.join(short)}."


def farthest(ours: Mapping[str, float], printed: Mapping[str, float], *, digits: int) -> str:
    """Which of our numbers differs most from its printed one, and by how much; rows without print are left out."""
    off = {row: value - printed[row] for row, value in ours.items() if row in printed}
    row = max(off, key=lambda name: abs(off[name]))
    if round(abs(off[row]), digits) == 0:
        return f"All agree with print to {digits} decimals."
    return f"Farthest from print: {row}, by {signed(off[row], digits)}."


def extremes(values: Mapping[str, float], *, what: str, unit: str, digits: int) -> str:
    """The rows with the largest and the smallest value, in a sentence; one row is told alone."""
    most, least = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
    told = f"{what}: {signed(values[most], digits)}{unit} for {most}"
    return f"{told}, the most, {signed(values[least], digits)} for {least}, the least." if most != least else f"{told}."


def ends(values: Mapping[str, float | None], *, what: str, unit: str = "", digits: int = 3) -> str:
    """The rows with the smallest and the largest value, in a sentence, and the rows without a finite value.

    ``what`` names the value, ``digits`` are significant ones.
    """
    known = {row: value for row, value in values.items() if value is not None and math.isfinite(value)}
    if not known:
        return f"{what}: no row has a value."
    without = [row for row in values if row not in known]
    rest = f"; no value for {joined(without)}." if without else "."
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    low, high = (f"{shown(known[row], digits)}{unit}" for row in (least, most))
    if low == high:
        return f"{what}: {low} for {joined(list(known)) if without or len(known) == 1 else 'every row'}{rest}"
    return f"{what}: from {low} for {least} to {high} for {most}{rest}"


def counted(names: Sequence[str], of: int, *, what: str) -> str:
    """How many of ``of`` things are so, in a sentence that names them unless they are many or all."""
    if not of:
        return f"{what}: nothing to compare."
    if not names:
        return f"{what}: none of {of:,}."
    some = f" ({', '.join(names)})" if len(names) < of and len(names) <= _NAMED else ""
    return f"{what}: {len(names):,} of {of:,}{some}."


def decoding_growth(costs: Sequence[StepCost]) -> str:
    """How time and state of one more token grow from the first to the last position, in the rows that differ most."""
    near, far = (end(cost.position for cost in costs) for end in (min, max))
    at = {(cost.model, cost.position): cost for cost in costs}
    rows = list(dict.fromkeys(cost.model for cost in costs))
    times = {row: at[row, far].median / at[row, near].median for row in rows}
    most, least = max(rows, key=times.__getitem__), min(rows, key=times.__getitem__)
    told = f"a token of {most} takes {times[most]:.1f} times as long"
    if most != least:
        told += f", the most, of {least} {times[least]:.1f} times, the least"
    grows = [row for row in rows if at[row, far].state_numbers > at[row, near].state_numbers]
    which = {0: "no row", len(rows): "every row"}.get(len(grows), f"{joined(grows)} alone")
    return f"From position {near:,} to {far:,} {told}; the state grows in {which}."
