"""Falsified evidence: what a check of a register reads, changed for one test."""

from collections.abc import Callable
from typing import Any

import pytest

from transnormer_lib.papers import tables

Mutation = Callable[[pytest.MonkeyPatch], None]


def puts(owner: Any, name: str, value: Any) -> Mutation:
    """Another object under a name."""
    return lambda patch: patch.setattr(owner, name, value)


def prints(table: str, column: str, value: float | str | None, **labels: Any) -> Mutation:
    """A published table with one cell changed."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real = tables.load

        def load(paper: str, name: str) -> tables.PublishedTable:
            found = real(paper, name)
            if name != table:
                return found
            at = [c.name for c in found.columns]
            chosen = [all(row[at.index(k)] == v for k, v in labels.items()) for row in found.rows]
            assert sum(chosen) == 1
            rows = [
                [value if fits and name == column else cell for name, cell in zip(at, row, strict=True)]
                for fits, row in zip(chosen, found.rows, strict=True)
            ]
            return found.model_copy(update={"rows": rows})

        patch.setattr(tables, "load", load)

    return mutate
