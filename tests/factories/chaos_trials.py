"""How often a fault is tried: a few times in ``make test``, all in ``make chaos``; and what counts for its totals."""

import os
import zlib
from collections.abc import Callable, Mapping
from typing import TypeVar

from hypothesis import HealthCheck, seed, settings

Tried = Callable[..., None]  # tried(kind, count): see tests/chaos/conftest.py

FULL = "TRANSNORMER_CHAOS" in os.environ


def trials(few: int, full: int) -> int:
    """``few``, or ``full`` in ``make chaos``."""
    return full if FULL else few


# The kinds that count for each total, by their full names; a kind that is not listed counts for none. A full disk ends
# no process, and the inputs of the coverage-guided fuzzer are shown by themselves.
_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
_VICTIMS = ("transnormer", "snakemake", "guard", "kernel", "share")
DEATHS = {
    *(
        f"{what} ended by {how}"
        for what in ("training", "writers of data")
        for how in ("kill", "term", "interrupt", "memory")
    ),
    *(
        f"{command}: {name} of {victim}"
        for command in ("report", "transnormer train", "transnormer sweep")
        for name in _SIGNALS
        for victim in _VICTIMS
    ),
}
GENERATED = {
    "JSON", "YAML", "a broken claims.json in a report", "a claims.json", "a derivative, vmap or copy of a mechanism",
    "a file of a report", "a file of claims", "a file of theses", "a generation in both forms", "a gradient in float16",
    "a kept result", "a mechanism's config, length, padding and batch", "a parameter file", "a preset's description",
    "a published table", "a saved generation", "a shared model's file", "a stored run's file", "a text of one's own",
    "an argument of a mechanism that does not fit", "an input of a model", "autocast around forward and backward",
    "carried records", "rows of a .parquet file", "rows of a .tsv file", "targets of a model",
    "the arguments of a generation", "the description of a run",
}  # fmt: skip
FALSIFIED = {f"falsified {what}" for what in ("claim", "kept file", "notebook", "record", "report", "table", "thesis")}
TOTALS = {  # what a full run tries at least, and what counts for it
    "deaths": (200, DEATHS),
    "generated cases": (10_000, GENERATED),
    "falsifications": (60, FALSIFIED),
}


def totals(found: Mapping[str, int]) -> dict[str, int]:
    """The totals of trials that were counted by kind."""
    return {name: sum(found.get(kind, 0) for kind in kinds) for name, (_, kinds) in TOTALS.items()}


T = TypeVar("T")


def first_or_all(*values: T) -> list[T]:
    """The values that a test is tried with: the first, which stands for the others, or all in ``make chaos``."""
    return [*values] if FULL else [*values[:1]]


def cases(few: int, full: int, *of: object) -> Callable[[T], T]:
    """Settings of a hypothesis test within a test: so many examples, drawn for ``of``, such as a mechanism's name.

    Without a seed of its own a test draws the same examples for every parameter.
    """

    def decorate(test: T) -> T:
        test = settings(max_examples=trials(few, full), suppress_health_check=list(HealthCheck))(test)
        return test if "TRANSNORMER_EXPLORE" in os.environ else seed(zlib.crc32(repr(of).encode()))(test)

    return decorate
