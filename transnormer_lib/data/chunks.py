"""Generated data in chunks, over processes: what comes out depends on the seed alone.

Chunk c of a data set is made by a generator seeded with [seed, c] and always holds the same number of examples, so
that neither the number of processes nor the number of examples asked for changes an example: the first hundred of a
thousand are the hundred that one gets when asking for a hundred.
"""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

Part = TypeVar("Part")
_SEEDS = 1 << 32  # numpy reads a larger seed as two words, which could be the words of another seed and chunk


def in_chunks(
    make: Callable[[np.random.Generator, int], Part], count: int, size: int, seed: int, workers: int | None = None
) -> Iterator[Part]:
    """``make(rng, n)`` for every chunk of ``size`` examples, in order; n is the part of the chunk that is needed.

    ``make`` must draw as if n were ``size``, and must be picklable. ``workers``: processes; None takes every core, and
    one process where there is one chunk. Parts come as they are finished, so only a few are in memory at a time.

    Raises:
        ValueError: ``count``, ``seed`` or ``workers`` is out of range.
    """
    for name, value, least in (
        ("count", count, 1),
        ("seed", seed, 0),
        ("workers", 1 if workers is None else workers, 1),
    ):
        if value < least:
            raise ValueError(f"{name}={value!r}: must be at least {least}")
    if seed >= _SEEDS:
        raise ValueError(f"seed={seed!r}: must be below 2**32")
    sizes = [min(size, count - start) for start in range(0, count, size)]
    processes = min(workers or cores(), len(sizes))
    if processes == 1:
        return (_part(make, seed, chunk, n) for chunk, n in enumerate(sizes))
    # joblib's processes start clean (no fork of a process that runs torch's threads), need no `if __name__` guard in
    # the caller's script, work from a notebook, and are reused by the next call.
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=processes, return_as="generator", pre_dispatch="2*n_jobs")
    parts: Iterator[Part] = parallel(delayed(_part)(make, seed, chunk, n) for chunk, n in enumerate(sizes))
    return parts


def _part(make: Callable[[np.random.Generator, int], Part], seed: int, chunk: int, n: int) -> Part:
    return make(np.random.default_rng([seed, chunk]), n)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
