"""A run that diverges stops with its weights unchanged and names what broke first, and where."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_cases import config

from transnormer_lib.data.speech import collated
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.transcriber import build_transcriber
from transnormer_lib.training import trainer
from transnormer_lib.training.divergence import locate, parts
from transnormer_lib.training.trainer import train


def _broken(monkeypatch: pytest.MonkeyPatch, damage: Callable[[LanguageModel], None]) -> None:
    build = trainer.build

    def damaged(*arguments: Any) -> LanguageModel:
        model = build(*arguments)
        with torch.no_grad():
            damage(model)
        return model

    monkeypatch.setattr(trainer, "build", damaged)


def _windows_of(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    init = trainer._Training.__init__

    def windowed(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self.window_length = length

    monkeypatch.setattr(trainer._Training, "__init__", windowed)


def _after(calls: int, act: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A hook that applies ``act`` to its input after the first ``calls`` calls."""
    seen = 0

    def hook(*arguments: Any) -> torch.Tensor:
        nonlocal seen
        seen += 1
        return act(arguments[-1]) if seen > calls else arguments[-1]

    return hook


BLOCKS = ["blocks.0.attention", "blocks.0.feed_forward", "blocks.1.attention", "blocks.1.feed_forward"]


@pytest.mark.parametrize("where", BLOCKS)
@pytest.mark.parametrize("task", ["causal", "masked"])
def test_an_overflow_is_named_by_the_block_it_began_in(where: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(model: LanguageModel) -> None:
        model.get_submodule(where).register_forward_hook(lambda _module, _inputs, output: output * 1e38 * 1e38)

    _broken(monkeypatch, overflow)
    record = train(config("vanilla", task, accumulate=2)).record
    assert record["status"] == "diverged"
    assert record["divergence"] == {"step": 0, "what": "activation", "layer": where}


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("where", BLOCKS)
def test_a_gradient_is_named_by_the_part_nearest_the_output(
    where: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poison(model: LanguageModel) -> None:
        # From the fourth step, the gradients of this part's input and of all parts before it are not finite.
        part = model.get_submodule(where)
        act = _after(3, lambda x: x * float("inf"))
        part.register_full_backward_pre_hook(lambda _module, grads: (act(grads[0]),))

    _broken(monkeypatch, poison)
    _windows_of(window, monkeypatch)
    record = train(config(steps=10)).record
    assert record["divergence"] == {"step": 3, "what": "gradient", "layer": where}
    assert record["steps"] == 4
    assert all(loss < 100 for loss in record["train_loss"])


@pytest.mark.parametrize("rule", ["adamw", "radam"])
@pytest.mark.parametrize("window", [1, 5])
def test_the_step_that_breaks_changes_no_weight(window: int, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = train(config(steps=3, optimizer=_constant(rule)))

    def poison(model: LanguageModel) -> None:
        model.blocks[1].feed_forward.register_forward_hook(_after(3, lambda x: x / 0.0))

    _broken(monkeypatch, poison)
    _windows_of(window, monkeypatch)
    diverged = train(config(steps=10, optimizer=_constant(rule), gradients="norms"))
    assert diverged.record["divergence"] == {"step": 3, "what": "activation", "layer": "blocks.1.feed_forward"}
    assert diverged.record["train_loss"][:3] == healthy.record["train_loss"]
    pairs = zip(diverged.model.parameters(), healthy.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert diverged.record["kept_step"] == 3
    assert diverged.gradients is not None
    assert len(diverged.gradients.norms) == 4
    assert diverged.gradients.mean_norm.isnan().all()


def _constant(rule: Any) -> Any:
    from transnormer_lib.training.config import OptimizerConfig

    return OptimizerConfig(learning_rate=1e-2, schedule="constant", rule=rule)


def test_validation_that_is_not_finite_is_a_divergence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_in_evaluation(model: LanguageModel) -> None:
        def hook(module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
            return output if module.training else output * float("nan")

        model.blocks[0].feed_forward.register_forward_hook(hook)

    _broken(monkeypatch, broken_in_evaluation)
    record = train(config(steps=6, evaluations=2)).record
    assert record["status"] == "diverged"
    assert record["divergence"] == {"step": 3, "what": "activation", "layer": "blocks.0.feed_forward"}
    assert record["kept_step"] == record["steps"] == 3


@pytest.mark.parametrize("seed", range(4))
def test_the_repeated_step_draws_the_same_dropout_as_the_step_that_diverged(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[str] = []

    def chance(where: str) -> Callable[..., torch.Tensor]:
        def hook(module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
            if module.training and torch.rand(()) < 0.1:
                fired.append(where)
                return output * float("inf")
            return output

        return hook

    def damage(model: LanguageModel) -> None:
        for where in BLOCKS:
            model.get_submodule(where).register_forward_hook(chance(where))

    _broken(monkeypatch, damage)
    divergence = train(config(steps=100, seed=seed)).record["divergence"]
    assert divergence["layer"] == fired[0]


def test_every_layer_of_a_list_is_a_part_also_without_children() -> None:
    model = build_transcriber(
        ModelConfig(kind="encoder", vocab_size=5, max_length=16, dim=8, heads=1, attention=("bilstm",) * 2, features=3),
        0,
    )
    assert [name for name, _ in parts(model)] == ["onward.0", "onward.1", "back.0", "back.1", "dropout", "head"]
    with torch.no_grad():
        model.onward[1].weight_hh_l0.fill_(float("nan"))
    batch = collated([(np.ones((8, 3), np.float32), np.array([1, 2]))])
    assert locate(model, [batch], torch.device("cpu")) == ("activation", "onward.1")
