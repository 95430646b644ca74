"""Rows take turns, a missing row stays missing, and only a training step changes the model."""

import sys
from typing import Any

import pytest
import torch

from transnormer_lib.analysis import arena_speed
from transnormer_lib.analysis.arena_speed import PARTS, Cell, Part, Schedule, Work, measure_all, step
from transnormer_lib.analysis.forked_steps import Limits, Round, Step
from transnormer_lib.analysis.tensor_memory import held_bytes, peak_bytes
from transnormer_lib.models.classifier import Classifier, count_classifier_parameters, with_head
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.progress import tracked
from transnormer_lib.training.config import OptimizerConfig

OPTIMIZER = OptimizerConfig(learning_rate=1e-2, clip_value=1.0)
ROWS = {8: ["a", "b", "c"], 16: ["a", "b", "c"], 32: ["a", "b", "c"]}
EVER = Schedule(rounds=3, group_seconds=1e9)


def tiny(length: int) -> Any:
    encoder = ModelConfig(
        kind="encoder", vocab_size=258, max_length=length, dim=8, heads=2, attention=("linear",), positions="learned"
    )
    return with_head(encoder, ClassifierHead(classes=2))


class Machine:
    """Answers rounds and records who asked; ``missing`` at (row, length, part)."""

    def __init__(self, missing: dict[tuple[str, int, Part], str] | None = None, seconds: float = 1.0) -> None:
        self.asked: list[tuple[str, int, Part]] = []
        self.missing, self.seconds, self.now = missing or {}, seconds, 0.0

    def __call__(self, row: str, length: int, part: Part, memory: bool) -> Round:
        self.asked.append((row, length, part))
        self.now += self.seconds
        why: Any = self.missing.get((row, length, part), "")
        return Round(missing=why, reason=f"no {why}") if why else Round(self.now, 7 if memory else None)


def cells_of(*arguments: Any, **options: Any) -> list[Cell]:
    return [cell for group in arena_speed.turns(*arguments, **options) for cell in group]


def test_every_row_has_a_turn_in_every_round_and_the_first_turn_moves_on() -> None:
    machine = Machine()
    cells = cells_of({8: ["a", "b", "c"]}, EVER, machine)
    inference = [row for row, _, part in machine.asked if part == "inference"]
    assert inference == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {(cell.row, len(cell.seconds), cell.peak_bytes) for cell in cells} == {(r, 3, 7) for r in "abc"}


def test_memory_is_measured_in_the_first_round_alone() -> None:
    asked: list[bool] = []
    cells_of({8: ["a", "b"]}, EVER, lambda row, n, part, memory: asked.append(memory) or Round(1.0))
    assert asked == [True, True, False, False, False, False] * 2


def test_values_of_one_round_have_the_same_position_in_every_row() -> None:
    cells = [cell for cell in cells_of({8: ["a", "b"]}, EVER, Machine()) if cell.part == "inference"]
    by_round = list(zip(*(cell.seconds for cell in cells), strict=True))
    assert [sorted(values) for values in by_round] == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("why", ["memory", "time"])
def test_a_row_that_misses_is_not_tried_at_longer_lengths_and_the_others_go_on(why: str) -> None:
    machine = Machine({("b", 16, "training"): why})
    cells = {(cell.row, cell.length, cell.part): cell for cell in cells_of(ROWS, EVER, machine)}
    assert ("b", 32, "training") not in machine.asked
    assert machine.asked.count(("b", 16, "training")) == 1
    assert cells["b", 16, "training"].missing == cells["b", 32, "training"].missing == why
    assert cells["b", 32, "training"].reason == f"not tried: already at 16 tokens no {why}"
    assert cells["b", 8, "training"].seconds
    assert cells["b", 32, "inference"].seconds
    assert cells["a", 32, "training"].seconds


def test_training_is_not_tried_where_inference_misses() -> None:
    machine = Machine({("a", 16, "inference"): "memory"})
    cells = {(cell.row, cell.length, cell.part): cell for cell in cells_of(ROWS, EVER, machine)}
    assert ("a", 16, "training") not in machine.asked
    assert cells["a", 16, "training"].reason == "not tried: already in inference at 16 tokens no memory"
    assert cells["a", 32, "training"].missing == "memory"


def test_a_row_without_a_value_in_one_round_has_none_at_all() -> None:
    found = iter([Round(1.0), Round(missing="memory", reason="then no more")])
    (cell, _) = cells_of({8: ["a"]}, EVER, lambda *_: next(found, Round(missing="time")))
    assert (cell.seconds, cell.missing) == ((), "memory")


def test_a_group_ends_when_its_time_is_up_unless_its_length_is_judged() -> None:
    machine = Machine()
    schedule = Schedule(rounds=5, group_seconds=7.0, judged=(16,))
    cells = cells_of(ROWS, schedule, machine, clock=lambda: machine.now)
    # A round of three rows takes 3, so a third round would end at 9.
    assert {(cell.length, len(cell.seconds)) for cell in cells} == {(8, 2), (16, 5), (32, 2)}


def test_the_first_round_always_runs() -> None:
    machine = Machine(seconds=50.0)
    cells = cells_of(ROWS, Schedule(rounds=5, group_seconds=0.0), machine, clock=lambda: machine.now)
    assert {len(cell.seconds) for cell in cells} == {1}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Classifier]:
    """The models that steps build."""
    made: list[Classifier] = []
    original = arena_speed.build_classifier

    def build(config: Any, seed: int) -> Classifier:
        made.append(original(config, seed))
        return made[-1]

    monkeypatch.setattr(arena_speed, "build_classifier", build)
    return made


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_step_moves_the_weights_and_an_inference_step_does_not(
    built: list[Classifier], precision: Any
) -> None:
    work = Work(2, OPTIMIZER, precision=precision)
    for part in arena_speed.PARTS:
        once = step(tiny(8), 8, part, work)
        before = [weight.detach().clone() for weight in built[-1].parameters()]
        once()
        moved = [not torch.equal(a, b) for a, b in zip(before, built[-1].parameters(), strict=True)]
        assert all(moved) if part == "training" else not any(moved)
        assert built[-1].training == (part == "training")
        assert all(weight.grad is None for weight in built[-1].parameters())


def test_a_step_reads_as_many_sequences_and_tokens_as_it_is_told(
    built: list[Classifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[torch.Size] = []
    monkeypatch.setattr(Classifier, "forward", lambda self, ids_BN, **_: shapes.append(ids_BN.shape))
    step(tiny(8), 8, "inference", Work(3, OPTIMIZER))()
    assert shapes == [(3, 8)]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are limited under Linux alone")
def test_every_model_is_measured_in_its_own_process_under_one_limit_and_every_group_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {("small", 8): tiny(8), ("small", 16): tiny(16), ("large", 8): tiny(8), ("large", 16): tiny(600_000)}
    limits = Limits(repeats=1, round_seconds=1e-3, long_step_seconds=60, step_seconds=60, memory_bytes=30_000_000)
    # A table of 600,000 positions of 8 numbers takes 19 MB; AdamW's state and the gradient take three times as much.
    lines: list[str] = []
    monkeypatch.setattr(
        arena_speed, "tracked", lambda groups, unit, weights: tracked(groups, unit, weights, lines.append)
    )
    found = measure_all(models, Work(1, OPTIMIZER), Schedule(2, group_seconds=60.0), limits)
    assert [line.partition(",")[0] for line in lines] == [f"group {number} of 4" for number in (1, 2, 3, 4)]
    missing = {(cell.row, cell.length, cell.part): cell.missing for cell in found}
    assert {key: why for key, why in missing.items() if why} == {("large", 16, "training"): "memory"}
    assert {len(cell.seconds) for cell in found if not cell.missing} == {2}
    assert all(0 < cell.peak_bytes < 30_000_000 for cell in found if cell.peak_bytes is not None)
    assert {cell.peak_bytes is None for cell in found if not cell.missing} == {False}


def peak_here(part: Part) -> int:
    """The peak of a step in this process, in which other tests have run."""
    before = held_bytes()
    once = step(tiny(64), 64, part, Work(2, OPTIMIZER))
    once()
    return held_bytes() - before + peak_bytes(once)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are limited under Linux alone")
def test_the_peak_is_the_same_in_a_fresh_process_and_in_one_that_freed_memory() -> None:
    freed = [torch.ones(2**14) for _ in range(2400)]  # 150 MB in pieces too small to go back to the system one by one
    del freed[:-1]  # the last keeps the heap from shrinking
    limits = Limits(repeats=1, round_seconds=1e-3, long_step_seconds=60, step_seconds=60)
    fresh = measure_all({("a", 64): tiny(64)}, Work(2, OPTIMIZER), Schedule(1, 0.0), limits)
    assert [cell.peak_bytes for cell in fresh] == [peak_here(part) for part in PARTS]
    weights = 4 * count_classifier_parameters(tiny(64))
    assert weights < peak_here("inference")
    assert 4 * weights < peak_here("training")  # with gradients and AdamW's two numbers


@pytest.mark.skipif(sys.platform != "linux", reason="processes are limited under Linux alone")
def test_an_error_in_a_model_reaches_the_caller() -> None:
    broken = {("long", 64): tiny(8)}
    limits = Limits(repeats=1, round_seconds=1e-3, long_step_seconds=60, step_seconds=60)
    with pytest.raises(RuntimeError, match="max_length"):
        measure_all(broken, Work(1, OPTIMIZER), Schedule(1, 0.0), limits)


class FakeGPU:
    """The part of ``torch.cuda`` in use: 1,000 bytes of memory, 100 of them allocated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, peak: int) -> None:
        self.fractions: list[float] = []
        properties = type("Properties", (), {"total_memory": 1000})
        for name, answer in {
            "empty_cache": None,
            "memory_allocated": 100,
            "get_device_properties": properties,
            "reset_peak_memory_stats": None,
            "max_memory_allocated": peak,
        }.items():
            monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self.fractions.append)


GPU_LIMITS = Limits(repeats=1, round_seconds=1e-3, long_step_seconds=60, step_seconds=60, memory_bytes=400)


def test_on_a_gpu_the_allocator_is_limited_for_the_round_and_its_peak_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGPU(monkeypatch, peak=350)
    found = arena_speed._on_gpu(lambda: lambda: None, GPU_LIMITS)
    assert (found.missing, found.peak_bytes) == ("", 250)
    assert gpu.fractions == [0.5, 1.0]


def test_on_a_gpu_running_out_of_memory_is_a_dash_and_the_limit_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    gpu = FakeGPU(monkeypatch, peak=0)
    assert arena_speed._on_gpu(lambda: exhaust, GPU_LIMITS).missing == "memory"
    assert gpu.fractions == [0.5, 1.0]


def test_on_a_gpu_any_other_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("illegal instruction")

    FakeGPU(monkeypatch, peak=0)
    with pytest.raises(RuntimeError, match="illegal instruction"):
        arena_speed._on_gpu(lambda: fail, GPU_LIMITS)


class Steps:
    """Replaces ``step``: records what runs, and fails where it is told."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, errors: dict[tuple[int, Part], Exception] | None = None
    ) -> None:
        self.ran: list[tuple[int, Part]] = []
        self.errors = errors or {}
        monkeypatch.setattr(arena_speed, "step", self)

    def __call__(self, config: Any, length: int, part: Part, work: Work) -> Step:
        def run() -> None:
            self.ran.append((length, part))
            if (length, part) in self.errors:
                raise self.errors[length, part]

        return run


TWO = {(row, length): tiny(length) for row in "ab" for length in (8, 16)}
ONCE = Limits(repeats=1, round_seconds=1e-9, long_step_seconds=1e-9, step_seconds=60, memory_bytes=400)


def test_on_a_gpu_every_row_and_part_first_runs_an_untimed_step_at_the_shortest_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeGPU(monkeypatch, peak=350)
    steps = Steps(monkeypatch)
    work = Work(1, OPTIMIZER, device="cuda")
    timed_rounds: list[int] = []
    monkeypatch.setattr(arena_speed, "timed", lambda step, limits: timed_rounds.append(len(steps.ran)) or 1.0)
    measure_all(TWO, work, Schedule(1, 0.0), ONCE)
    assert steps.ran == [(8, "inference"), (8, "training")] * 2
    assert timed_rounds == [4] * 8  # one round per row, length and part, all after the warm-up


def test_a_warm_up_that_runs_out_of_memory_is_reported_by_the_rows_own_round(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGPU(monkeypatch, peak=350)
    Steps(monkeypatch, {(8, "training"): torch.OutOfMemoryError("CUDA out of memory")})
    found = measure_all(TWO, Work(1, OPTIMIZER, device="cuda"), Schedule(1, 0.0), ONCE)
    assert {(cell.length, cell.part): cell.missing for cell in found if cell.missing} == {
        (8, "training"): "memory",
        (16, "training"): "memory",
    }


def test_without_a_memory_limit_the_reason_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    Steps(monkeypatch, {(16, "training"): RuntimeError("DefaultCPUAllocator: can't allocate memory")})
    found = measure_all(TWO, Work(1, OPTIMIZER), Schedule(1, 0.0), ONCE)
    missing = {(cell.length, cell.part, cell.missing, cell.reason) for cell in found if cell.missing}
    assert missing == {(16, "training", "memory", "out of memory")}


def test_without_forks_any_other_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    Steps(monkeypatch, {(16, "training"): ZeroDivisionError("of a step")})
    with pytest.raises(ZeroDivisionError, match="of a step"):
        measure_all(TWO, Work(1, OPTIMIZER), Schedule(1, 0.0), ONCE)


@pytest.mark.parametrize(
    ("platform", "device", "limit", "clock"),
    [
        ("linux", "cpu", "0.5 GB", " of processor time"),
        ("linux", "cuda", "0.5 GB", ""),
        ("win32", "cuda", "0.5 GB", ""),
        ("darwin", "cpu", "no limit of ours applies", ""),
    ],
)
def test_notes_name_the_limit_and_the_clock_that_apply(
    platform: str, device: str, limit: str, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert limit in arena_speed.memory_limit(device, 500_000_000)
    assert "0.5 GB" not in arena_speed.memory_limit(device, 0)
    assert arena_speed.speed_unit(device) == f"steps per second{clock}"
    assert arena_speed.time_unit(device) == f"milliseconds{clock} per step"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Work(0, OPTIMIZER), "batch=0: must be a whole number of at least 1"),
        (lambda: Work(1, OPTIMIZER, precision="fp8"), "precision='fp8': must be one of 'fp32', 'bf16'"),  # type: ignore[arg-type]
        (lambda: Schedule(0, 1.0), "rounds=0: must be a whole number of at least 1"),
        (lambda: Schedule(1, -1.0), "group_seconds=-1.0: must be a finite number and not negative"),
    ],
    ids=["batch", "precision", "rounds", "group_seconds"],
)
def test_work_and_schedule_refuse_what_they_cannot_use(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
