"""A killed run resumes from its last checkpoint and ends bit-identical to an undisturbed one."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import Stop, config, same

from transnormer_lib.training import numbers, trainer
from transnormer_lib.training.checkpoints import Checkpoints
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.records import error_of
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.trainer import Trained, train


def _stopping_after(steps: int) -> Any:
    def progress(step: int, _loss: float) -> None:
        if step == steps:
            raise Stop

    return progress


def _stop_and_go_on(folder: Path, run: Any, at: int) -> Trained:
    with pytest.raises(Stop):
        train(run, _stopping_after(at), Checkpoints(folder, seconds=0.0))
    return train(run, None, Checkpoints(folder, seconds=0.0))


def test_the_caller_s_random_states_survive_a_resume(tmp_path: Path) -> None:
    import random

    import numpy as np

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    resumed = _stop_and_go_on(tmp_path, config(), 5)
    assert resumed.record["sessions"] == 2
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[:2]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_a_run_read_in_windows_resumes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init = trainer._Training.__init__

    def windowed(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self.window_length = 3

    plain = train(config(gradients="norms"))
    monkeypatch.setattr(trainer._Training, "__init__", windowed)
    assert same(train(config(gradients="norms")), plain)
    assert same(_stop_and_go_on(tmp_path, config(gradients="norms"), 7), plain)


def test_a_rate_that_was_halved_stays_so(tmp_path: Path) -> None:
    run = config("vanilla", dropout=0.0, steps=8, evaluations=8)
    run = replace(run, optimizer=replace(run.optimizer, schedule="plateau", learning_rate=1.0, warmup=0))
    plain = train(run)
    constant = train(replace(run, optimizer=replace(run.optimizer, schedule="constant")))
    losses = [error_of(one) for one in plain.record["validation"]]
    assert losses[:5] != sorted(losses[:5], reverse=True), "no rate was halved before the interruption"
    assert not same(plain, constant)
    assert same(_stop_and_go_on(tmp_path, run, 6), plain)


def test_an_interruption_when_a_checkpoint_is_due_writes_it_once(tmp_path: Path) -> None:
    def interrupt(step: int, _loss: float) -> None:
        if step == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(config(), interrupt, Checkpoints(tmp_path, seconds=0.0))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000004-of-1"]
    assert same(train(config(), None, Checkpoints(tmp_path, seconds=0.0)), train(config()))


def test_a_checkpoint_of_another_number_of_processes_is_reported_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stop):
        train(config(), _stopping_after(7), Checkpoints(tmp_path, seconds=0.0))
    (tmp_path / "step-0000000006-of-1").rename(tmp_path / "step-0000000006-of-4")
    capsys.readouterr()
    assert same(train(config(), None, Checkpoints(tmp_path, seconds=0.0)), train(config()))
    error = capsys.readouterr().err
    assert "step-0000000006-of-4: written after 6 steps with processes=4, which would go on from there" in error
    assert error.endswith("; processes=1 begins the run anew\n")
    assert error.count("\n") == 1
    assert (tmp_path / "step-0000000006-of-4" / "history.pt").exists()


def test_only_the_newest_checkpoint_is_kept_and_another_number_of_processes_starts_anew(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(config(), _stopping_after(7), Checkpoints(tmp_path, seconds=0.0))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000006-of-1"]
    assert Checkpoints(tmp_path).latest(processes=1) is not None
    assert Checkpoints(tmp_path).latest(processes=2) is None


def test_a_short_run_writes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "write", lambda *_: pytest.fail("wrote a checkpoint"))
    RunStore(tmp_path).get(config())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interruption_leaves_a_checkpoint_of_its_step(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(config())

    def interrupt(step: int, _loss: float) -> None:
        if step == 5:
            signal.raise_signal(number)

    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(number, ended)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(config(), interrupt, Checkpoints(tmp_path))
        assert signal.getsignal(number) is ended
    finally:
        signal.signal(number, previous)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000005-of-1"]
    resumed = train(config(), None, Checkpoints(tmp_path))
    assert resumed.record["sessions"] == 2
    assert same(resumed, plain)


def test_an_ignored_signal_does_not_interrupt_a_run(tmp_path: Path) -> None:
    def interrupt(step: int, _loss: float) -> None:
        if step == 5:
            signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert same(train(config(), interrupt, Checkpoints(tmp_path)), train(config()))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_of_other_arithmetic_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, *_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(trainer._Training, "result", stop)
        with pytest.raises(Stop):
            RunStore(tmp_path, checkpoint_seconds=0.0).get(config())
    assert (tmp_path / f".partial-{run_id(config())}" / "checkpoints").exists()
    with monkeypatch.context() as patched:
        patched.setattr(numbers, "TRAINING", numbers.TRAINING + 1)
        assert RunStore(tmp_path).get(config()).record["sessions"] == 1
    assert RunStore(tmp_path).get(config()).record["sessions"] == 2


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_an_invalid_checkpoint_interval_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSNORMER_CHECKPOINT_SECONDS", value)
    with pytest.raises(ValueError, match=f"TRANSNORMER_CHECKPOINT_SECONDS='{value}': must be a number"):
        RunStore()


def test_a_checkpoint_left_by_a_process_killed_at_the_very_end_is_removed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.get(config())
    left = tmp_path / f".partial-{run.path.name}" / "checkpoints" / "step-0000000008-of-1"
    left.mkdir(parents=True)
    assert store.get(config()) == run
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [run.path.name]
