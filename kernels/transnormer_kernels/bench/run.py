"""The run: one row per case and contestant. A row that fails records why, and the run continues.

After an illegal memory access the process cannot use the GPU any more. The run then ends with ``DeviceLost``; the rows
so far are in the result, and a fresh process that resumes it continues with the next one.
"""

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from transnormer_kernels.bench import reference, results, table, timing
from transnormer_kernels.bench.cases import Case
from transnormer_kernels.bench.contestants import OURS, Contestant, Forward
from transnormer_kernels.bench.errors import Judge, computed_by
from transnormer_kernels.bench.reference import Inputs

Say = Callable[[str], object]


class DeviceLost(RuntimeError):
    """The GPU no longer responds to this process."""


def run(
    cases: Sequence[Case],
    contestants: Sequence[Contestant],
    *,
    device: torch.device,
    repeats: int = 20,
    quick: bool = False,
    seconds: float = 440.0,
    say: Say = print,
    path: Path | None = None,
    resumed: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure ``contestants`` in ``cases``; returns the result in the schema of the package's docstring.

    After ``seconds`` the remaining peers are left out; our own rows are always measured. Every row is written to
    ``path`` at once. ``resumed`` is an unfinished result, whose rows are kept.
    """
    began = time.monotonic()
    result = resumed or results.conditions(device) | {"quick": quick, "repeats": repeats, "cases": []}
    spent = result.get("seconds", 0.0)
    if "copy_bytes_per_second" not in result:
        size = 2**30 if device.type == "cuda" else 2**26
        result["copy_bytes_per_second"] = timing.copy_rate(device, size)
    for line in () if resumed else table.heading(result):
        say(line)

    def keep() -> None:
        result["seconds"] = spent + time.monotonic() - began
        if path is not None:
            results.write(result, path)

    for case in cases:
        values = next((v for v in result["cases"] if v["name"] == case.name), None)
        if values is None:
            values = results.case_values(case, result["copy_bytes_per_second"])
            result["cases"].append(values)
            say(table.case_heading(values))
        known = {row["name"] for row in values["rows"]}
        judge = Judge(case, device)
        for contestant in contestants:
            if contestant.name in known or not contestant.enters(case):
                continue
            why = contestant.missing(device)
            if why is None and contestant.name != OURS and spent + time.monotonic() - began > seconds:
                why = f"the {seconds:.0f} seconds of this run are used up"
            died = {"name": contestant.name, "status": "failed", "reason": "the process died in it"}
            values["rows"].append(died)
            keep()  # a run resumed after a crash continues behind this row
            row = _row(contestant, case, judge, values, device, repeats, why)
            values["rows"][-1] = row
            lost = _lost(device)
            if why is None or contestant.name == OURS:
                say(table.row(row))
            keep()
            if lost:
                raise DeviceLost(f"{case.name}, {contestant.name}: {row['reason']}")
        if known >= {row["name"] for row in values["rows"]}:
            continue  # complete before this run
        values["comparisons"] = results.compare(case, values)
        for line in (*table.left_out(values), *table.comparisons(values)):
            say(line)
        keep()
    keep()
    say(f"\n{result['seconds']:.0f} seconds")
    return result


def _row(
    contestant: Contestant,
    case: Case,
    judge: Judge,
    values: dict[str, Any],
    device: torch.device,
    repeats: int,
    left_out: str | None,
) -> dict[str, Any]:
    """The row of one contestant in one case; an exception becomes its reason."""
    row: dict[str, Any] = {"name": contestant.name, "status": "left out", "reason": left_out}
    if left_out is not None:
        return row
    try:
        torch._dynamo.reset()  # otherwise torch.compile gives up after eight recompilations
        row |= {"computes": dict(contestant.computes)} | _judged(contestant, judge)
        timed = _timed(contestant, case, device, repeats)
        row |= {
            "seconds": {"min": min(timed.seconds), "median": timed.median, "max": max(timed.seconds)},
            "times": list(timed.seconds),
            "how": timed.how,
            "note": timed.note,
            "of_floor": values["floor_seconds"] / timed.median,
        }
    except Exception as error:
        row |= {"status": "failed", "reason": timing.one_line(error)}
    finally:
        gc.collect()
        if device.type == "cuda" and not _lost(device):
            torch.cuda.empty_cache()
    return row


def _judged(contestant: Contestant, judge: Judge) -> dict[str, Any]:
    """Errors, their bounds, the verdict, and the shape at which they were measured."""
    errors, bounds = judge.judge(contestant, contestant.build)
    beyond = [name for name, error in errors.items() if not error <= bounds[name]]
    reason = ", ".join(f"{name} is off by {errors[name]:.1e}, bound {bounds[name]:.1e}" for name in beyond)
    return {
        "status": "wrong" if beyond else "measured",
        "reason": reason or None,
        "errors": {name: error if error < float("inf") else None for name, error in errors.items()},
        "bounds": bounds,
        "worst": max(bounds, key=lambda name: errors[name] / bounds[name]),
        "checked_shape": judge.case.shape(),
    }


def _timed(contestant: Contestant, case: Case, device: torch.device, repeats: int) -> timing.Timing:
    """Time ``contestant`` on enough sets of inputs to exceed the cache."""
    first = reference.make_inputs(case, device, seed=100)
    held = 2 if case.backward else 1  # gradients take as much memory as inputs
    size = held * sum(x.nbytes for x in first.named().values()) + first.q.nbytes
    count = timing.sets_needed(size, timing.cache_bytes(device)) if device.type == "cuda" else 1
    sets = [first, *(reference.make_inputs(case, device, seed=100 + i) for i in range(1, count))]
    forward = contestant.build(case)
    return timing.measure([_call(forward, computed_by(contestant, case), x) for x in sets], device, repeats)


def _call(forward: Forward, case: Case, x: Inputs) -> timing.Call:
    """The forward pass alone, without an autograd graph, or both passes."""
    if not case.backward:
        return torch.no_grad()(partial(forward, x))
    inputs = x.differentiable()
    wanted = tuple(inputs.leaves().values())
    return lambda: torch.autograd.grad(forward(inputs)["o"], wanted, x.g, allow_unused=True)


def _lost(device: torch.device) -> bool:
    """Whether the GPU no longer responds."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
        torch.zeros(1, device=device).item()
    except Exception:
        return True
    return False


def succeeded(result: dict[str, Any]) -> bool:
    """Whether all of our own rows that could run are correct. Peers may fail."""
    own = [row for values in result["cases"] for row in values["rows"] if row["name"] == OURS]
    return all(row["status"] in ("measured", "left out") for row in own)
