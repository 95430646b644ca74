"""fp16 and its gradient scaler on a CPU, which torch supports although Accelerate does not."""

from typing import Any

import pytest
import torch
from training_cases import config

from transnormer_lib.training import trainer
from transnormer_lib.training.trainer import train


@pytest.fixture
def fp16_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the trainer an fp16 accelerator with an initial scale."""
    from accelerate.state import AcceleratorState

    build = trainer.build_accelerator

    def use(scale: float) -> None:
        def fp16(*arguments: Any) -> Any:
            accelerator = build("fp32", *arguments[1:])
            accelerator.state._mixed_precision = "fp16"
            accelerator.native_amp = True
            accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
            return accelerator

        monkeypatch.setattr(trainer, "build_accelerator", fp16)

    yield use
    AcceleratorState._reset_state()


def test_steps_that_the_scaler_skips_are_no_divergence(fp16_on_the_cpu: Any) -> None:
    plain = train(config(steps=12, gradients="norms"))
    fp16_on_the_cpu(2.0**24)
    trained = train(config(steps=12, gradients="norms"))
    assert trained.record["status"] == "finished"
    skipped = trained.record["skipped_steps"]
    assert 0 < skipped < 10
    assert trained.gradients is not None
    finite = trained.gradients.norms.isfinite().all(dim=1)
    assert (~finite).sum() == skipped
    # The first two steps are warm-up; the scale starts too high and falls.
    assert trained.gradients.counted == 12 - max(skipped, 2)
    assert trained.gradients.mean_norm.isfinite().all()
    assert trained.record["train_loss"][0] == pytest.approx(plain.record["train_loss"][0], rel=1e-3)


def test_gradients_are_measured_and_clipped_without_the_scale(fp16_on_the_cpu: Any) -> None:
    plain = train(config(steps=1, gradients="norms", dropout=0.0)).gradients
    fp16_on_the_cpu(2.0**10)
    scaled = train(config(steps=1, gradients="norms", dropout=0.0)).gradients
    assert plain is not None
    assert scaled is not None
    assert scaled.norms.norm().item() == pytest.approx(plain.norms.norm().item(), rel=1e-2)


def test_a_gradient_that_overflows_at_every_scale_is_a_divergence(
    fp16_on_the_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = trainer.build

    def poisoned(*arguments: Any) -> Any:
        model = build(*arguments)
        model.blocks[1].feed_forward.register_full_backward_pre_hook(lambda _m, grads: (grads[0] * float("inf"),))
        return model

    monkeypatch.setattr(trainer, "build", poisoned)
    fp16_on_the_cpu(2.0**4)
    record = train(config(steps=12)).record
    # 16, 8, 4, 2 and 1 are tried first.
    assert record["divergence"] == {"step": 5, "what": "gradient", "layer": "blocks.1.feed_forward"}


def test_a_loss_that_is_not_finite_is_a_divergence_at_any_scale(
    fp16_on_the_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = trainer.build

    def poisoned(*arguments: Any) -> Any:
        model = build(*arguments)
        model.blocks[0].attention.register_forward_hook(lambda _m, _i, output: output * float("inf"))
        return model

    monkeypatch.setattr(trainer, "build", poisoned)
    fp16_on_the_cpu(2.0**16)
    record = train(config(steps=12)).record
    assert record["divergence"] == {"step": 0, "what": "activation", "layer": "blocks.0.attention"}
