"""The soak's first rounds, and what it calls a leak."""

from dataclasses import replace
from pathlib import Path

import pytest
from chaos_trials import Tried
from project_factory import make_project
from soak import WARM_UP, Round, judged, play

STEADY = [Round(500_000_000, 6, 0, 0.5)] * 9


def test_rounds_leave_no_memory_no_files_and_no_processes(tmp_path: Path, tried: Tried) -> None:
    project = make_project(tmp_path / "project", {"01_a": ["size"]})
    rounds = [play(tmp_path, project, number) for number in range(WARM_UP + 3)]
    *kept, (_, _) = judged(rounds[WARM_UP:])  # the last line is a timing
    assert [line for line, good in kept if not good] == []
    tried("rounds of work in one process", len(rounds))


def test_a_process_that_stays_as_it_is_passes() -> None:
    assert all(good for _, good in judged(STEADY))


@pytest.mark.parametrize(
    ("change", "line"),
    [({"bytes": 511_000_000}, 0), ({"files": 7}, 1), ({"children": 1}, 2), ({"seconds": 0.53}, 3)],
    ids=["memory", "files", "processes", "work"],
)
def test_what_grows_is_named(change: dict[str, int], line: int) -> None:
    rounds = STEADY[:6] + [replace(one, **change) for one in STEADY[6:]]  # type: ignore[arg-type]
    assert [number for number, (_, good) in enumerate(judged(rounds)) if not good] == [line]
