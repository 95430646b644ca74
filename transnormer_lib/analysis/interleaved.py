"""Timing calls that take turns, so that a drift of the machine affects all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

from transnormer_lib.checks import check_count


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    repeats: int = 1,
    wait: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each call: one median of ``repeats`` per round.

    All calls run once before the clock starts. The first turn moves on by one call with every repetition. ``wait``
    returns when the work that a call has queued is done. Raises ValueError if ``rounds`` or ``repeats`` is below 1.
    """
    check_count("rounds", rounds)
    check_count("repeats", repeats)
    names = list(calls)
    for call in calls.values():
        call()
    medians: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(repeats):
            first = repeat % len(names)
            for name in names[first:] + names[:first]:
                wait()
                start = time.perf_counter()
                calls[name]()
                wait()
                taken[name].append(time.perf_counter() - start)
        for name in names:
            medians[name].append(statistics.median(taken[name]))
    return medians
