"""A loop says how far it is where somebody watches, and nowhere else."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from transnormer_lib import progress
from transnormer_lib.progress import tracked

# Four items of some seconds each by a clock of its own, in a process that looks like a notebook's.
LOOP = """
import sys, types
from transnormer_lib import progress
now = [0.0]
progress.time = types.SimpleNamespace(perf_counter=lambda: now[0])
if {notebook}:
    sys.modules["ipykernel"] = types.ModuleType("ipykernel")
for number in progress.tracked(range(4), "run"):
    if {inside}:
        with progress.bar("inner", total=2, unit="step"):
            pass
    now[0] += {seconds}
"""


def written(notebook: bool = True, inside: bool = False, seconds: float = 10.0, disable: str = "") -> str:
    """What the loop writes to standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TQDM_")}
    environment |= {"TQDM_DISABLE": disable} if disable else {}
    code = LOOP.format(notebook=notebook, inside=inside, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b""
    return done.stderr.decode()


def test_a_notebook_says_which_item_of_how_many_and_how_long_the_rest_takes_on_one_line() -> None:
    lines = [line.strip() for line in written().split("\r") if line.strip()]
    assert lines == [f"run {number} of 4, about {10 * (5 - number)} s left" for number in (2, 3, 4)]
    assert "\n" not in written(inside=True)
    assert "\x1b" not in written(inside=True)  # no moving between lines, which a notebook cannot


def test_the_line_is_gone_at_the_end() -> None:
    assert written().split("\r")[-2].strip() == written().split("\r")[-1] == ""


@pytest.mark.parametrize(
    "options",
    [{"notebook": False}, {"disable": "1"}, {"disable": "1", "inside": True}, {"seconds": 0.1}],
    ids=["neither-notebook-nor-terminal", "disabled", "disabled-with-bars-inside", "over-at-once"],
)
def test_nothing_is_written_where_nobody_watches_or_the_loop_is_over_at_once(options: Any) -> None:
    assert written(**options) == ""


def test_a_bar_inside_a_loop_begins_with_its_place() -> None:
    assert "\rrun 3 of 4, about 20 s left; inner:" in written(inside=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that goes on when its ``now`` is set."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def told(seconds: list[float], clock: Any, weights: list[float] | None = None) -> list[str]:
    """The lines of a loop whose items take so long."""
    lines: list[str] = []
    for taken in tracked(seconds, "item", weights, lines.append):
        clock.now += taken
    return lines


def test_who_asks_for_lines_gets_one_for_every_item(clock: Any) -> None:
    assert told([0.1, 0.1], clock) == ["item 1 of 2", "item 2 of 2, about 0 s left"]


def test_items_that_were_only_loaded_say_nothing_about_those_that_are_trained(clock: Any) -> None:
    assert told([0.01, 0.01, 30.0, 30.0], clock)[-1] == "item 4 of 4, about 30 s left"


def test_the_rest_is_estimated_by_its_weight(clock: Any) -> None:
    assert told([1.0, 2.0, 8.0], clock, [1, 2, 8])[1:] == [
        "item 2 of 3, about 10 s left",
        "item 3 of 3, about 8 s left",
    ]


def test_items_come_in_order_and_are_made_when_their_turn_comes() -> None:
    made: list[int] = []
    items = (made.append(number) or number for number in range(3))
    seen = [(number, len(made)) for number in tracked(items, "item", [1] * 3)]
    assert seen == [(0, 1), (1, 2), (2, 3)]


def test_a_loop_that_was_broken_off_leaves_no_place_behind() -> None:
    kept = []
    for reason in (KeyboardInterrupt, ValueError):
        try:
            for _ in tracked(range(3), "run"):
                for _ in tracked(range(3), "length"):
                    raise reason
        except reason as error:
            kept.append(error)  # as a notebook keeps the last one
    for _ in tracked(range(3), "run"):
        break
    assert progress._places == []


def test_no_bar_starts_a_thread() -> None:
    code = """
import sys, threading, types
sys.modules["ipykernel"] = types.ModuleType("ipykernel")  # so that the bar is shown
from transnormer_lib import progress
with progress.bar("inner", total=2) as bar:
    print(bar.disable, threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]
