"""A step in a process of its own: what it found comes back, and a step beyond a limit costs nothing but its value."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from transnormer_lib.analysis import forked_steps
from transnormer_lib.analysis.forked_steps import Limits, Step, measure, timed

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are limited under Linux alone")

MB = 2**20
LIMITS = Limits(repeats=3, round_seconds=0.01, long_step_seconds=5.0, step_seconds=5.0)


def allocating(megabytes: int) -> Callable[[], Step]:
    """Makes a step that holds so much for a moment."""
    return lambda: lambda: len(b"x" * (megabytes * MB))  # written, since pages that are read alone are never had


class Clock:
    """Goes on by what the steps say that they take."""

    def __init__(self, *durations: float) -> None:
        self.now, self.durations, self.steps = 0.0, itertools.cycle(durations), 0

    def step(self) -> None:
        self.now += next(self.durations)
        self.steps += 1


def timed_by(limits: Limits, *durations: float) -> tuple[float, int]:
    clock = Clock(*durations)
    return timed(clock.step, limits, clock=lambda: clock.now), clock.steps


def burning(seconds: float) -> None:
    """Keeps the processor busy for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_the_first_step_warms_up_and_the_median_of_the_others_counts() -> None:
    limits = Limits(repeats=3, round_seconds=100.0, long_step_seconds=50.0, step_seconds=100.0)
    assert timed_by(limits, 9.0, 2.0, 7.0, 3.0) == (3.0, 4)


def test_a_first_step_that_is_long_stands_for_the_round() -> None:
    limits = Limits(repeats=3, round_seconds=100.0, long_step_seconds=9.0, step_seconds=100.0)
    assert timed_by(limits, 9.0, 2.0) == (9.0, 1)


def test_no_further_step_is_timed_once_the_round_has_had_its_seconds() -> None:
    limits = Limits(repeats=50, round_seconds=3.0, long_step_seconds=9.0, step_seconds=100.0)
    assert timed_by(limits, 2.0)[1] == 3


@linux
def test_a_step_that_fits_has_its_seconds_and_the_peak_of_its_memory() -> None:
    found = measure(allocating(40), LIMITS)
    assert found.missing == ""
    assert found.seconds is not None
    assert found.seconds > 0
    assert found.peak_bytes == pytest.approx(40 * MB, abs=4 * MB)


@linux
def test_the_peak_is_of_the_step_and_not_of_what_the_process_held_before() -> None:
    held = b"x" * (80 * MB)  # of the parent, and so of the fork
    found = measure(allocating(10), LIMITS)
    assert len(held) == 80 * MB
    assert found.peak_bytes is not None
    assert found.peak_bytes < 20 * MB


@linux
def test_a_step_beyond_the_memory_limit_is_a_dash_and_the_next_one_goes_on() -> None:
    limits = replace(LIMITS, memory_bytes=100 * MB)
    too_large, fitting = measure(allocating(200), limits), measure(allocating(20), limits)
    assert (too_large.missing, too_large.seconds) == ("memory", None)
    assert "0.104858 GB" in too_large.reason
    assert fitting.missing == ""


@linux
def test_a_tensor_beyond_the_memory_limit_is_a_dash_too() -> None:
    import torch

    found = measure(lambda: lambda: torch.ones(100 * MB).sum(), replace(LIMITS, memory_bytes=100 * MB))
    assert found.missing == "memory"


@linux
@pytest.mark.parametrize("when", ["build", "step"])
def test_a_process_that_the_system_kills_is_a_dash_that_names_the_signal(when: str) -> None:
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def make() -> Step:
        if when == "build":
            kill()
        return kill

    found = measure(make, LIMITS)
    assert found.missing == "memory"
    assert "SIGKILL" in found.reason


@linux
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM], ids=lambda number: number.name)
def test_a_process_that_any_other_signal_ends_is_an_error_that_names_it(number: signal.Signals) -> None:
    def die() -> None:
        signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may have a handler of its own
        os.kill(os.getpid(), number)

    with pytest.raises(RuntimeError, match=f"was ended by {number.name}"):
        measure(lambda: die, LIMITS)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@linux
def test_a_step_ends_with_the_process_that_waits_for_it() -> None:
    code = """
import os, time
from transnormer_lib.analysis.forked_steps import Limits, measure
def step():
    print(os.getpid(), flush=True)
    time.sleep(100)
measure(lambda: step, Limits(repeats=1, round_seconds=1, long_step_seconds=100, step_seconds=100))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        step = int(waiting.stdout.readline())
        assert alive(step)
        waiting.kill()  # which leaves it no time to end anything
    until = time.monotonic() + 10
    while alive(step) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(step)


@linux
@pytest.mark.parametrize(
    ("hard", "expected"), [(-1, 1_500), (9_000, 1_500), (1_200, 1_200)], ids=["none", "far", "near"]
)
def test_a_hard_limit_from_outside_is_kept_and_never_exceeded(
    hard: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    assert resource.RLIM_INFINITY == -1
    set_to: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(forked_steps, "_status", lambda: {"VmData": 1_000})
    monkeypatch.setattr(resource, "getrlimit", lambda what: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: set_to.append((what, limits)))
    forked_steps._limit_memory(500)
    assert set_to == [(resource.RLIMIT_DATA, (expected, hard))]


@linux
@pytest.mark.parametrize("busy", [burning, time.sleep], ids=["busy", "hanging"])
def test_a_step_beyond_the_time_limit_is_given_up_and_not_waited_for(busy: Callable[[float], None]) -> None:
    began = time.monotonic()
    found = measure(lambda: lambda: busy(100.0), replace(LIMITS, step_seconds=0.1))
    assert (found.missing, found.seconds) == ("time", None)
    assert "more than 0.1 seconds" in found.reason
    assert time.monotonic() - began < 50


@linux
def test_a_later_step_that_is_too_slow_counts_as_well() -> None:
    durations = iter([0.0, 0.3, 0.3, 0.3, 0.3])
    limits = replace(LIMITS, step_seconds=0.2, repeats=3)
    assert measure(lambda: lambda: burning(next(durations)), limits).missing == "time"


@linux
def test_time_in_which_the_processor_does_something_else_does_not_count() -> None:
    found = measure(lambda: lambda: time.sleep(0.05), LIMITS)
    assert found.seconds is not None
    assert found.seconds < 0.05


@linux
def test_any_other_error_is_raised_with_its_traceback() -> None:
    def make() -> Step:
        raise ZeroDivisionError("in the step's process")

    with pytest.raises(RuntimeError, match="ZeroDivisionError: in the step's process"):
        measure(make, LIMITS)


@linux
def test_a_process_that_leaves_without_a_word_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended without a word, with status 3"):
        measure(lambda: lambda: os._exit(3), LIMITS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 0}, "repeats=0: must be greater than 0"),
        ({"round_seconds": -1.0}, "round_seconds=-1.0: must be greater than 0"),
        ({"step_seconds": 0.0}, "step_seconds=0.0: must be greater than 0"),
        ({"memory_bytes": -1}, "memory_bytes=-1: must not be negative"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_limits_that_limit_nothing_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LIMITS, **change)  # type: ignore[arg-type]
