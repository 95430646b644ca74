"""A result as lines of text."""

from collections.abc import Iterator, Mapping
from typing import Any

from transnormer_kernels.bench.contestants import OURS


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:.0f} {unit}"
    raise AssertionError("unreachable")


def heading(result: Mapping[str, Any]) -> Iterator[str]:
    """The device and versions of a result."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items() if number)
    driver = f", driver {result['driver']}" if result["driver"] else ""
    yield f"{result['device']}{driver}; {versions}"
    yield f"commit {result['commit'] or 'unknown'}, {result['date']}{', quick: no result' if result['quick'] else ''}"
    yield f"its own copy: {result['copy_bytes_per_second'] / 1e12:.3f} TB/s, read and written"


def whole(result: Mapping[str, Any]) -> Iterator[str]:
    """A whole result, as the run printed it."""
    yield from heading(result)
    for case in result["cases"]:
        yield case_heading(case)
        yield from (row(r) for r in case["rows"] if r["status"] != "left out" or r["name"] == OURS)
        yield from left_out(case)
        yield from comparisons(case)


def left_out(values: Mapping[str, Any]) -> Iterator[str]:
    """The peers that did not run, one line per reason."""
    reasons: dict[str, list[str]] = {}
    for row in values["rows"]:
        if row["status"] == "left out" and row["name"] != OURS:
            reasons.setdefault(row["reason"], []).append(row["name"])
    yield from (f"  left out, {reason}: {', '.join(names)}" for reason, names in reasons.items())


def case_heading(values: Mapping[str, Any]) -> str:
    """A case, its shape and its floor."""
    shape = " ".join(f"{letter}{size}" for letter, size in values["shape"].items())
    floor = f"floor {duration(values['floor_seconds'])} for {values['bytes'] / 1e6:.1f} MB"
    return f"\n{values['name']}   [{shape}, {values['dtype']}]   {floor}"


def row(values: Mapping[str, Any]) -> str:
    """One contestant in one case."""
    name = f"  {values['name']:32}"
    if values["status"] in ("failed", "left out"):
        return f"{name}{values['status']}: {values['reason']}"
    seconds = values["seconds"]
    spread = f"{duration(seconds['median']):>8}  ({duration(seconds['min'])} to {duration(seconds['max'])})"
    worst = values["worst"]
    found = values["errors"][worst]
    error = f"{worst} off by {'all' if found is None else format(found, '.1e')}, bound {values['bounds'][worst]:.1e}"
    notes = [f"{values['of_floor']:4.0%} of the floor", error]
    if values["status"] == "wrong":
        notes.insert(0, f"WRONG: {values['reason']}")
    if values["computes"]:
        notes.append("computes " + ", ".join(f"{key} {value}" for key, value in values["computes"].items()))
    if values["how"] == "events":
        notes.append(f"by events, {values['note']}")
    return f"{name}{spread:36}{'; '.join(notes)}"


def comparisons(values: Mapping[str, Any]) -> Iterator[str]:
    """The case's aims and whether they were reached."""
    for found in values["comparisons"]:
        if found["ratio"] is None:
            said = "cannot be said"
        else:
            said = f"{found['ratio']:.2f} x as fast as {found['fastest']}"
        yield f"  aim {found['aim']:g} x the fastest of {', '.join(found['against'])}: {said}"
    own = next((r for r in values["rows"] if r["name"] == OURS and r["status"] == "measured"), None)
    if values["aim_of_floor"] is not None and own is not None:
        yield f"  aim {values['aim_of_floor']:.0%} of the floor: {own['of_floor']:.0%}"
