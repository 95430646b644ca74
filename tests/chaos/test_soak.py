"""The soak's first rounds, and what it calls a leak."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import soak
from chaos_trials import Tried
from soak import Round, judged

STEADY = [Round(500_000_000, 6, 0, 0.5)] * 9


def test_rounds_leave_no_memory_no_files_and_no_processes(tried: Tried) -> None:
    # A process of its own: what other tests left open in this one is not the soak's.
    command = [sys.executable, str(Path(soak.__file__)), "--minutes", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = re.findall(r"^soak: (ok|NOT OK)  (memory|open files|processes left)", result.stdout, re.MULTILINE)
    assert lines == [("ok", name) for name in ("memory", "open files", "processes left")], result.stdout + result.stderr
    tried("rounds of work in one process", int(re.findall(r"^soak: (\d+) rounds", result.stdout, re.MULTILINE)[0]))


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
