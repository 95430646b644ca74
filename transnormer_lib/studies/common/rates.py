"""Each row's own learning rate: tried on seeds that are not judged, from the same few rates for all rows."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from transnormer_lib.analysis.seeds import mean
from transnormer_lib.checks import check_choice
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.values import shown
from transnormer_lib.models import architectures
from transnormer_lib.progress import tracked
from transnormer_lib.show.tables import show_table
from transnormer_lib.studies.common.findings import joined
from transnormer_lib.studies.common.language_models import (
    RELEASED,
    LanguageModelParameters,
    bits_of,
    final_bits,
    grid,
    run_name,
)
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.records import error_of
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunFailed

Make = Callable[[str, int, float, str], RunConfig]  # row, seed, learning rate, the label in its name → the run
P = TypeVar("P", bound="Rated")


class Rated(Protocol):
    """Parameters, a dataclass, with a learning rate for all rows and some rows' own."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def rates(self) -> Mapping[str, float]: ...


class Searched(Rated, Protocol):
    """What a search reads of a study's parameters; :class:`RateSearch` says what the fields are."""

    @property
    def rates_tried(self) -> tuple[float, ...]: ...
    @property
    def rate_seeds(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class RateSearch(LanguageModelParameters):
    """The parameters of a search, whose outcome, fixed before a judged seed is trained, is ``rates``."""

    rates_tried: tuple[float, ...]  # the learning rates among which a row's was chosen
    rate_seeds: tuple[int, ...]  # the seeds on which it was chosen; none of them is judged


def own(parameters: P, row: str) -> P:
    """The parameters with the row's learning rate as ``learning_rate``."""
    rate = parameters.rates.get(row, parameters.learning_rate)
    return replace(parameters, learning_rate=rate)  # type: ignore[type-var]


def under(start: object, by_name: Mapping[str, float]) -> dict[str, float]:
    """The rates by row of those that are given by "START ROW"."""
    return {name.removeprefix(f"{start} "): rate for name, rate in by_name.items() if name.startswith(f"{start} ")}


@dataclass(frozen=True)
class Search:
    """The rows of a study that each have their own learning rate: the runs that choose it, and those that are judged.

    Raises ValueError for a rate of what is no architecture, and for a seed that is both searched and judged.
    """

    parameters: Searched
    rows: tuple[str, ...]
    seeds: tuple[int, ...]  # those that are judged
    make: Make
    recorded: Mapping[str, Any] = field(default_factory=dict)  # fields of the judged runs that change no weight
    score: Callable[[Run], float] = final_bits  # what a rate is chosen by; the lowest is best
    scored: str = "validation loss"  # its name

    def __post_init__(self) -> None:
        # A study that takes over another's values has rates of rows that it does not train.
        for row in sorted(set(self.parameters.rates) - set(self.rows)):
            try:
                architectures.check_name(row.partition("+")[0].removesuffix(RELEASED))
            except ValueError:
                check_choice("rates", row, self.rows)
        if both := sorted(set(self.seeds) & set(self.parameters.rate_seeds)):
            seeds = list(self.parameters.rate_seeds)
            raise ValueError(f"rate_seeds={seeds!r}: must not hold {both[0]}, which is judged")

    def tried(self) -> dict[str, dict[float, list[RunConfig]]]:
        """The runs of each row's search, by rate: one per seed of the search."""
        seeds, rates = self.parameters.rate_seeds, self.parameters.rates_tried
        return {
            row: {rate: [self.make(row, seed, rate, f"{row}-lr{rate:g}") for seed in seeds] for rate in rates}
            for row in self.rows
        }

    def judged(self) -> list[tuple[str, int, RunConfig]]:
        """Row, seed and run, rows first; each row at its own learning rate, and with the names of its search."""
        searches = {row: tuple(run.name for run in flat(by_rate)) for row, by_rate in self.tried().items()}
        return [
            (
                row,
                seed,
                replace(
                    self.make(row, seed, own(self.parameters, row).learning_rate, row),
                    rate_search=searches[row],
                    **self.recorded,
                ),
            )
            for row, seed in grid(self.rows, self.seeds)
        ]

    def trained(
        self, store: RunStore, rows: Collection[str] | None = None, *, weights: bool = True
    ) -> Iterator[tuple[str, int, Run]]:
        """Row, seed and run of :meth:`judged`, of ``rows`` alone if they are given: trained or loaded one by one, as
        ``RunStore.get`` does, while a line says how far it is."""
        judged = [one for one in self.judged() if rows is None or one[0] in rows]
        for row, seed, config in tracked(judged, "run"):
            yield row, seed, store.get(config, weights=weights)

    def runs(self) -> list[RunConfig]:
        """The searches, then one run per row and seed."""
        return [run for by_rate in self.tried().values() for run in flat(by_rate)] + [run for *_, run in self.judged()]


def flat(by_rate: Mapping[float, Sequence[RunConfig]]) -> list[RunConfig]:
    """The runs of one row's search."""
    return [run for runs in by_rate.values() for run in runs]


def lowest(search: Mapping[float, Sequence[Run]], score: Callable[[Run], float] = final_bits) -> float | None:
    """The rate with the lowest mean score over its runs; None where none was tried or all diverged."""
    scores = {rate: math.fsum(map(score, runs)) / len(runs) for rate, runs in search.items() if runs}
    best = min(scores, key=scores.__getitem__, default=None)
    return None if best is None or not math.isfinite(scores[best]) else best


def _scored(search: Search, config: RunConfig, store: RunStore) -> float:
    """The score of a run of the search; infinite where the run that it starts from failed."""
    try:
        return search.score(store.get(config, weights=False))
    except RunFailed:
        return math.inf


def untried(search: Search) -> dict[str, float]:
    """The rates of rows that are judged at none of the rates tried, by row; {} where no search was made.

    A row's rate is fixed after its search, so a preset whose search is not done has such rows.
    """
    taken = {row: own(search.parameters, row).learning_rate for row in search.rows}
    tried = search.parameters.rates_tried if search.parameters.rate_seeds else ()
    return {row: rate for row, rate in taken.items() if tried and rate not in tried}


def passed_over(runs: Sequence[Run]) -> list[str]:
    """Which of a preset's runs are not at the best rate of their search: a sentence per row, its seeds together.

    Read from the runs alone: lower is the error of a transcriber, the loss of a language model, and what the first
    metric of a task lacks. A search of which a run is missing says nothing.
    """
    by_name, sentences = {run.config.name: run for run in runs}, {}
    for run in runs:
        tried = [by_name[name] for name in run.config.rate_search if name in by_name]
        if not tried or len(tried) < len(run.config.rate_search):
            continue
        by_rate: dict[float, list[Run]] = {}
        for other in tried:
            by_rate.setdefault(other.config.optimizer.learning_rate, []).append(other)
        scores = {rate: mean([_measured(other) for other in others]) for rate, others in by_rate.items()}
        best, taken = min(scores, key=scores.__getitem__), run.config.optimizer.learning_rate
        if scores.get(taken, math.inf) > scores[best]:
            row = run.config.name.removesuffix(f"-seed{run.config.seed}")
            sentences[row] = f"{row} is judged at {shown(taken)}, and {shown(best)} was the best of its search"
    return list(sentences.values())


def _measured(run: Run) -> float:
    if run.record["status"] != "finished":
        return math.inf
    if run.config.data.task == "classify":
        return -run.validation[task_definition(run.config.data.task_name).metrics[0]]
    return error_of(run.validation)


def show_search(search: Search, store: RunStore) -> None:
    """Display each row's mean score at every rate of its search, and the rate that was taken; nothing without one.

    A rate that was not tried, or is not the best of those tried, is marked as such: until the outcome of a search is
    written into the parameters, its row is judged at the rate that all rows share.
    """
    lines, never, odd = [], untried(search), []
    for row, by_rate in tracked(search.tried().items(), "search"):
        scores = {rate: mean([_scored(search, run, store) for run in runs]) for rate, runs in by_rate.items() if runs}
        if scores:
            taken = own(search.parameters, row).learning_rate
            best = min(scores, key=scores.__getitem__)
            fault = ", which was not tried" if row in never else ""
            if not fault and scores[taken] > scores[best]:
                fault = ", not the best"
            odd += [row] * bool(fault)
            by_name = {shown(rate): score for rate, score in scores.items()}
            lines.append({"row": row, **by_name, "taken": f"{shown(taken)}{fault}"})
    if lines:
        show_table(
            lines,
            caption=f"How each row's learning rate was chosen: its {search.scored} at the rates tried, on seeds that "
            "are not judged, and the rate that was taken.",
            note=f"Not judged at the best rate that was tried: {', '.join(odd)}." if odd else "",
        )


def kept_table(found: Kept) -> list[dict[str, Any]]:
    """One line per row of kept language models with a rate of its own: its loss at the rates tried, and the rate taken.

    Read from the kept parameters and records. A rate without a run there has no loss; a row without any is trained
    by another notebook, whose kept file shows its search.
    """
    given, bits = found.parameters, {record["name"]: bits_of(record) for record in found.runs}
    lines = []
    for row, taken in given["rates"].items():
        line: dict[str, Any] = {"row": row}
        for rate in given["rates_tried"]:
            names = [run_name(given["task"], f"{row}-lr{rate:g}", seed) for seed in given["rate_seeds"]]
            known = [bits[name] for name in names if name in bits]
            line[shown(rate)] = mean(known) if known else None
        if any(value is not None for name, value in line.items() if name != "row"):
            lines.append(line | {"taken": shown(taken)})
    return lines


def show_kept(found: Kept) -> None:
    """Display, aside, the rates that the rows of kept language models were judged at, and their common settings."""
    given, lines = found.parameters, kept_table(found)
    if not lines:
        return
    judged, searched = (joined([str(seed) for seed in given[name]]) for name in ("seeds", "rate_seeds"))
    counts = Counter(given["rates"][line["row"]] for line in lines)
    taken = joined([f"{shown(rate)} by {counts[rate]}" for rate in sorted(counts)])
    show_table(
        lines,
        caption=f"Kept from the preset {found.preset}, {found.started[:10]}: each row's loss in bits at the rates "
        f"tried on seed {searched}, and the rate taken: {taken} of {len(lines)} rows.",
        note=f"All rows: {given['steps']:,} steps of {given['batch_size']} sequences of {given['length']} tokens, "
        f"{given['layers']} layers of width {given['dim']}, judged on seeds {judged}.",
        digits=4,
        aside=True,
    )
