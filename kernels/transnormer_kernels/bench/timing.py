"""Seconds per call: CUDA-graph replays over rotating inputs on a GPU, the clock on a CPU; and the rate of a copy.

A graph holds one call per set of inputs. The sets together are several times the L2 cache, so a call reads its inputs
from device memory. Outputs are kept until the graph is complete, so every call writes to its own memory. A contestant
that cannot be captured is timed by events around the same calls, which include the host's launch time.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

_CACHES = 4  # size of all sets together, at least, in L2 caches
_MOST_SETS = 256
_WARM_UP = 3
_SHORTEST = 2e-3  # least seconds of one timed stretch

Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds per call of every repeat, and how they were measured."""

    seconds: tuple[float, ...]
    how: Literal["cuda graph", "events", "clock"]
    note: str = ""  # why no CUDA graph was used

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def sets_needed(set_bytes: int, cache_bytes: int) -> int:
    """The number of rotating input sets: at least two, together ``_CACHES`` times the cache, at most 256."""
    return min(_MOST_SETS, max(2, math.ceil(_CACHES * cache_bytes / set_bytes)))


def cache_bytes(device: torch.device) -> int:
    """The size of a GPU's L2 cache; 0 on a CPU, where inputs do not rotate."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0


def measure(calls: Sequence[Call], device: torch.device, repeats: int) -> Timing:
    """Time ``calls``, the same work on different inputs; seconds are per call."""
    if device.type != "cuda":
        return Timing(_by_clock(calls, repeats), "clock")
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # a first call's compilations and allocations must not be captured
        for _ in range(_WARM_UP):
            calls[0]()
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [call() for call in calls]
    except Exception as error:
        torch.cuda.synchronize(device)
        return Timing(_by_events(lambda: _all(calls), len(calls), repeats), "events", f"no graph: {one_line(error)}")
    del kept
    return Timing(_by_events(graph.replay, len(calls), repeats), "cuda graph")


def copy_rate(device: torch.device, size: int = 2**30, repeats: int = 10) -> float:
    """Bytes per second that the device reads plus writes: in its own copy or in a product, whichever is faster.

    A copy in a CUDA graph may be left to a copy engine, which on an H200 is a third slower than a kernel. Medians of
    ``repeats``.
    """
    source = torch.rand(size // 4, device=device)
    target = torch.empty_like(source)
    calls: tuple[Call, ...] = (lambda: target.copy_(source), lambda: torch.mul(source, 2.0, out=target))
    return 2 * source.nbytes / min(measure([call], device, repeats).median for call in calls)


def one_line(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _by_clock(calls: Sequence[Call], repeats: int) -> tuple[float, ...]:
    _all(calls)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        _all(calls)
        seconds.append((time.perf_counter() - start) / len(calls))
    return tuple(seconds)


def _by_events(replay: Callable[[], object], calls: int, repeats: int) -> tuple[float, ...]:
    """Seconds per call, over stretches of whole rounds of at least ``_SHORTEST`` each."""

    def stretch(rounds: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(rounds):
            replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    stretch(1)
    rounds = max(1, math.ceil(_SHORTEST / max(stretch(2) / 2, 1e-6)))
    stretch(rounds)
    return tuple(stretch(rounds) / rounds / calls for _ in range(repeats))
