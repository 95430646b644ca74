"""Steps per second and peak memory of classifiers of long sequences, by row, length and part: Table 7 measured.

A step is one batch. Inference runs a forward pass in evaluation mode without gradients; training runs the forward pass,
the loss, the backward pass, the clipping and AdamW's update. All rows take turns in every round, so a drift of the
machine affects all of them, and values of one round can be paired.
Shapes: B batch, N length.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, Literal, get_args

from transnormer_lib.analysis import forked_steps
from transnormer_lib.analysis.forked_steps import Limits, Missing, Round, Step, measure, out_of_memory, timed
from transnormer_lib.checks import check_choice, check_count, check_not_negative
from transnormer_lib.models.classifier import ClassifierConfig, build_classifier
from transnormer_lib.progress import tracked
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.optimisation import build_optimizer, clip

Part = Literal["inference", "training"]
Precision = Literal["fp32", "bf16"]
PARTS: tuple[Part, ...] = get_args(Part)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt, from glibc's malloc.h


@dataclass(frozen=True)
class Work:
    """The setup of a step, apart from the model."""

    batch: int  # B
    optimizer: OptimizerConfig
    device: str = "cpu"
    precision: Precision = "fp32"  # of the matrix products

    def __post_init__(self) -> None:
        check_count("batch", self.batch)
        check_choice("precision", self.precision, Precision)


@dataclass(frozen=True)
class Schedule:
    """The number of rounds of a group: all rows at one length in one part. The first round always runs."""

    rounds: int
    group_seconds: float  # no further round starts if it would probably end later than this into the group
    judged: tuple[int, ...] = ()  # lengths whose groups run all rounds, however long they take

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)
        check_not_negative("group_seconds", self.group_seconds)


@dataclass(frozen=True)
class Cell:
    """One row at one length in one part: a value for each round, or the reason why there is none."""

    row: str
    length: int
    part: Part
    seconds: tuple[float, ...] = ()  # of a step; empty if any round misses
    peak_bytes: int | None = None  # the same in every round; None: not measured
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
    one_round: Callable[[str, int, Part, bool], Round],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[Cell]]:
    """Every row at every length in both parts, group by group, shortest length first; ``rows`` maps a length to its
    rows.

    ``one_round`` takes row, length, part and whether to measure memory, which is asked for in the first round alone.
    The first turn moves on by one row with every round. A row that misses at a length is not tried at longer lengths in
    that part. A row that misses in inference is not tried in training either, which needs more of everything.
    """
    lost: dict[tuple[str, Part], Cell] = {}
    for length in sorted(rows):
        for part in PARTS:
            needed = PARTS[PARTS.index(part) :: -1]  # the part itself, then what it needs
            missed = {row: next((lost[row, p] for p in needed if (row, p) in lost), None) for row in rows[length]}
            tried = [row for row, earlier in missed.items() if earlier is None]
            found = _group(tried, length, part, schedule, one_round, clock)
            cells = [
                found[row] if earlier is None else _not_tried(row, length, part, earlier)
                for row, earlier in missed.items()
            ]
            for cell in cells:
                if cell.missing:
                    lost.setdefault((cell.row, part), cell)
            yield cells


def _not_tried(row: str, length: int, part: Part, earlier: Cell) -> Cell:
    where = f"{'' if earlier.part == part else f'in {earlier.part} '}at {earlier.length:,} tokens"
    return Cell(row, length, part, missing=earlier.missing, reason=f"not tried: already {where} {earlier.reason}")


def _group(
    names: Sequence[str],
    length: int,
    part: Part,
    schedule: Schedule,
    one_round: Callable[[str, int, Part, bool], Round],
    clock: Callable[[], float],
) -> dict[str, Cell]:
    seen: dict[str, list[Round]] = {row: [] for row in names}
    began = clock()
    for number in range(schedule.rounds):
        start = clock()
        first = number % len(names) if names else 0
        for row in [*names[first:], *names[:first]]:
            if not (seen[row] and seen[row][-1].missing):
                seen[row].append(one_round(row, length, part, number == 0))
        now = clock()
        if length not in schedule.judged and (now - began) + (now - start) > schedule.group_seconds:
            break
    return {row: _cell(row, length, part, rounds) for row, rounds in seen.items()}


def _cell(row: str, length: int, part: Part, rounds: Sequence[Round]) -> Cell:
    if rounds[-1].missing:
        return Cell(row, length, part, missing=rounds[-1].missing, reason=rounds[-1].reason)
    seconds = tuple(r.seconds for r in rounds if r.seconds is not None)
    return Cell(row, length, part, seconds, rounds[0].peak_bytes)


def step(config: ClassifierConfig, length: int, part: Part, work: Work) -> Step:
    """A step of the classifier on random tokens [B, N]; on a GPU the step waits for its work."""
    import torch

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
        clip(weights, work.optimizer, loss.detach())  # this recipe clips by value, which reads no norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()

    return train


def _in_processes(device: str) -> bool:
    return device == "cpu" and sys.platform == "linux"


def memory_limit(device: str, memory_bytes: int) -> str:
    """The memory limit of a step in words; ``memory_bytes`` as in :class:`Limits`."""
    if not memory_bytes:
        return "the machine's memory"
    if device == "cpu" and not _in_processes(device):
        return "the machine's memory (no limit of ours applies: on a CPU it needs Linux)"
    return f"{memory_bytes / 1e9:g} GB"


def speed_unit(device: str) -> str:
    """The unit of speed: on a CPU under Linux, seconds are the CPU time of the step."""
    return f"steps per second{_clock(device)}"


def time_unit(device: str) -> str:
    """The unit of a step's time, by the same clock."""
    return f"milliseconds{_clock(device)} per step"


def _clock(device: str) -> str:
    return " of processor time" if _in_processes(device) else ""


def measure_all(
    models: Mapping[tuple[str, int], ClassifierConfig], work: Work, schedule: Schedule, limits: Limits
) -> list[Cell]:
    """Measure every model, given by row and length, in both parts.

    - On a CPU under Linux each round of a cell runs in its own process with one thread, forked from a process that
      holds only the libraries, and memory is limited.
    - On a GPU everything runs here, after one untimed step of every row in both parts; the allocator sets the limit.
    - Elsewhere memory is neither measured nor limited.
    """
    if _in_processes(work.device):
        groups = _in_bench_process(models, work, schedule, limits)
    elif work.device == "cpu":
        unlimited = replace(limits, memory_bytes=0)
        groups = _all_turns(models, work, schedule, lambda make, memory: _here(make, unlimited))
    else:
        _warm_up(models, work, limits)
        groups = _all_turns(models, work, schedule, lambda make, memory: _on_gpu(make, limits))
    lengths = sorted({length for _, length in models})
    weights = [length for length in lengths for _ in PARTS]
    return [cell for group in tracked(groups, "group", weights) for cell in group]


def _warm_up(models: Mapping[tuple[str, int], ClassifierConfig], work: Work, limits: Limits) -> None:
    # A process's first steps on a GPU load libraries and compile kernels for seconds, which would spoil the first row's
    # round and use up the group's time.
    for config, length in _shortest(models):
        for part in PARTS:
            try:
                step(config, length, part, work)()
            except Exception as error:
                if out_of_memory(error, limits) is None:  # the row's own round reports a lack of memory
                    raise


def _shortest(models: Mapping[tuple[str, int], ClassifierConfig]) -> list[tuple[ClassifierConfig, int]]:
    """The models at the shortest length, with that length."""
    shortest = min((length for _, length in models), default=0)
    return [(config, length) for (_, length), config in models.items() if length == shortest]


def _all_turns(
    models: Mapping[tuple[str, int], ClassifierConfig],
    work: Work,
    schedule: Schedule,
    one: Callable[[Callable[[], Step], bool], Round],
) -> Iterator[list[Cell]]:
    rows: dict[int, list[str]] = {}
    for row, length in models:
        rows.setdefault(length, []).append(row)
    return turns(rows, schedule, lambda row, n, part, memory: one(lambda: step(models[row, n], n, part, work), memory))


def _in_bench_process(*arguments: Any) -> Iterator[list[Cell]]:
    # A notebook's process has threads and sockets, which do not survive a fork, so a fresh process does the forking.
    with forked_steps.piped_process("spawn", _bench, *arguments) as (pipe, process):
        while True:
            try:
                outcome = pipe.recv()
            except EOFError:
                process.join()
                raise RuntimeError(f"the measuring process ended with status {process.exitcode}") from None
            if isinstance(outcome, str):
                raise RuntimeError(outcome)
            yield outcome


def _bench(pipe: Connection, models: Any, work: Work, schedule: Schedule, limits: Limits) -> None:
    import torch
    import torch._dynamo  # building an optimiser imports it, half a second and 100 MB: once here instead of per fork

    torch.set_num_threads(1)  # forked processes would lack the threads of this one
    try:
        with torch.no_grad():  # loads what is imported on first use; without gradients, which would start threads
            for config, length in _shortest(models):
                step(config, length, "inference", work)()
        _settle_memory()
        notebook = parent_process()

        def one(make: Callable[[], Step], memory: bool) -> Round:
            if notebook is None or not notebook.is_alive():
                raise RuntimeError("the process that asked for the measurement has ended")
            return measure(make, limits, memory)

        for group in _all_turns(models, work, schedule, one):
            pipe.send(group)
    except BaseException:
        pipe.send(traceback.format_exc())


def _settle_memory() -> None:
    # By default glibc returns freed memory to the system within a step and fetches it again page by page, which takes
    # up to a third of a step, depending on what was freed before. Here it keeps what it frees, as PyTorch's allocator
    # does on a GPU; only tensors above 32 MB still go back.
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page that holds an object
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc has it
        for option, value in ((_M_TRIM_THRESHOLD, 2**31 - 1), (_M_MMAP_THRESHOLD, 2**25)):
            library.mallopt(option, value)
        library.malloc_trim(0)  # a child could use freed memory beyond its limit


def _here(make: Callable[[], Step], limits: Limits) -> Round:
    try:
        seconds = timed(make(), limits)
    except Exception as error:
        if missed := out_of_memory(error, limits):
            return missed
        raise
    return limits.too_slow if seconds > limits.step_seconds else Round(seconds)


def _on_gpu(make: Callable[[], Step], limits: Limits) -> Round:
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    before, total = torch.cuda.memory_allocated(), torch.cuda.get_device_properties().total_memory
    if limits.memory_bytes:
        torch.cuda.set_per_process_memory_fraction(min((before + limits.memory_bytes) / total, 1.0))
    torch.cuda.reset_peak_memory_stats()
    try:
        found = _here(make, limits)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return found if found.missing else replace(found, peak_bytes=torch.cuda.max_memory_allocated() - before)
