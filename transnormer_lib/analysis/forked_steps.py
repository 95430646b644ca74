"""Times a step of a model in its own process, under limits on memory and time.

Each round forks a new process, so every round starts from the same memory, and a step beyond a limit loses only its own
value. Linux only: memory is limited by ``RLIMIT_DATA``.
"""

import ctypes
import os
import resource
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from transnormer_lib import exhausted
from transnormer_lib.analysis.tensor_memory import held_bytes, peak_bytes
from transnormer_lib.checks import check_count, check_positive

Step = Callable[[], object]
Missing = Literal["", "memory", "time"]

_BUILD_SECONDS = 120.0  # to build a model; building takes milliseconds, so this ends only a process that hangs
_PATIENCE = 10.0  # allowed wall seconds per CPU second
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1  # of prctl, from the kernel's prctl.h


@dataclass(frozen=True)
class Limits:
    """When a round ends and when a step is abandoned. Raises ValueError for values out of range."""

    repeats: int  # at most so many timed steps per round
    round_seconds: float  # no further step starts once the timed steps have taken this long
    long_step_seconds: float  # a first step this long is not a warm-up but the round's only step
    step_seconds: float  # a step that takes longer is abandoned
    memory_bytes: int = 0  # beyond what the process holds before the model is built; 0: no limit

    def __post_init__(self) -> None:
        for name in ("repeats", "round_seconds", "long_step_seconds", "step_seconds"):
            check_positive(name, getattr(self, name))
        check_count("memory_bytes", self.memory_bytes, least=0)

    @property
    def too_slow(self) -> "Round":
        """The round of an abandoned step."""
        return Round(missing="time", reason=f"a step takes more than {self.step_seconds:g} seconds")


@dataclass(frozen=True)
class Round:
    """The result of one round: seconds of a step and peak memory, or what was missing and why."""

    seconds: float | None = None
    peak_bytes: int | None = None  # None: not measured
    missing: Missing = ""
    reason: str = ""


def timed(
    step: Step,
    limits: Limits,
    after_first: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds of the timed steps after one warm-up step, or the seconds of the first step if it is long."""
    began = clock()
    step()
    first = clock() - began
    after_first()
    if first >= limits.long_step_seconds:
        return first
    taken: list[float] = []
    while not taken or (len(taken) < limits.repeats and sum(taken) < limits.round_seconds):
        began = clock()
        step()
        taken.append(clock() - began)
    return statistics.median(taken)


def out_of_memory(error: BaseException, limits: Limits) -> Round | None:
    """The round of a step that raised ``error``, if memory ran out; else None."""
    if not exhausted.out_of_memory(error):
        return None
    limit = f" within {limits.memory_bytes / 1e9:g} GB" if limits.memory_bytes else ""
    return Round(missing="memory", reason=f"out of memory{limit}")


@contextmanager
def piped_process(
    method: Literal["fork", "spawn"], target: Callable[..., object], *arguments: object
) -> Iterator[tuple[Connection, BaseProcess]]:
    """A process that runs ``target(pipe, *arguments)``, and our end of the pipe; killed on leaving the context."""
    context: Any = get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    # A daemon may not have children, which the spawned process forks.
    process = context.Process(target=target, args=(theirs, *arguments), daemon=method == "fork")
    process.start()
    theirs.close()
    try:
        yield ours, process
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def measure(make: Callable[[], Step], limits: Limits, memory: bool = True) -> Round:
    """One round of the step that ``make`` builds, in a forked process of one thread.

    Seconds are CPU time, so other programs do not count. The peak, if ``memory`` is asked for, takes one more step: it
    is what tensors hold between two steps (weights, optimiser state), and the most that a step adds (activations,
    gradients), as ``tensor_memory`` counts them. The memory limit holds for all that the process allocates, except
    while that one step is counted.

    A step beyond a limit, or a process that the system kills, gives a :class:`Round` with a reason. Raises RuntimeError
    for any other error, with its traceback, and for any other signal, with its name. The child dies with its parent,
    even if the parent is killed.
    """
    with piped_process("fork", _child, make, limits, memory, os.getpid()) as (pipe, process):
        try:
            return _listen(pipe, limits, process.pid or 0)
        except EOFError:
            process.join()
            status = process.exitcode or 0
    if status >= 0:
        raise RuntimeError(f"a step's process exited without a result, with status {status}")
    name = signal.Signals(-status).name
    if -status != signal.SIGKILL:
        raise RuntimeError(f"a step's process was ended by {name}")
    return Round(missing="memory", reason=f"its process was ended by {name}, as the system does when memory runs out")


def _listen(pipe: Connection, limits: Limits, pid: int) -> Round:
    allowed = _BUILD_SECONDS
    began, worked = time.monotonic(), 0.0
    while True:
        # The parent checks the limits, because a timer in the child would make the child's clock coarse.
        while not pipe.poll(_POLL_SECONDS):
            if _processor_seconds(pid) - worked > allowed or time.monotonic() - began > _PATIENCE * allowed:
                return limits.too_slow
        said, value = pipe.recv()
        began, worked = time.monotonic(), _processor_seconds(pid)
        if said == "built":
            allowed = limits.step_seconds
        elif said == "first":
            allowed = (limits.repeats + 2) * limits.step_seconds
        elif said == "error":
            raise RuntimeError(f"a step failed in its process:\n{value}")
        else:
            found: Round = value
            return found


def _processor_seconds(pid: int) -> float:
    """CPU seconds of a process, in steps of some milliseconds; zero if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _child(pipe: Connection, make: Callable[[], Step], limits: Limits, memory: bool, parent: int) -> None:
    try:
        _die_with(parent)
        before = held_bytes() if memory else 0
        with _limited(limits.memory_bytes):
            step = make()
            pipe.send(("built", None))
            seconds = timed(step, limits, lambda: pipe.send(("first", None)), clock=time.process_time)
        found = limits.too_slow
        if seconds <= limits.step_seconds:
            found = Round(seconds, held_bytes() - before + peak_bytes(step) if memory else None)
        pipe.send(("round", found))
    except BaseException as error:
        missed = out_of_memory(error, limits)
        pipe.send(("round", missed) if missed else ("error", traceback.format_exc()))


def _die_with(parent: int) -> None:
    # A killed parent cannot end its child, and a step may run for minutes, so the kernel ends the child.
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)


def _data_bytes() -> int:
    """The process's memory that ``RLIMIT_DATA`` limits."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return 1024 * int(status.partition("VmData:")[2].split()[0])


@contextmanager
def _limited(more: int) -> Iterator[None]:
    outside = resource.getrlimit(resource.RLIMIT_DATA)
    if more:
        limit, hard = _data_bytes() + more, outside[1]
        # An outside hard limit stays as it is.
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, outside)
