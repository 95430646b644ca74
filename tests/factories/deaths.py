"""Work that is killed at random points and run again: forked children, the ways to die, and what must hold afterwards.

A script imports what the work needs, once, and forks a child for each attempt. Tests run such a script in a process of
its own, because a test process with threads must not fork.
"""

import faulthandler
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Manner = Literal["kill", "term", "interrupt", "memory", "disk"]
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}
Work = Callable[[], object]
ATTEMPTS = 5  # for each death: a child that ends before it is struck is tried again, at another moment
EARLIER = 0.8  # so much of the time before, if the strike came too late: the machine may have become less busy
_HANGS = 120.0  # seconds


def fork(work: Work, errors: Path, memory_ends_after: float | None = None) -> int:
    """Do ``work`` in a child whose standard error goes to a file; returns the child's id.

    After ``memory_ends_after`` seconds the child gets no further memory from the system. It exits with the work's exit
    code, with 130 after an interruption, with 1 after another error.
    """
    if child := os.fork():
        return child
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        faulthandler.enable()
        if memory_ends_after is not None:
            signal.signal(signal.SIGALRM, lambda *_: resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1)))
            signal.setitimer(signal.ITIMER_REAL, memory_ends_after)
        code = int(work() or 0)  # type: ignore[call-overload]
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int, errors: Path) -> int:
    """The child's exit code; minus the number of the signal that ended it. One that hangs is made to say where."""
    deadline = time.monotonic() + _HANGS
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGABRT)
            os.waitpid(child, 0)
            raise AssertionError(f"a child hangs: {errors.read_text()[-3000:]}")
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(ended[1])


def died(manner: Manner, code: int) -> bool:
    """Whether a child with this exit code was ended by what :func:`killed` did, and had not ended before.

    One that hears the signal ends with the code of an interruption; where memory is short each library has its own.
    """
    if manner in SIGNALS:
        number = SIGNALS[manner]
        return code == -number or (manner != "kill" and code in (130, 128 + number))
    return manner == "memory" and code != 0


def undisturbed(work: Work, errors: Path) -> float:
    """Do the work in a child that must succeed; returns its seconds."""
    began = time.monotonic()
    code = wait(fork(work, errors), errors)
    assert code == 0, f"the undisturbed work ended with {code}: {errors.read_text()}"
    return time.monotonic() - began


def killed(
    work: Work, manner: Manner, seconds: float, draw: random.Random, errors: Path, moments: tuple[Path, ...] = ()
) -> int:
    """Do the work, which takes so many seconds, and end it at a random point; returns the exit code.

    Half of the signals come just after one of ``moments``, files that exist while something is being written.
    """
    pause, chosen, delay = draw.uniform(0.02, 0.95) * seconds, None, draw.uniform(0.0, 0.01)
    if manner == "memory":
        return wait(fork(work, errors, memory_ends_after=pause), errors)
    if moments and draw.random() < 0.5:
        pause, chosen = draw.uniform(0.02, 0.7) * seconds, draw.choice(moments)
    child = fork(work, errors)
    time.sleep(pause)
    deadline = time.monotonic() + seconds
    while chosen is not None and not any(chosen.parent.glob(chosen.name)) and time.monotonic() < deadline:
        time.sleep(0.0002)
    if chosen is not None:
        time.sleep(delay)
    os.kill(child, SIGNALS[manner])
    return wait(child, errors)
