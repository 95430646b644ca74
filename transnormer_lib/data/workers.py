"""Work on clean processes of this interpreter, which end with the process that started them, even if that is killed.

They fork no process that runs torch's threads, need no ``if __name__`` guard, and can be used from a notebook.

``python -m transnormer_lib.data.workers PARENT`` is such a process: it reads tasks from standard input and writes their
results to standard output.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")
_POLL_SECONDS = 0.5


def spread(function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], processes: int) -> Iterator[Result]:
    """``function(*task)`` for every task, in order, on so many processes; at most two results per process are waiting.

    ``function`` and the tasks must be picklable, and a task small. An exception of the function is raised here.
    Raises RuntimeError if a process is killed.
    """
    workers = [_start() for _ in range(processes)]
    waiting: deque[subprocess.Popen[bytes]] = deque()
    try:
        for number, task in enumerate(tasks):
            worker = workers[number % processes]
            _send(worker, (function, task))
            waiting.append(worker)
            if len(waiting) >= 2 * processes:
                yield _receive(waiting.popleft())
        while waiting:
            yield _receive(waiting.popleft())
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.communicate()  # closes the pipes and waits


def _start() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", __name__, str(os.getpid())]
    # Where this process finds modules, its workers do.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _send(worker: "subprocess.Popen[bytes]", task: object) -> None:
    assert worker.stdin is not None
    try:
        pickle.dump(task, worker.stdin)
        worker.stdin.flush()
    except BrokenPipeError:
        pass  # the answer will be missing


def _receive(worker: "subprocess.Popen[bytes]") -> Any:
    assert worker.stdout is not None
    try:
        succeeded, result = pickle.load(worker.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise RuntimeError(f"a process that makes data ended with code {worker.wait()}") from None
    if not succeeded:
        raise result
    return result


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(parent: int) -> None:
    """Do the tasks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends its workers
    _end_with(parent)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints is no answer
    while True:
        try:
            function, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, function(*task)), pickle.HIGHEST_PROTOCOL)
        except Exception as problem:
            answer = pickle.dumps((False, problem))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
