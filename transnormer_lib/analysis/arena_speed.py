"""Steps per second and peak memory of classifiers of long sequences, by row, length and part: Table 7 measured.

A step is one batch: in inference a forward pass without gradients in evaluation mode; in training a forward pass,
the loss, the backward pass, the clipping and AdamW's update. In every round all rows take their turns, so that a drift
of the machine meets all alike, and values of one round can be paired.
Shapes: B batch, N length.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal, get_args

from transnormer_lib.analysis.forked_steps import Limits, Missing, Round, Step, measure, out_of_memory, timed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from transnormer_lib.models.classifier import ClassifierConfig
    from transnormer_lib.training.config import OptimizerConfig

Part = Literal["inference", "training"]
Precision = Literal["fp32", "bf16"]
PARTS: tuple[Part, ...] = get_args(Part)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt, from glibc's malloc.h


@dataclass(frozen=True)
class Work:
    """What the steps work on, beside the model."""

    batch: int  # B
    optimizer: OptimizerConfig
    device: str = "cpu"
    precision: Precision = "fp32"  # of the matrix products

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch={self.batch!r}: must be at least 1")
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision={self.precision!r}: must be one of {', '.join(get_args(Precision))}")


@dataclass(frozen=True)
class Schedule:
    """How many rounds. All rows at a length in a part are a group; its first round is always made."""

    rounds: int
    group_seconds: float  # no further round begins if it would end later than this after the group's first began
    judged: tuple[int, ...] = ()  # lengths whose groups have all rounds, whatever they take

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds={self.rounds!r}: must be at least 1")
        if not self.group_seconds >= 0:
            raise ValueError(f"group_seconds={self.group_seconds!r}: must not be negative")


@dataclass(frozen=True)
class Cell:
    """One row at one length in one part: a value for each round, or none and why."""

    row: str
    length: int
    part: Part
    seconds: tuple[float, ...] = ()  # of a step; empty where one is missing
    peak_bytes: tuple[int, ...] = ()  # empty where the machine does not tell
    missing: Missing = ""
    reason: str = ""

    @property
    def steps_per_second(self) -> tuple[float, ...]:
        return tuple(1.0 / seconds for seconds in self.seconds)

    @property
    def median(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.seconds)


def turns(
    rows: Mapping[int, Sequence[str]],
    schedule: Schedule,
    one_round: Callable[[str, int, Part], Round],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Cell]:
    """Every row at every length in both parts, shortest length first; ``rows`` are those of each length.

    Who goes first moves on by one with every round. A row that misses at a length is not tried at longer ones in that
    part, and one that misses in inference is not tried in training at that length, which takes more of everything.
    """
    cells: list[Cell] = []
    lost: dict[tuple[str, Part], Cell] = {}
    for length in sorted(rows):
        for part in PARTS:
            names = [row for row in rows[length] if not any((row, p) in lost for p in _needed(part))]
            found = _group(names, length, part, schedule, one_round, clock)
            for row in rows[length]:
                cell = found.get(row) or _not_tried(row, length, part, lost)
                cells.append(cell)
                if cell.missing:
                    lost.setdefault((row, part), cell)
    return cells


def _needed(part: Part) -> tuple[Part, ...]:
    return PARTS[: PARTS.index(part) + 1]


def _not_tried(row: str, length: int, part: Part, lost: Mapping[tuple[str, Part], Cell]) -> Cell:
    # Of the part itself if that missed, else of what it needs.
    missed = next(lost[row, p] for p in reversed(_needed(part)) if (row, p) in lost)
    where = f"{'' if missed.part == part else f'in {missed.part} '}at {missed.length:,} tokens"
    return Cell(row, length, part, missing=missed.missing, reason=f"not tried: already {where} {missed.reason}")


def _group(
    names: Sequence[str],
    length: int,
    part: Part,
    schedule: Schedule,
    one_round: Callable[[str, int, Part], Round],
    clock: Callable[[], float],
) -> dict[str, Cell]:
    seen: dict[str, list[Round]] = {row: [] for row in names}
    missed: dict[str, Round] = {}
    began = clock()
    for number in range(schedule.rounds):
        start = clock()
        first = number % len(names) if names else 0
        for row in [*names[first:], *names[:first]]:
            if row not in missed:
                seen[row].append(one_round(row, length, part))
                if seen[row][-1].missing:
                    missed[row] = seen[row][-1]
        now = clock()
        if length not in schedule.judged and (now - began) + (now - start) > schedule.group_seconds:
            break
    return {
        row: Cell(row, length, part, missing=missed[row].missing, reason=missed[row].reason)
        if row in missed
        else Cell(
            row, length, part, tuple(r.seconds for r in rounds if r.seconds is not None),
            tuple(r.peak_bytes for r in rounds if r.peak_bytes is not None),
        )
        for row, rounds in seen.items()
    }  # fmt: skip


def step(config: ClassifierConfig, length: int, part: Part, work: Work) -> Step:
    """A step of the classifier on random tokens [B, N]; on a GPU it ends when its work is done."""
    import torch

    from transnormer_lib.models.classifier import build_classifier
    from transnormer_lib.training.optimisation import build_optimizer, clip

    device = torch.device(work.device)
    generator = torch.Generator().manual_seed(0)
    ids_BN = torch.randint(256, (work.batch, length), generator=generator).to(device)
    targets_B = torch.randint(config.classes, (work.batch,), generator=generator).to(device)
    model = build_classifier(config, seed=0).to(device)
    half = torch.autocast(device.type, dtype=torch.bfloat16, enabled=work.precision == "bf16")
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    if part == "inference":
        model.eval()

        @torch.no_grad()
        def infer() -> None:
            with half:
                model(ids_BN)
            wait()

        return infer
    optimizer, weights = build_optimizer(work.optimizer, model.train()), list(model.parameters())

    def train() -> None:
        with half:
            loss = model(ids_BN, targets_B=targets_B)
        loss.backward()
        clip(weights, work.optimizer, loss.detach())  # by value in this recipe, for which no norm is read
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()

    return train


def _in_processes(device: str) -> bool:
    return device == "cpu" and sys.platform == "linux"


def memory_limit(device: str, memory_bytes: int) -> str:
    """In words, beyond how much memory a step has no value; ``memory_bytes`` is what :class:`Limits` asks for."""
    if not memory_bytes:
        return "the machine's memory"
    if device == "cpu" and not _in_processes(device):
        return "the machine's memory (no limit of ours applies: a CPU's is set under Linux alone)"
    return f"{memory_bytes / 1e9:g} GB"


def speed_unit(device: str) -> str:
    """What the speeds are: on a CPU under Linux the seconds are those that the processor spends on the step."""
    return f"steps per second{_clock(device)}"


def time_unit(device: str) -> str:
    """What a step takes, by the same clock."""
    return f"milliseconds{_clock(device)} per step"


def _clock(device: str) -> str:
    return " of processor time" if _in_processes(device) else ""


def measure_all(
    models: Mapping[tuple[str, int], ClassifierConfig], work: Work, schedule: Schedule, limits: Limits
) -> list[Cell]:
    """Measure every model, given by row and length, in both parts.

    On a CPU under Linux each round of a cell is a process of its own, forked from one that holds nothing but the
    libraries and computes on one thread, and memory is limited. On a GPU all is measured here, after one step of every
    row in both parts that is not timed, and the limit is the allocator's. Elsewhere memory is neither measured nor
    limited.
    """
    if _in_processes(work.device):
        return _in_bench_process(models, work, schedule, limits)
    if work.device == "cpu":
        unlimited = replace(limits, memory_bytes=0)
        return _all_turns(models, work, schedule, lambda make: _here(make, unlimited))
    _warm_up(models, work, limits)
    return _all_turns(models, work, schedule, lambda make: _on_gpu(make, limits))


def _warm_up(models: Mapping[tuple[str, int], ClassifierConfig], work: Work, limits: Limits) -> None:
    # A process's first steps on a GPU load libraries and compile kernels, for seconds: the first row's round would be
    # no measurement, and a group's time would be up before its second one.
    shortest = min((length for _, length in models), default=0)
    for (_, length), config in models.items():
        for part in PARTS if length == shortest else ():
            try:
                step(config, length, part, work)()
            except Exception as error:
                if out_of_memory(error, limits) is None:  # if it was memory, the row's own round will say so
                    raise


def _all_turns(
    models: Mapping[tuple[str, int], ClassifierConfig],
    work: Work,
    schedule: Schedule,
    one: Callable[[Callable[[], Step]], Round],
) -> list[Cell]:
    rows: dict[int, list[str]] = {}
    for row, length in models:
        rows.setdefault(length, []).append(row)
    return turns(rows, schedule, lambda row, n, part: one(lambda: step(models[row, n], n, part, work)))


def _in_bench_process(*arguments: Any) -> list[Cell]:
    # A notebook's own process has threads and sockets, which do not survive a fork. This one is started afresh.
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_bench, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        outcome = ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the measuring process ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()
    if isinstance(outcome, str):
        raise RuntimeError(outcome)
    cells: list[Cell] = outcome
    return cells


def _bench(pipe: Connection, models: Any, work: Work, schedule: Schedule, limits: Limits) -> None:
    import traceback
    from multiprocessing import parent_process

    import torch
    import torch._dynamo  # which an optimiser imports when it is built: half a second and 100 MB, here once for all

    torch.set_num_threads(1)  # threads of this process would be missing in those forked from it
    try:
        with torch.no_grad():  # modules that are imported on use, and code that runs once; gradients start threads
            for (_, length), config in models.items():
                if length == min(n for _, n in models):
                    step(config, length, "inference", work)()
        _settle_memory()
        notebook = parent_process()

        def one(make: Callable[[], Step]) -> Round:
            if notebook is None or not notebook.is_alive():
                raise RuntimeError("nobody waits for the measurement any more")
            return measure(make, limits)

        pipe.send(_all_turns(models, work, schedule, one))
    except BaseException:
        pipe.send(traceback.format_exc())


def _settle_memory() -> None:
    # By default glibc gives freed memory back to the system within a step and fetches it anew, page by page, in amounts
    # that hang on what was freed before: up to a third of a step. Here it keeps what it frees, as PyTorch's own
    # allocator does on a GPU; only tensors above 32 MB still go back. What is free now would be used by the forked
    # processes without counting as theirs, so that is given back first.
    import ctypes
    import gc

    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page that holds an object
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and hasattr(library, "malloc_trim"):  # other C libraries have neither
        library.malloc_trim(0)
        for option, value in ((_M_TRIM_THRESHOLD, 2**31 - 1), (_M_MMAP_THRESHOLD, 2**25)):
            library.mallopt(option, value)


def _here(make: Callable[[], Step], limits: Limits) -> Round:
    try:
        seconds = timed(make(), limits)
    except Exception as error:
        if missed := out_of_memory(error, limits):
            return missed
        raise
    return limits.too_slow if seconds > limits.step_seconds else Round(seconds)


def _on_gpu(make: Callable[[], Step], limits: Limits) -> Round:
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
    before, total = torch.cuda.memory_allocated(), torch.cuda.get_device_properties().total_memory
    if limits.memory_bytes:
        torch.cuda.set_per_process_memory_fraction(min((before + limits.memory_bytes) / total, 1.0))
    torch.cuda.reset_peak_memory_stats()
    try:
        seconds = timed(make(), limits)
    except Exception as error:
        if missed := out_of_memory(error, limits):
            return missed
        raise
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    if seconds > limits.step_seconds:
        return limits.too_slow
    return Round(seconds, torch.cuda.max_memory_allocated() - before)
