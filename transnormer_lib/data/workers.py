"""Work on several processes that end with the process that started them, even if that one is killed."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")
_POLL_SECONDS = 0.5


def spread(function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], processes: int) -> Iterator[Result]:
    """``function(*task)`` for every task, in order, on so many processes; a few results are waiting at most.

    ``function`` and the tasks must be picklable. An exception of the function is raised here.
    """
    # joblib starts clean processes (it does not fork one that runs torch's threads), needs no `if __name__` guard,
    # works from a notebook, and reuses its processes in the next call. What it lacks: they outlive a killed parent.
    from joblib import Parallel, delayed

    parallel = Parallel(
        n_jobs=processes,
        return_as="generator",
        pre_dispatch="2*n_jobs",
        initializer=_end_with,
        initargs=(os.getpid(),),
    )
    results: Iterator[Result] = parallel(delayed(function)(*task) for task in tasks)
    return results


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
