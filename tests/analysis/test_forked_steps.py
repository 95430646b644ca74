"""A step in its own process returns its result, and a step beyond a limit loses only its own value."""

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
import torch

from transnormer_lib.analysis import forked_steps
from transnormer_lib.analysis.forked_steps import Limits, Step, measure, timed

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are limited under Linux alone")

MB = 2**20
LIMITS = Limits(repeats=3, round_seconds=0.01, long_step_seconds=5.0, step_seconds=5.0)


def allocating(megabytes: float) -> Callable[[], Step]:
    """Makes a step that briefly holds so much memory."""
    return lambda: lambda: torch.empty(int(megabytes * MB), dtype=torch.uint8)


class Clock:
    """A clock that each step advances by its duration."""

    def __init__(self, *durations: float) -> None:
        self.now, self.durations, self.steps = 0.0, itertools.cycle(durations), 0

    def step(self) -> None:
        self.now += next(self.durations)
        self.steps += 1


def timed_by(limits: Limits, *durations: float) -> tuple[float, int]:
    clock = Clock(*durations)
    return timed(clock.step, limits, clock=lambda: clock.now), clock.steps


def burning(seconds: float) -> None:
    """Uses so much CPU time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_the_first_step_warms_up_and_the_median_of_the_others_counts() -> None:
    limits = Limits(repeats=3, round_seconds=100.0, long_step_seconds=50.0, step_seconds=100.0)
    assert timed_by(limits, 9.0, 2.0, 7.0, 3.0) == (3.0, 4)


def test_a_long_first_step_is_the_rounds_only_step() -> None:
    limits = Limits(repeats=3, round_seconds=100.0, long_step_seconds=9.0, step_seconds=100.0)
    assert timed_by(limits, 9.0, 2.0) == (9.0, 1)


def test_no_further_step_starts_once_the_rounds_seconds_are_used_up() -> None:
    limits = Limits(repeats=50, round_seconds=3.0, long_step_seconds=9.0, step_seconds=100.0)
    assert timed_by(limits, 2.0)[1] == 3


@linux
def test_a_step_within_the_limits_has_seconds_and_peak_memory() -> None:
    found = measure(allocating(40), LIMITS)
    assert found.missing == ""
    assert found.seconds is not None
    assert found.seconds > 0
    assert found.peak_bytes == 40 * MB


@linux
def test_the_peak_includes_what_is_held_between_two_steps_however_few_are_timed() -> None:
    def make() -> Step:
        weights, state = torch.zeros(3 * MB, dtype=torch.uint8), []

        def step() -> None:
            activations = weights.clone()
            if not state:
                state.append(activations.to(torch.int16))

        return step

    for limits in (LIMITS, replace(LIMITS, long_step_seconds=1e-9)):
        assert measure(make, limits).peak_bytes == (3 + 6 + 3) * MB


@linux
def test_the_peak_excludes_what_the_process_held_before() -> None:
    held = torch.empty(80 * MB, dtype=torch.uint8)  # in the parent, so in the fork too
    assert measure(allocating(10), LIMITS).peak_bytes == 10 * MB
    del held


@linux
def test_without_memory_no_step_is_made_beyond_the_timed_ones() -> None:
    def make() -> Step:
        steps = itertools.count()
        return lambda: None if next(steps) < 1 + LIMITS.repeats else os._exit(3)

    limits = replace(LIMITS, round_seconds=100.0)
    assert measure(make, limits, memory=False).peak_bytes is None
    with pytest.raises(RuntimeError, match="status 3"):
        measure(make, limits)


@linux
def test_counting_the_peak_takes_nothing_from_the_memory_limit() -> None:
    assert measure(allocating(99.5), replace(LIMITS, memory_bytes=100 * MB)).peak_bytes == 99.5 * MB


@linux
def test_a_step_beyond_the_memory_limit_is_missing_and_the_next_step_runs() -> None:
    limits = replace(LIMITS, memory_bytes=100 * MB)
    # More than this process may have freed without giving it back, which its children use outside the limit.
    too_large, fitting = measure(allocating(20_000), limits), measure(allocating(20), limits)
    assert (too_large.missing, too_large.seconds) == ("memory", None)
    assert "0.104858 GB" in too_large.reason
    assert fitting.missing == ""


@linux
def test_a_tensor_beyond_the_memory_limit_is_missing_too() -> None:
    found = measure(lambda: lambda: torch.ones(100 * MB).sum(), replace(LIMITS, memory_bytes=100 * MB))
    assert found.missing == "memory"


@linux
@pytest.mark.parametrize("when", ["build", "step"])
def test_a_process_killed_by_the_system_is_missing_and_names_the_signal(when: str) -> None:
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
def test_any_other_signal_is_an_error_that_names_it(number: signal.Signals) -> None:
    def die() -> None:
        signal.signal(number, signal.SIG_DFL)  # the test runner may have its own handler
        os.kill(os.getpid(), number)

    with pytest.raises(RuntimeError, match=f"was ended by {number.name}"):
        measure(lambda: die, LIMITS)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@linux
def test_a_step_dies_with_its_parent() -> None:
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
        waiting.kill()  # it cannot clean up
    until = time.monotonic() + 10
    while alive(step) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(step)


@linux
@pytest.mark.parametrize(
    ("hard", "expected"), [(-1, 1_500), (9_000, 1_500), (1_200, 1_200)], ids=["none", "far", "near"]
)
def test_an_outside_hard_limit_is_kept_and_never_exceeded(
    hard: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    assert resource.RLIM_INFINITY == -1
    set_to: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(forked_steps, "_data_bytes", lambda: 1_000)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (700, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: set_to.append((what, limits)))
    with forked_steps._limited(500):
        assert set_to == [(resource.RLIMIT_DATA, (expected, hard))]
    assert set_to[1:] == [(resource.RLIMIT_DATA, (700, hard))]


@linux
@pytest.mark.parametrize("busy", [burning, time.sleep], ids=["busy", "hanging"])
def test_a_step_beyond_the_time_limit_is_abandoned(busy: Callable[[float], None]) -> None:
    began = time.monotonic()
    found = measure(lambda: lambda: busy(100.0), replace(LIMITS, step_seconds=0.1))
    assert (found.missing, found.seconds) == ("time", None)
    assert "more than 0.1 seconds" in found.reason
    assert time.monotonic() - began < 50


@linux
def test_a_slow_later_step_counts_too() -> None:
    durations = iter([0.0, 0.3, 0.3, 0.3, 0.3])
    limits = replace(LIMITS, step_seconds=0.2, repeats=3)
    assert measure(lambda: lambda: burning(next(durations)), limits).missing == "time"


@linux
def test_only_cpu_time_of_the_step_counts() -> None:
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
def test_a_process_that_exits_without_a_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="exited without a result, with status 3"):
        measure(lambda: lambda: os._exit(3), LIMITS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 0}, "repeats=0: must be a positive"),
        ({"round_seconds": -1.0}, "round_seconds=-1.0: must be a positive"),
        ({"step_seconds": 0.0}, "step_seconds=0.0: must be a positive"),
        ({"memory_bytes": -1}, "memory_bytes=-1: must be a whole number of at least 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_limits_that_limit_nothing_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LIMITS, **change)  # type: ignore[arg-type]
