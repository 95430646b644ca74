"""Properties of training: micro-batches, precision, clipping, schedules, validation, trackers."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_cases import config

from transnormer_lib.attention.norms import LayerNorm, RMSNorm
from transnormer_lib.data.batches import IGNORE
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.masking import MaskingConfig
from transnormer_lib.training import trainer
from transnormer_lib.training.config import DataConfig, OptimizerConfig
from transnormer_lib.training.evaluation import evaluate, held_out_batches
from transnormer_lib.training.trainer import train


@pytest.mark.parametrize("task", ["causal", "masked"])
@pytest.mark.parametrize("name", ["vanilla", "transnormer-t2"])
def test_the_loss_curve_does_not_depend_on_the_number_of_micro_batches(name: str, task: str) -> None:
    curves = []
    for accumulate in (1, 2, 4):
        # A share of 0.11 of 32 tokens selects 3 or 4 per sequence, so that micro-batches count differently.
        masking = MaskingConfig(selected=0.11) if task == "masked" else MaskingConfig()
        data = DataConfig(task=task, length=32, batch_size=4, masking=masking)  # type: ignore[arg-type]
        run = config(name, task, dropout=0.0, data=data, accumulate=accumulate)
        record = train(run).record
        curves.append(record["train_loss"] + [record["validation"][-1]["nats_per_token"]])
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)
    assert curves[2] == pytest.approx(curves[0], rel=1e-5)
    assert curves[0] != curves[1]  # the batches were really split


def test_the_units_of_validation_agree() -> None:
    causal = train(config()).record["validation"][-1]
    assert causal["perplexity"] == pytest.approx(math.exp(causal["nats_per_token"]))
    assert causal["perplexity"] == pytest.approx(2 ** causal["bits_per_token"])
    assert causal["bits_per_byte"] == pytest.approx(causal["bits_per_token"])  # a token is a byte here
    assert "bits_per_byte" not in train(config("vanilla", "masked")).record["validation"][-1]


def test_validation_is_measured_evenly_and_at_the_waypoints() -> None:
    run = config(steps=10, evaluations=2, waypoints=(0, 2, 5))
    assert sorted(run.evaluated_after()) == [0, 2, 5, 10]
    measured = train(run).record["validation"]
    assert [v["step"] for v in measured] == [0, 2, 5, 10]
    assert measured[0] == train(config(steps=0)).record["validation"][0]
    assert measured[-1] == train(replace(run, evaluations=1, waypoints=())).record["validation"][-1]


def test_masking_shares_reach_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    backward = trainer._Training._backward

    def spy(self: Any, micro_batches: Any) -> Tensor:
        counted.append((micro_batches[0][0]["targets"] != IGNORE).float().mean().item())
        return backward(self, micro_batches)

    monkeypatch.setattr(trainer._Training, "_backward", spy)
    masking = MaskingConfig(selected=0.5)
    train(config("vanilla", "masked", data=DataConfig(task="masked", length=32, batch_size=4, masking=masking)))
    assert set(counted) == {0.5}


@pytest.mark.parametrize(
    ("option", "size"), [({"clip_norm": 0.01}, "norm"), ({"clip_value": 0.001}, "value")], ids=["norm", "value"]
)
def test_clipping_bounds_what_the_optimiser_sees(
    option: dict[str, float], size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, seen = trainer.clip, []

    def spy(parameters: list[nn.Parameter], *arguments: Any) -> None:
        clip(parameters, *arguments)
        whole = torch.cat([p.grad.flatten() for p in parameters])  # type: ignore[union-attr]
        seen.append(float(whole.norm() if size == "norm" else whole.abs().max()))

    monkeypatch.setattr(trainer, "clip", spy)
    train(config(optimizer=OptimizerConfig(learning_rate=1e-3, schedule="constant", **option)))  # type: ignore[arg-type]
    assert seen == pytest.approx([next(iter(option.values()))] * 8, rel=1e-3)


def test_each_step_has_the_rate_of_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    step = torch.optim.AdamW.step

    def spy(self: Any, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    train(config(steps=6, optimizer=OptimizerConfig(learning_rate=1.0, schedule="linear", warmup=2, warmup_start=0.5)))
    assert rates == pytest.approx([0.5, 0.75, 1.0, 0.75, 0.5, 0.25])


def test_each_step_has_the_momentum_of_its_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    betas = []
    step = torch.optim.AdamW.step

    def spy(self: Any, *arguments: Any) -> Any:
        betas.extend(self.param_groups[0]["betas"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    options = OptimizerConfig(schedule="onecycle", warmup=3, betas=(0.9, 0.999))
    train(config(steps=5, optimizer=options))
    assert betas == [0.9, 0.999] * 5
    betas.clear()
    train(config(steps=5, optimizer=replace(options, cycle_momentum=True)))
    assert betas[::2] == pytest.approx([0.95, 0.9, 0.85, 0.9, 0.95])
    assert betas[1::2] == [0.999] * 5


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_end_is_measured_in_the_precision_of_validation(precision: Any, keep: Any) -> None:
    record = train(config(precision=precision, keep=keep, measured_at_end=("validation",))).record
    assert record["at_end"]["validation"] == _without_step(record["validation"][-1])


def test_weight_decay_takes_a_share_of_the_weight_whatever_its_gradient() -> None:
    """Decoupled: with a gradient of zero, a step subtracts only rate · decay · weight."""
    from transnormer_lib.training.optimisation import build_optimizer

    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.1, weight_decay=0.5), layer)
    layer.weight.grad = torch.zeros_like(layer.weight)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5))


@pytest.mark.parametrize("task", ["causal", "masked"])
def test_an_evaluation_is_the_mean_over_the_counted_tokens_of_its_split(task: str) -> None:
    run = config("vanilla", task, data=DataConfig(task=task, length=32, batch_size=3))  # type: ignore[arg-type]
    model, corpus, cpu = train(run).model, load_text_corpus("wikipedia", "bytes"), torch.device("cpu")
    for split in ("validation", "test"):
        batches = list(held_out_batches(run, corpus, split, 7))
        ids, targets = (torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "targets"))
        assert len(ids) == 7
        with torch.no_grad():
            expected = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).item()
        measured = evaluate(model, run, corpus, cpu, split=split, windows=7)
        assert measured["nats_per_token"] == pytest.approx(expected, rel=1e-5)
    assert evaluate(model, run, corpus, cpu) == pytest.approx(_without_step(train(run).record["validation"][-1]))
    with pytest.raises(ValueError, match="split='exam': must be one of"):
        evaluate(model, run, corpus, cpu, split="exam")


def _without_step(result: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in result.items() if name != "step"}


@pytest.mark.parametrize("task", ["causal", "masked"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_bf16_computes_products_in_bf16_and_norms_and_losses_in_fp32(
    name: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    products: set[torch.dtype] = set()
    normalised: set[torch.dtype] = set()
    losses: set[torch.dtype] = set()
    layer_norm, rsqrt, cross_entropy = torch.ops.aten.native_layer_norm.default, torch.ops.aten.rsqrt, F.cross_entropy

    class Norms(torch.utils._python_dispatch.TorchDispatchMode):  # sees into autograd functions as well
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            if function == layer_norm or function.overloadpacket == rsqrt:
                normalised.add(arguments[0].dtype)
            return function(*arguments, **(options or {}))

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            result = function(*arguments, **(options or {}))
            if function is F.linear:
                products.add(result.dtype)
            elif function is cross_entropy:
                losses.add(result.dtype)
            return result

    with Norms(), Watch():
        trained = train(config(name, task, steps=2, precision="bf16"))
    assert products == {torch.bfloat16}
    assert normalised == {torch.float32}
    assert losses == {torch.float32}
    assert {p.dtype for p in trained.model.parameters()} == {torch.float32}
    full = train(config(name, task, steps=2)).record["train_loss"]
    assert trained.record["train_loss"] == pytest.approx(full, rel=0.02)
    assert trained.record["train_loss"] != full


@pytest.mark.parametrize("norm", [RMSNorm(16), RMSNorm(16, affine=True), LayerNorm(16), LayerNorm(16, affine=True)])
def test_a_norm_of_bf16_values_is_the_rounded_norm_of_the_same_values_in_fp32(norm: nn.Module) -> None:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x)
    assert torch.equal(y.bfloat16(), norm(x.float()).bfloat16())


def test_precisions_may_alternate_in_one_process() -> None:
    first = train(config(steps=2)).record["train_loss"]
    train(config(steps=2, precision="bf16"))
    assert train(config(steps=2)).record["train_loss"] == first


@pytest.mark.skipif(torch.accelerator.is_available(), reason="about machines without an accelerator")
def test_fp16_without_a_gpu_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"precision='fp16': needs a GPU"):
        train(config(precision="fp16"))


def test_a_tracker_receives_every_loss_and_every_validation() -> None:
    from accelerate.tracking import GeneralTracker

    class Memory(GeneralTracker):
        name = "memory"
        requires_logging_directory = False
        main_process_only = False

        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[int, dict[str, float]]] = []
            self.finished = False

        @property
        def tracker(self) -> Any:
            return self.told

        def store_init_configuration(self, values: Any) -> None: ...

        def log(self, values: dict[str, float], step: int | None = None, **_: Any) -> None:
            assert step is not None
            self.told.append((step, values))

        def finish(self) -> None:
            self.finished = True

    memory = Memory()
    record = train(config(steps=4), tracker=memory).record
    losses = [values["loss"] for _, values in memory.told if "loss" in values]
    assert losses == record["train_loss"]
    assert memory.told[-1] == (4, {f"validation/{k}": v for k, v in record["validation"][-1].items() if k != "step"})
    assert memory.finished


def test_a_tracker_without_its_package_or_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import tracking

    monkeypatch.setattr(tracking, "get_available_trackers", list)
    with pytest.raises(ValueError, match=re.escape("tracker='tensorboard': needs the package tensorboard")):
        train(config(), tracker="tensorboard")
    with pytest.raises(ValueError, match=re.escape("tracker='paper': must be one of")):
        train(config(), tracker="paper")
