"""A step of a model timed in a process of its own, under limits on memory and on time: what does not fit ends alone.

The process is forked for one round and ends with it. Every round so starts from the same memory, and a step beyond a
limit costs nothing but its own value. For Linux: memory is read from ``/proc`` and limited by ``RLIMIT_DATA``.
"""

import os
import re
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

Step = Callable[[], object]
Missing = Literal["", "memory", "time"]

_BUILD_SECONDS = 120.0  # to build a model; it takes milliseconds, so this only ends a process that hangs
_PATIENCE = 10.0  # seconds on the clock for each of the processor, after which a step that hangs is ended
_LOOK_EVERY = 0.05  # seconds
_PR_SET_PDEATHSIG = 1  # of prctl, from the kernel's prctl.h
# How PyTorch, the C++ library, NumPy and the system say that memory has run out.
_NO_MEMORY = re.compile(r"can(no|')t allocate memory|bad_alloc|out of memory|unable to allocate", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """When a round has measured enough, and when a step is given up. Raises ValueError for values out of range."""

    repeats: int  # timed steps of a round, at most
    round_seconds: float  # after so long no further step of the round is timed
    long_step_seconds: float  # a first step that takes so long is no warm-up: it is the round's only one
    step_seconds: float  # a step that takes longer is given up
    memory_bytes: int = 0  # beyond what the process holds before the model is built; 0: no limit

    def __post_init__(self) -> None:
        for name in ("repeats", "round_seconds", "long_step_seconds", "step_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be greater than 0")
        if self.memory_bytes < 0:
            raise ValueError(f"memory_bytes={self.memory_bytes!r}: must not be negative; 0 is no limit")

    @property
    def too_slow(self) -> "Round":
        """What a round is whose step was given up."""
        return Round(missing="time", reason=f"a step takes more than {self.step_seconds:g} seconds")


@dataclass(frozen=True)
class Round:
    """What one round found: seconds of a step and the peak of memory, or what was missing and why."""

    seconds: float | None = None
    peak_bytes: int | None = None
    missing: Missing = ""
    reason: str = ""


def timed(
    step: Step,
    limits: Limits,
    after_first: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of a step: the median of the timed ones, after a first one that warms up, unless that is long itself."""
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
    """What a round is whose step ended with ``error``, if that says that memory ran out; else None."""
    if not (isinstance(error, MemoryError) or _NO_MEMORY.search(str(error))):
        return None
    limit = f" within {limits.memory_bytes / 1e9:g} GB" if limits.memory_bytes else ""
    return Round(missing="memory", reason=f"memory could not be had{limit}")


def measure(make: Callable[[], Step], limits: Limits) -> Round:
    """One round of the step that ``make`` builds, in a forked process of one thread.

    The seconds are those that the processor spends on the step, in which other programs on it have no part.
    The peak is of private memory beyond what the process held before ``make``: weights, gradients, the optimiser's
    state, activations, and what the allocator keeps beside them. A step beyond a limit, and a process that the system
    kills, is a :class:`Round` with a reason. Raises RuntimeError for any other error there, with the traceback, and
    for any other signal that ends the process, with its name. The process ends with this one, however this one ends.
    """
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, make, limits, os.getpid()), daemon=True)
    process.start()
    theirs.close()
    try:
        return _listen(ours, limits, process.pid or 0)
    except EOFError:
        process.join()
        return _ended_by(-(process.exitcode or 0))
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _listen(pipe: Connection, limits: Limits, pid: int) -> Round:
    allowed = _BUILD_SECONDS
    began, worked = time.monotonic(), 0.0
    while True:
        # Looked after from here: a timer in the process would make its own clock coarse.
        while not pipe.poll(_LOOK_EVERY):
            if _processor_seconds(pid) - worked > allowed or time.monotonic() - began > _PATIENCE * allowed:
                return limits.too_slow
        said, value = pipe.recv()
        began, worked = time.monotonic(), _processor_seconds(pid)
        if said == "built":
            allowed = limits.step_seconds
        elif said == "first":
            allowed = (limits.repeats + 1) * limits.step_seconds
        elif said == "memory":
            missed: Round = value
            return missed
        elif said == "error":
            raise RuntimeError(f"a step failed in its process:\n{value}")
        else:
            seconds, peak_bytes = value
            return limits.too_slow if seconds > limits.step_seconds else Round(seconds, peak_bytes)


def _processor_seconds(pid: int) -> float:
    """Of a process, in steps of some milliseconds; zero where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _ended_by(number: int) -> Round:
    if number <= 0:
        raise RuntimeError(f"a step's process ended without a word, with status {-number}")
    name = signal.Signals(number).name
    if number != signal.SIGKILL:
        raise RuntimeError(f"a step's process was ended by {name}")
    return Round(missing="memory", reason=f"its process was ended by {name}, as the system does when memory runs out")


def _child(pipe: Connection, make: Callable[[], Step], limits: Limits, parent: int) -> None:
    try:
        _end_with(parent)
        before = _private_bytes()
        if limits.memory_bytes:
            _limit_memory(limits.memory_bytes)
        step = make()
        pipe.send(("built", None))
        seconds = timed(step, limits, lambda: pipe.send(("first", None)), clock=time.process_time)
        pipe.send(("measured", (seconds, max(_peak_private_bytes() - before, 0))))
    except BaseException as error:
        missed = out_of_memory(error, limits)
        pipe.send(("memory", missed) if missed else ("error", traceback.format_exc()))


def _end_with(parent: int) -> None:
    # A parent that is killed can end nothing any more, and a step may have minutes to go. The kernel sees to it.
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def _status() -> dict[str, int]:
    """The process's memory in bytes, by the kernel's names."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    pairs = [line.split(":") for line in lines if line.endswith(" kB")]
    return {name: 1024 * int(value.split()[0]) for name, value in pairs}


def _private_bytes() -> int:
    return _status()["RssAnon"]


def _peak_private_bytes() -> int:
    # The kernel keeps the peak of all resident pages. Those of files, the code of the libraries, only become more.
    now = _status()
    return now["VmHWM"] - now["RssFile"] - now["RssShmem"]


def _limit_memory(more: int) -> None:
    import resource

    limit, hard = _status()["VmData"] + more, resource.getrlimit(resource.RLIMIT_DATA)[1]
    # The hard limit may be set from outside, and is nothing to lift or to lower.
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
