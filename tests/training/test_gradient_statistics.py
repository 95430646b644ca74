"""Gradient statistics against their definitions, on gradients collected independently of the recorder."""

from typing import Any

import pytest
import torch
from torch import Tensor
from training_cases import config

from transnormer_lib.training import trainer
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.gradient_statistics import GradientRecorder
from transnormer_lib.training.trainer import train


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("clip", [{}, {"clip_norm": 1e-3}, {"clip_value": 1e-3}], ids=["free", "norm", "value"])
def test_statistics_cover_the_unclipped_gradients_after_the_warm_up(
    clip: dict[str, float], accumulate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OptimizerConfig(learning_rate=1e-3, schedule="constant", warmup=3, **clip)  # type: ignore[arg-type]
    seen: list[list[Tensor]] = []
    backward = trainer._Training._backward

    def spy(self: Any, micro_batches: Any) -> Tensor:
        loss = backward(self, micro_batches)
        seen.append([p.grad.clone().double() for p in self.local.parameters()])
        return loss

    monkeypatch.setattr(trainer._Training, "_backward", spy)
    trained = train(config(optimizer=options, gradients="norms", accumulate=accumulate))
    statistics = trained.gradients
    assert statistics is not None
    assert statistics.names == tuple(name for name, _ in trained.model.named_parameters())
    assert statistics.counted == 5
    norms = torch.tensor([[g.norm() for g in step] for step in seen])
    torch.testing.assert_close(statistics.norms, norms.float(), rtol=1e-5, atol=0)
    for index, name in enumerate(statistics.names):
        history = torch.stack([step[index] for step in seen[3:]]).flatten(1)
        mean, deviation = history.mean(0), history.std(0, correction=0)
        moving = history.abs().amax(0) > 0
        # A key's bias does not affect softmax weights: its exact gradient is 0, so only rounding would be compared.
        if history.abs().max() < 1e-6:
            continue
        close = {"rtol": 1e-3, "atol": 1e-7, "msg": lambda m, name=name: f"{name}: {m}"}
        torch.testing.assert_close(statistics.mean_norm[index].double(), mean.norm(), **close)
        torch.testing.assert_close(statistics.mean_square[index].double(), history.square().sum(1).mean(), **close)
        rsd = (deviation / mean.abs())[moving].median()
        torch.testing.assert_close(statistics.elementwise_rsd[index].double(), rsd, **close)


def test_recording_changes_no_bit_of_the_training() -> None:
    plain, recorded = train(config()), train(config(gradients="norms"))
    assert plain.record["train_loss"] == recorded.record["train_loss"]
    assert plain.gradients is None
    pairs = zip(plain.model.parameters(), recorded.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_gradient_that_never_changes_has_no_deviation_and_entries_without_gradient_do_not_count() -> None:
    model = torch.nn.Linear(2, 2, bias=False)
    recorder = GradientRecorder(model, warmup=0)
    for step in range(4):
        model.weight.grad = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        recorder.add(step, torch.tensor([5.0]))
    result = recorder.result(4, diverged=False)
    assert result.elementwise_rsd.tolist() == [0.0]
    assert result.mean_norm.tolist() == [5.0]
    assert result.mean_square.tolist() == [25.0]


def test_without_steps_after_the_warm_up_statistics_are_nan() -> None:
    recorder = GradientRecorder(torch.nn.Linear(2, 2, bias=False), warmup=3)
    for step in range(2):  # a run that diverged in its warm-up
        recorder.add(step, torch.tensor([5.0]))
    statistics = recorder.result(2, diverged=False)
    assert statistics.counted == 0
    assert statistics.norms.shape == (2, 1)
    for values in (statistics.mean_norm, statistics.mean_square, statistics.elementwise_rsd):
        assert values.isnan().all()
