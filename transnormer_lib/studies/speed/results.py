"""What was measured of speed and memory: tables, ratios, growth, sentences, and what claims take."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transnormer_lib.analysis import length_growth
from transnormer_lib.analysis.arena_speed import PARTS, Cell, Part, measure_all
from transnormer_lib.analysis.length_growth import Exponent
from transnormer_lib.ledger.values import decimals, significant
from transnormer_lib.studies.common import findings
from transnormer_lib.studies.lra import results as arena_results
from transnormer_lib.studies.speed import published
from transnormer_lib.studies.speed.models import STORED, judged, label, model_of, models, quadratic_operations, rows
from transnormer_lib.studies.speed.published import LENGTHS, PUBLISHED
from transnormer_lib.studies.speed.runs import Parameters, limits, schedule, work
from transnormer_lib.training.store import RunStore

_NOWHERE = "not within the lengths measured"
_DIGITS = 3  # significant digits of a time, a speed or a peak of memory


@dataclass(frozen=True)
class Results:
    """What was measured."""

    cells: tuple[Cell, ...]

    def cell(self, row: str, length: int, part: Part) -> Cell | None:
        """The cell, missing or not; None where the parameters do not ask for it."""
        return next((c for c in self.cells if (c.row, c.length, c.part) == (row, length, part)), None)

    def rows(self) -> list[str]:
        """In the order of Table 7, then those added, then the plain ones."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def lengths(self) -> list[int]:
        return sorted({cell.length for cell in self.cells})

    def rounds(self, row: str, part: Part) -> dict[int, tuple[float, ...]]:
        """Seconds of a step in every round, by length."""
        return {c.length: c.seconds for c in self.cells if (c.row, c.part) == (row, part) and c.seconds}

    def medians(self, row: str, part: Part) -> dict[int, float]:
        """Median seconds of a step, by length."""
        return {length: statistics.median(seconds) for length, seconds in self.rounds(row, part).items()}

    def peaks(self, row: str, part: Part) -> dict[int, int]:
        """Peak memory in bytes, by length, where it was measured."""
        mine = [c for c in self.cells if (c.row, c.part) == (row, part)]
        return {c.length: c.peak_bytes for c in mine if c.peak_bytes is not None}

    def exponent(self, row: str, part: Part, from_length: int) -> Exponent | None:
        """How the time of a step grows with the length, from ``from_length`` on."""
        return length_growth.exponent(self.medians(row, part), from_length)

    def memory_exponent(self, row: str, from_length: int) -> Exponent | None:
        """How the peak of memory in training grows with the length, from ``from_length`` on."""
        return length_growth.exponent(self.peaks(row, "training"), from_length)


def measure(parameters: Parameters) -> Results:
    """Measure every row at every length."""
    cells = measure_all(models(parameters), work(parameters), schedule(parameters), limits(parameters))
    order = {row: place for place, row in enumerate(rows(parameters.device))}
    return Results(tuple(sorted(cells, key=lambda cell: order[cell.row])))


def scores(parameters: Parameters, store: RunStore) -> dict[str, float]:
    """By row the mean test accuracy in percent over the tasks of ``scores_tasks`` that are here, and over their seeds.

    Rows with a run that diverged are left out. Trains what the store lacks.
    """
    if not parameters.scores.tasks:
        return {}
    by_task = list(arena_results.measure(parameters.scores, store).panels().values())
    rows = [row for row in (by_task[0] if by_task else {}) if min(min(of[row]) for of in by_task) > -math.inf]
    return {row: statistics.mean(statistics.mean(of[row]) for of in by_task) for row in rows}


def mark(cell: Cell | None) -> str:
    """What a table shows for a missing value."""
    if cell is None:
        return "not asked"
    return {"memory": "–", "time": "too slow", "": "not measured"}[cell.missing]


def spread(values: Sequence[float], write: Callable[[float], str]) -> str:
    """The median, with the smallest and the largest of several values."""
    text = [write(value) for value in (statistics.median(values), min(values), max(values))]
    return text[0] if len(values) == 1 else f"{text[0]} ({text[1]}–{text[2]})"


def _like(column: Iterable[Sequence[float]]) -> Callable[[float], str]:
    """How the numbers of a column are written: with equally many decimals, or each with three significant digits."""
    places = decimals([statistics.median(values) for values in column if values], _DIGITS)
    return partial(significant, digits=_DIGITS) if places is None else lambda value: f"{value:,.{places}f}"


def _by_length(results: Results, part: Part, values: Callable[[Cell], Sequence[float]]) -> list[dict[str, Any]]:
    """One line per row: ``values`` of the cell at every length, or its mark."""
    lines: list[dict[str, Any]] = [{"model": label(row)} for row in results.rows()]
    for n in results.lengths():
        cells = [results.cell(row, n, part) for row in results.rows()]
        found = [values(cell) if cell else () for cell in cells]
        write = _like(found)
        for line, cell, of in zip(lines, cells, found, strict=True):
            line[f"{n:,}"] = spread(of, write) if of else mark(cell)
    return lines


def speed_table(results: Results, part: Part) -> list[dict[str, Any]]:
    """One line per row: steps per second at every length, median and range over the rounds."""
    return _by_length(results, part, lambda cell: cell.steps_per_second if cell.seconds else ())


def memory_table(results: Results, part: Part) -> list[dict[str, Any]]:
    """One line per row: the peak of memory in MB at every length."""
    return _by_length(results, part, lambda cell: () if cell.peak_bytes is None else (cell.peak_bytes / 1e6,))


def times_faster(results: Results, row: str, other: str, length: int, part: Part) -> list[float]:
    """The speed of ``row`` over that of ``other``, round by round; empty where one is missing."""
    mine, theirs = results.cell(row, length, part), results.cell(other, length, part)
    if mine is None or theirs is None:
        return []
    return [b / a for a, b in zip(mine.seconds, theirs.seconds, strict=False)]


def published_name(results: Results, row: str) -> str | None:
    """The row of Table 7 to compare with, by our name: its Transformer for both forms of softmax attention.

    None for a row on kernels whose plain form was measured, because that one is compared with Table 7.
    """
    if judged(row, results.rows()) != row:
        return None
    name = "vanilla" if row == STORED else model_of(row)
    return name if name in PUBLISHED else None


def judged_scores(results: Results, scores: Mapping[str, float]) -> dict[str, float]:
    """The scores by the rows on which the paper's comparisons are judged: a plain row has its model's score."""
    return {judged(row, results.rows()): score for row, score in scores.items()}


def ratio_table(results: Results, row: str, part: Part) -> list[dict[str, Any]]:
    """One line per other row: the speed of ``row`` over its own at Table 7's lengths, ours beside the published."""
    others = [other for other in results.rows() if other != row]
    lines: list[dict[str, Any]] = [{"model": label(other)} for other in others]
    name, names = published_name(results, row), [published_name(results, other) for other in others]
    for n in (n for n in LENGTHS if n in results.lengths()):
        ours = [times_faster(results, row, other, n, part) for other in others]
        for line, other, named, times in zip(lines, others, names, ours, strict=True):
            theirs = published.ratio(name, named, n, part) if name and named else None
            line[f"{n // 1024}K"] = spread(times, "{:,.2f}".format) if times else mark(results.cell(other, n, part))
            line[f"{n // 1024}K, published"] = None if theirs is None else round(theirs, 2)
    return lines


def quicker(results: Results, row: str, part: Part) -> str:
    """Which rows are faster than ``row`` at the longest of Table 7's lengths that was measured, in a sentence."""
    lengths = [n for n in LENGTHS if n in results.lengths()]
    if not lengths:
        return "None of Table 7's lengths is measured."
    others = [other for other in results.rows() if other != row]
    ratios = {label(o): times for o in others if (times := times_faster(results, row, o, lengths[-1], part))}
    faster = [other for other, times in ratios.items() if statistics.median(times) < 1]
    return findings.counted(
        faster,
        len(ratios),
        what=f"Faster than {label(row)} at {lengths[-1]:,} tokens, by the median of the rounds' ratios",
    )


def exponents(results: Results, part: Part, from_length: int) -> dict[str, float | None]:
    """By row's label, how the time of a step grows; None where it has too few lengths."""
    fitted = {label(row): results.exponent(row, part, from_length) for row in results.rows()}
    return {row: None if found is None else found.value for row, found in fitted.items()}


def exponent_text(found: Exponent | None) -> str | None:
    """The exponent with its interval, which takes three lengths."""
    if found is None:
        return None
    if math.isinf(found.low):
        return f"{found.value:.2f} (two lengths)"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def growth_table(results: Results, from_length: int) -> list[dict[str, Any]]:
    """One line per row: exponents of time and memory, ours beside Table 7's, and whether operations grow as N²."""
    lines = []
    for row in results.rows():
        line: dict[str, Any] = {"model": label(row), "operations": "N²" if quadratic_operations(row) else "N"}
        named = published_name(results, row)
        for part in PARTS:
            line[part] = exponent_text(results.exponent(row, part, from_length))
            line[f"{part}, Table 7"] = exponent_text(published.exponent(named, part)) if named else None
        lines.append(line | {"memory, training": exponent_text(results.memory_exponent(row, from_length))})
    return lines


def crossovers(results: Results, part: Part, softmax: str = "vanilla") -> list[dict[str, Any]]:
    """One line per row without softmax attention: the length from which it is faster than ``softmax``."""
    lines = []
    for row in (row for row in results.rows() if not row.startswith("vanilla")):
        if not set(results.medians(row, part)) & set(results.medians(softmax, part)):
            continue
        overall = length_growth.crossover(results.medians(row, part), results.medians(softmax, part))
        rounds = length_growth.crossover_per_round(*_around(results, overall, (row, softmax), part))
        lines.append(
            {"model": label(row), "part": part, "faster from": _length(overall), "over rounds": _range(rounds)}
        )
    return lines


def overtaking(lines: Sequence[Mapping[str, Any]]) -> str:
    """How many rows of :func:`crossovers` become faster in each part, in sentences."""
    said = []
    for part in dict.fromkeys(line["part"] for line in lines):
        mine = [line for line in lines if line["part"] == part]
        faster = [line["model"] for line in mine if line["faster from"] != _NOWHERE]
        said.append(findings.counted(faster, len(mine), what=f"Faster from some length on in {part}"))
    return " ".join(said)


def _around(
    results: Results, overall: length_growth.Crossover, rows: tuple[str, str], part: Part
) -> list[dict[int, tuple[float, ...]]]:
    """Seconds of both rows in every round, at all lengths up to the second one above the crossover.

    Longer ones do not move it, and may have fewer rounds.
    """
    both = [results.rounds(row, part) for row in rows]
    common = sorted(set(both[0]) & set(both[1]))
    above = [n for n in common if overall.length is not None and n > overall.length]
    last = above[1] if len(above) > 1 else common[-1]
    return [{n: own[n] for n in common if n <= last} for own in both]


def _length(found: length_growth.Crossover) -> str:
    if found.length is None:
        return _NOWHERE
    return f"{found.length:,.0f}, the shortest measured" if found.from_start else f"{found.length:,.0f}"


def _range(rounds: Sequence[length_growth.Crossover]) -> str:
    if len(rounds) < 2:
        return "one round"
    if any(found.length is None for found in rounds):
        return f"not within the lengths in {sum(found.length is None for found in rounds)} of {len(rounds)}"
    lengths = [found.length for found in rounds if found.length is not None]
    return f"{min(lengths):,.0f} to {max(lengths):,.0f}"


def why_missing(results: Results, rows: Iterable[str], length: int, part: Part) -> str:
    """Why one of the rows has no value."""
    for row in rows:
        cell = results.cell(row, length, part)
        if cell is None:
            return f"{length:,} tokens are none of the lengths measured"
        if not cell.seconds:
            return f"{label(row)} in {part} at {length:,} tokens: {cell.reason}"
    raise ValueError(f"rows={list(rows)!r}: all have values at {length:,} tokens in {part}")


def implied_batches(results: Results, memory_bytes: float, part: Part) -> tuple[float, float] | None:
    """The range of batches, in multiples of the notebook's, whose stored matrix fits ``memory_bytes`` at 2K, not at 3K.

    Peak memory is taken as proportional to the batch. None where a peak is missing.
    """
    peaks = results.peaks(STORED, part)
    if not {2048, 3072} <= set(peaks):
        return None
    return memory_bytes / peaks[3072], memory_bytes / peaks[2048]


def batch_sentence(results: Results, memory_bytes: float, part: Part, batch: int, precision: str) -> str:
    """The batches that the dashes of Table 7 imply, in a sentence."""
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
    peaks = [results.peaks(other, "training").get(length) for other in published.RIVALS]
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


def fastest(results: Results, row: str, length: int) -> str:
    """The rank of ``row`` by the time of a step at a length, its speed over vanilla's, and the fastest row."""
    said = []
    for part in PARTS:
        times = {other: results.medians(other, part).get(length) for other in results.rows()}
        known = {other: time for other, time in times.items() if time is not None}
        if row in known:
            told = _place(known, row, f"in {part}")
            said.append(told + (f", {known['vanilla'] / known[row]:.1f} times vanilla's speed" * ("vanilla" in known)))
    return (
        f"Place of {label(row)} at {length:,} tokens, by the median time of a step: {'; '.join(said)}."
        if said
        else f"No time at {length:,} tokens."
    )


def leanest(results: Results, row: str, length: int) -> str:
    """The rank of ``row`` by its peak of memory at a length, and the row with the smallest."""
    said = []
    for part in PARTS:
        peaks = {other: results.peaks(other, part).get(length) for other in results.rows()}
        known = {other: float(peak) for other, peak in peaks.items() if peak is not None}
        if row in known:
            said.append(_place(known, row, f"in {part}"))
    if not said:
        return f"No peak at {length:,} tokens."
    return f"Place of {label(row)} at {length:,} tokens, the smallest peak first: {'; '.join(said)}."


def _place(known: Mapping[str, float], row: str, where: str) -> str:
    """The place of a row by the lowest value, and the first row where that is another."""
    best = min(known, key=known.__getitem__)
    place = 1 + sum(value < known[row] for value in known.values())
    return f"{place} of {len(known)} {where}" + (f" (first: {label(best)})" if place > 1 else "")


def memory_in_words(results: Results) -> str:
    """Peak of memory of every row at the longest length at which it was measured, in a sentence per part."""
    said = []
    for part in PARTS:
        last = {row: max(peaks.items()) for row in results.rows() if (peaks := results.peaks(row, part))}
        known = [f"{label(row)} {significant(peak / 1e6, _DIGITS)} MB at {n:,}" for row, (n, peak) in last.items()]
        said.append(f"{part.capitalize()}, the longest length of each row: {', '.join(known) or 'none measured'}.")
    return " ".join(said)


def sides(results: Results, row: str, other: str, length: int, part: Part) -> dict[str, Any]:
    """What an ordering takes, in steps per second; the rounds in which both were measured are its seeds."""
    mine, theirs = results.cell(row, length, part), results.cell(other, length, part)
    assert mine is not None
    assert theirs is not None
    rounds = min(len(mine.seconds), len(theirs.seconds))
    pair = {"better": mine.steps_per_second[:rounds], "worse": theirs.steps_per_second[:rounds]}
    return pair | {"seeds": list(range(rounds)), "higher_is_better": True}


def measured_rivals(results: Results, length: int, part: Part) -> list[str]:
    """The rivals of Table 7 that have a value there."""
    return [row for row in published.RIVALS if (c := results.cell(row, length, part)) is not None and c.seconds]


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
        # The matched control runs on the same kernels as T2, so it is compared with T2 itself.
        ratios["linear-matched"] = times_faster(results, "linear-matched", "transnormer-t2", n, part)
        ahead = {row: found for row, found in ratios.items() if found and min(found) > 1}
        said = ", ".join(f"{label(row)} ({statistics.median(found):.2f})" for row, found in ahead.items())
        kernels = "" if t2 == "transnormer-t2" else "; linear-matched beside T2 on the same kernels"
        where = f"{part} at {n:,} tokens"
        if not said:
            lines.append(f"{where}: no efficient method, 1+elu included, is faster than {label(t2)} in every round.")
            continue
        lines.append(
            f"{where}: of the efficient methods, 1+elu included, faster than {label(t2)} in every round, with how many "
            f"times its speed{kernels}: {said}."
        )
    return lines


def _grows(results: Results, part: Part, from_length: int) -> list[str]:
    found = {row: results.exponent(row, part, from_length) for row in ("transnormer-t2", "vanilla")}
    said = [f"{label(row)} {exponent_text(e)}" for row, e in found.items() if e is not None]
    return [f"{part}: exponent of the time from {from_length:,} tokens on: {'; '.join(said)}."] if said else []
