"""Progress: a command's lines, one per event, also from several jobs at once; and bars, where somebody watches."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Told = Callable[[str], object]  # takes a line of progress

GOES_ON = "interrupted; what is finished is kept, and the same command goes on from there"

_places: list[str] = []  # of the loops that are under way, outermost first


def say(line: str) -> None:
    """Print a line in one write, so that lines of several jobs do not mix.

    If nobody reads any more (``make report | head -1``), the job goes on without printing.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  stays open until the process ends


def left_text(seconds: float, done: float, total: float) -> str:
    """About how long the rest takes if it goes on as the first ``done`` of ``total`` parts did in ``seconds``.

    >>> left_text(90.0, done=3, total=10)
    'about 4 min left'
    """
    left = seconds / done * (total - done)
    if left < 60:
        return f"about {left:.0f} s left"
    minutes = round(left / 60)
    return f"about {minutes} min left" if minutes < 60 else f"about {minutes // 60} h {minutes % 60} min left"


def bar(name: str, *, hidden: bool = False, **options: Any) -> Any:
    """A bar of tqdm with these ``options``, on standard error, that begins with the places of the loops around it.

    Hidden unless stderr is a terminal; notebooks show it unless TQDM_DISABLE is set. All bars share one line, because
    a notebook cannot move up to another.
    """
    from tqdm import tqdm

    # No thread that refreshes bars in long pauses: if memory ends while it starts, tqdm waits for it for ever.
    tqdm.monitor_interval = 0
    if hidden or "ipykernel" not in sys.modules:
        options["disable"] = hidden or None
    return tqdm(desc="; ".join([*_places, name]), position=0, leave=False, **options)


def tracked(
    items: Iterable[T], unit: str, weights: Sequence[float] | None = None, told: Told | None = None
) -> Iterator[T]:
    """The items one by one; a line says which ``unit`` of how many is under way, and about how long all still take.

    ``weights``: how much work each item is (default: all the same); needed where ``items`` are only made one by one.
    The line comes after the first second, and bars inside the loop begin with it; ``told`` gets it for every item.
    """
    if weights is None:
        items = list(items)
        weights = [1.0] * len(items)
    makes, depth = iter(items), len(_places)
    took: list[float] = []  # seconds of each item
    line = bar("", bar_format="{desc}", delay=math.inf, hidden=told is not None)  # writes only what it is told to
    shown = False
    try:
        for number in range(1, len(weights) + 1):
            _places[depth:] = [f"{unit} {number} of {len(weights)}{_left(took, weights)}"]
            if told is not None:
                told(_places[-1])
            elif sum(took) > 1.0:
                line.set_description_str("; ".join(_places))
                shown = True
            started = time.perf_counter()
            yield next(makes)
            took.append(time.perf_counter() - started)
    finally:
        del _places[depth:]
        if shown:
            line.clear()
        line.close()


def _left(took: Sequence[float], weights: Sequence[float]) -> str:
    """How long the rest takes. Items that were quick, such as runs that were only loaded, say nothing about it."""
    known = [(seconds, weight) for seconds, weight in zip(took, weights, strict=False) if seconds > max(took) / 10]
    if not known:
        return ""
    seconds, done = map(math.fsum, zip(*known, strict=True))
    return f", {left_text(seconds, done, done + math.fsum(weights[len(took) :]))}"
