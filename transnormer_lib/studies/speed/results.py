"""What was measured of speed and memory, as tables, ratios and sentences, and as what claims take."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transnormer_lib.analysis import length_growth
from transnormer_lib.analysis.arena_speed import PARTS, Cell, Part
from transnormer_lib.studies.speed import published as speed_published
from transnormer_lib.studies.speed.published import LENGTHS, PUBLISHED
from transnormer_lib.studies.speed.runs import STORED, Results, judged, label, model_of, quadratic_operations


def mark(cell: Cell | None) -> str:
    """What stands for a value that is missing."""
    if cell is None:
        return "not asked"
    return {"memory": "–", "time": "too slow", "": "not measured"}[cell.missing]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The median with the smallest and the largest value, ``digits`` of each that count."""
    text = [_digits(value, digits) for value in (statistics.median(values), min(values), max(values))]
    return text[0] if len(values) == 1 else f"{text[0]} ({text[1]}–{text[2]})"


def _digits(value: float, digits: int) -> str:
    places = max(digits - 1 - math.floor(math.log10(value)), 0) if value > 0 else 0
    return f"{value:,.{places}f}"


def speed_table(results: Results, part: Part) -> list[dict[str, Any]]:
    """One line per row: steps per second at every length, median and range over the rounds."""
    return [
        {"model": label(row)}
        | {
            f"{n:,}": spread(cell.steps_per_second) if cell and cell.seconds else mark(cell)
            for n in results.lengths()
            for cell in [results.cell(row, n, part)]
        }
        for row in results.rows()
    ]


def memory_table(results: Results, part: Part) -> list[dict[str, Any]]:
    """One line per row: the peak of memory in MB at every length, the median over the rounds."""
    return [
        {"model": label(row)}
        | {
            f"{n:,}": _digits(results.peaks(row, part)[n] / 1e6, 3)
            if n in results.peaks(row, part)
            else mark(results.cell(row, n, part))
            for n in results.lengths()
        }
        for row in results.rows()
    ]


def times_faster(results: Results, row: str, other: str, length: int, part: Part) -> list[float]:
    """How many times as many steps per second ``row`` does as ``other``, round by round; empty where one is missing."""
    mine, theirs = results.cell(row, length, part), results.cell(other, length, part)
    if mine is None or theirs is None:
        return []
    return [b / a for a, b in zip(mine.seconds, theirs.seconds, strict=False)]


def published_name(results: Results, row: str) -> str | None:
    """By which name Table 7 has the row: both forms of softmax attention stand beside its Transformer.

    None also of a row that runs on kernels where its plain form was measured, which then stands beside Table 7's.
    """
    if judged(row, results.rows()) != row:
        return None
    name = "vanilla" if row == STORED else model_of(row)
    return name if name in PUBLISHED else None


def judged_scores(results: Results, scores: Mapping[str, float]) -> dict[str, float]:
    """Scores by row, for the rows that the paper's comparisons are judged on: a plain row has its model's score."""
    return {judged(row, results.rows()): score for row, score in scores.items()}


def ratio_table(results: Results, row: str, part: Part) -> list[dict[str, Any]]:
    """One line per other row: the speed of ``row`` over its own at Table 7's lengths, ours beside the published."""
    lines = []
    for other in results.rows():
        if other == row:
            continue
        line: dict[str, Any] = {"model": label(other)}
        name, named = published_name(results, row), published_name(results, other)
        for n in (n for n in LENGTHS if n in results.lengths()):
            ours = times_faster(results, row, other, n, part)
            theirs = speed_published.ratio(name, named, n, part) if name and named else None
            line[f"{n // 1024}K"] = spread(ours) if ours else mark(results.cell(other, n, part))
            line[f"{n // 1024}K, published"] = None if theirs is None else round(theirs, 2)
        lines.append(line)
    return lines


def exponents(results: Results, from_length: int) -> dict[str, dict[Part, length_growth.Exponent | None]]:
    """How the time of a step grows with the length, per row and part, from ``from_length`` on."""
    return {
        row: {part: length_growth.exponent(results.medians(row, part), from_length) for part in PARTS}
        for row in results.rows()
    }


def memory_exponents(results: Results, from_length: int) -> dict[str, length_growth.Exponent | None]:
    """The same of the peak of memory in training."""
    return {row: length_growth.exponent(results.peaks(row, "training"), from_length) for row in results.rows()}


def exponent_text(found: length_growth.Exponent | None) -> str | None:
    """The exponent with its interval where there are points enough for one."""
    if found is None:
        return None
    if math.isinf(found.low):
        return f"{found.value:.2f} (two lengths)"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def growth_table(results: Results, from_length: int) -> list[dict[str, Any]]:
    """One line per row: exponents of time and memory, ours beside Table 7's, and whether operations grow as N²."""
    times, memory = exponents(results, from_length), memory_exponents(results, from_length)
    lines = []
    for row in results.rows():
        line: dict[str, Any] = {"model": label(row), "operations": "N²" if quadratic_operations(row) else "N"}
        named = published_name(results, row)
        for part in PARTS:
            line[part] = exponent_text(times[row][part])
            line[f"{part}, Table 7"] = exponent_text(speed_published.exponent(named, part)) if named else None
        lines.append(line | {"memory, training": exponent_text(memory[row])})
    return lines


def crossovers(results: Results, part: Part, softmax: str = "vanilla") -> list[dict[str, Any]]:
    """One line per row that is no softmax attention: the length from which on it is faster than ``softmax``."""
    lines = []
    rows = [row for row in results.rows() if not row.startswith("vanilla")]
    for row in rows:
        if not set(results.medians(row, part)) & set(results.medians(softmax, part)):
            continue
        overall = length_growth.crossover(results.medians(row, part), results.medians(softmax, part))
        rounds = length_growth.crossover_per_round(*_around(results, overall, (row, softmax), part))
        lines.append(
            {"model": label(row), "part": part, "faster from": _length(overall), "over rounds": _range(rounds)}
        )
    return lines


def _around(
    results: Results, overall: length_growth.Crossover, rows: tuple[str, str], part: Part
) -> list[dict[int, tuple[float, ...]]]:
    """Seconds of both rows in every round, at all lengths up to the second one above the crossover: longer ones, which
    may have fewer rounds, do not move it."""
    both = [results.rounds(row, part) for row in rows]
    common = sorted(set(both[0]) & set(both[1]))
    above = [n for n in common if overall.length is not None and n > overall.length]
    last = above[1] if len(above) > 1 else common[-1]
    return [{n: own[n] for n in common if n <= last} for own in both]


def _length(found: length_growth.Crossover) -> str:
    if found.length is None:
        return "not within the lengths measured"
    return f"{found.length:,.0f}, the shortest measured" if found.from_start else f"{found.length:,.0f}"


def _range(rounds: Sequence[length_growth.Crossover]) -> str:
    if len(rounds) < 2:
        return "one round"
    if any(found.length is None for found in rounds):
        return f"not within the lengths in {sum(found.length is None for found in rounds)} of {len(rounds)}"
    lengths = [found.length for found in rounds if found.length is not None]
    return f"{min(lengths):,.0f} to {max(lengths):,.0f}"


def why_missing(results: Results, rows: Iterable[str], length: int, part: Part) -> str:
    """Why one of the rows has no value, in half a sentence."""
    for row in rows:
        cell = results.cell(row, length, part)
        if cell is None:
            return f"{length:,} tokens are none of the lengths measured"
        if not cell.seconds:
            return f"{label(row)} in {part} at {length:,} tokens: {cell.reason}"
    raise ValueError(f"rows={list(rows)!r}: all have values at {length:,} tokens in {part}")


def implied_batches(results: Results, memory_bytes: float, part: Part) -> tuple[float, float] | None:
    """Between which batches softmax attention with a stored matrix fits into ``memory_bytes`` at 2K and not at 3K.

    From its peak with the notebook's batch, taken as proportional to the batch. None where a peak is missing.
    """
    peaks = results.peaks(STORED, part)
    if not {2048, 3072} <= set(peaks):
        return None
    return memory_bytes / peaks[3072], memory_bytes / peaks[2048]


def batch_sentence(results: Results, memory_bytes: float, part: Part, batch: int, precision: str) -> str:
    """Which batches the dashes of Table 7 imply, in a sentence."""
    found = implied_batches(results, memory_bytes, part)
    if found is None:
        return (
            f"{part}: the peaks at 2,048 and 3,072 tokens were not both measured, so nothing follows about the batch."
        )
    low, high = (batch * value for value in found)
    return (
        f"{part}: in {precision}, {memory_bytes / 1e9:g} GB hold the stored matrix at 2K and not at 3K for a batch"
        f" between {low:,.0f} and {high:,.0f}."
    )


def memory_over_median(results: Results, length: int, row: str) -> float | None:
    """Peak of memory of ``row`` in training over the median of the rivals'; None where either was not measured."""
    peaks = [results.peaks(other, "training").get(length) for other in speed_published.RIVALS]
    mine, theirs = results.peaks(row, "training").get(length), [peak for peak in peaks if peak is not None]
    return mine / statistics.median(theirs) if mine is not None and theirs else None


def in_words(results: Results, length: int) -> str:
    """Milliseconds of a step of every row at a length, in a sentence per part."""
    said = []
    for part in PARTS:
        times = {row: results.medians(row, part).get(length) for row in results.rows()}
        known = ", ".join(f"{label(row)} {1e3 * time:.1f}" for row, time in times.items() if time is not None)
        said.append(f"{part.capitalize()} at {length:,} tokens, milliseconds per step: {known or 'none measured'}.")
    return " ".join(said)


def memory_in_words(results: Results) -> str:
    """Peak of memory of every row at the longest length at which it was measured, in a sentence per part."""
    said = []
    for part in PARTS:
        last = {row: max(peaks.items()) for row in results.rows() if (peaks := results.peaks(row, part))}
        known = ", ".join(f"{label(row)} {_digits(peak / 1e6, 3)} MB at {n:,}" for row, (n, peak) in last.items())
        said.append(f"{part.capitalize()}, the longest length of each row: {known or 'none measured'}.")
    return " ".join(said)


def sides(results: Results, row: str, other: str, length: int, part: Part) -> dict[str, Any]:
    """What an ordering takes, in steps per second: the rounds that both were measured in stand for seeds."""
    mine, theirs = results.cell(row, length, part), results.cell(other, length, part)
    assert mine is not None
    assert theirs is not None
    rounds = min(len(mine.seconds), len(theirs.seconds))
    pair = {"better": mine.steps_per_second[:rounds], "worse": theirs.steps_per_second[:rounds]}
    return pair | {"seeds": list(range(rounds)), "higher_is_better": True}


def peak_sides(results: Results, row: str, others: Sequence[str], length: int, part: Part) -> dict[str, Any]:
    """The same of peaks of memory in bytes, against the smallest of ``others`` in each round."""
    cells = [results.cell(name, length, part) for name in (row, *others)]
    mine, *theirs = [cell.peak_bytes for cell in cells if cell is not None and cell.peak_bytes]
    rounds = min(map(len, (mine, *theirs)))
    smallest = [min(peaks[r] for peaks in theirs) for r in range(rounds)]
    return {"better": mine[:rounds], "worse": smallest, "seeds": list(range(rounds))}


def measured_rivals(results: Results, length: int, part: Part) -> list[str]:
    """The rivals of Table 7 that have a value there."""
    return [row for row in speed_published.RIVALS if (c := results.cell(row, length, part)) is not None and c.seconds]


def conclusions(results: Results, from_length: int) -> list[str]:
    """What the measurements say, in sentences with their figures."""
    return [
        line
        for part in PARTS
        for line in (
            *_against_softmax(results, part),
            *_against_rivals(results, part),
            *_grows(results, part, from_length),
        )
    ]


def _against_softmax(results: Results, part: Part) -> list[str]:
    lines, t2 = [], judged("transnormer-t2", results.rows())
    for softmax in ("vanilla", STORED):
        common = [n for n in results.lengths() if times_faster(results, t2, softmax, n, part)]
        if common:
            said = ", ".join(
                f"{statistics.median(times_faster(results, t2, softmax, n, part)):.2f} at {n:,}"
                for n in dict.fromkeys((common[0], common[-1]))
            )
            lines.append(f"{part}: steps per second of {label(t2)} over those of {label(softmax)}: {said} tokens.")
        lost = next((c for n in results.lengths() if (c := results.cell(softmax, n, part)) and c.missing), None)
        if lost is not None:
            lines.append(f"{part}: {label(softmax)} has no value from {lost.length:,} tokens on: {lost.reason}.")
    return lines


def _against_rivals(results: Results, part: Part) -> list[str]:
    lines, measured = [], results.rows()
    t2, linear = judged("transnormer-t2", measured), judged("linear", measured)
    for n in sorted({min(LENGTHS), max(LENGTHS)} & set(results.lengths())):
        ratios = {row: times_faster(results, row, t2, n, part) for row in (*measured_rivals(results, n, part), linear)}
        # The matched control runs on the kernels that T2 runs on, so it is held against T2 itself.
        ratios["linear-matched"] = times_faster(results, "linear-matched", "transnormer-t2", n, part)
        ahead = {row: found for row, found in ratios.items() if found and min(found) > 1}
        said = ", ".join(f"{label(row)} ({statistics.median(found):.2f})" for row, found in ahead.items())
        kernels = "" if t2 == "transnormer-t2" else "; linear-matched beside T2 on the same kernels"
        lines.append(
            f"{part} at {n:,} tokens: of the efficient methods, 1+elu included, faster than {label(t2)} in every "
            f"round, times its speed{kernels}: {said or 'none'}."
        )
    return lines


def _grows(results: Results, part: Part, from_length: int) -> list[str]:
    found = {
        row: length_growth.exponent(results.medians(row, part), from_length) for row in ("transnormer-t2", "vanilla")
    }
    said = [f"{label(row)} {exponent_text(e)}" for row, e in found.items() if e is not None]
    return [f"{part}: exponent of the time from {from_length:,} tokens on: {'; '.join(said)}."] if said else []
