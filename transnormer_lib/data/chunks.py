"""Generated data in chunks, over processes: the result depends on the seed alone.

Chunk c comes from a generator seeded with [seed, c] and always holds the same number of examples. So an example depends
neither on the number of processes nor on the number of examples requested: the first hundred of a thousand equal a
hundred requested alone.
"""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from transnormer_lib.checks import check_count
from transnormer_lib.data.workers import spread

Part = TypeVar("Part")
_SEEDS = 1 << 32  # numpy reads a larger seed as two words, which could equal another seed and chunk


def in_chunks(
    make: Callable[[np.random.Generator, int], Part], count: int, size: int, seed: int, workers: int | None = None
) -> Iterator[Part]:
    """``make(rng, n)`` for every chunk of ``size`` examples, in order; n is the number of examples to keep.

    ``make`` must draw as if n were ``size``, and must be picklable. ``workers``: processes (default: one per core); a
    single chunk is made in this process. Parts are yielded as they are finished, so only a few are in memory. Raises
    ValueError if ``count``, ``seed`` or ``workers`` is out of range.
    """
    check_count("count", count)
    check_count("seed", seed, 0)
    if workers is not None:
        check_count("workers", workers)
    if seed >= _SEEDS:
        raise ValueError(f"seed={seed!r}: must be below 2**32")
    sizes = [min(size, count - start) for start in range(0, count, size)]
    processes = min(workers or cores(), len(sizes))
    if processes == 1:
        return (_part(make, seed, chunk, n) for chunk, n in enumerate(sizes))
    return spread(_part, ((make, seed, chunk, n) for chunk, n in enumerate(sizes)), processes)


def _part(make: Callable[[np.random.Generator, int], Part], seed: int, chunk: int, n: int) -> Part:
    return make(np.random.default_rng([seed, chunk]), n)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
