"""The step of fixed shapes gives the numbers of the parallel form, eagerly everywhere and replayed on a CUDA device."""

from typing import Any

import pytest
import torch

from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.graph import GraphStepper
from transnormer_lib.models.language_model import LanguageModel, build_model

V, N = 19, 23
ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EACH = pytest.mark.parametrize("recipe", ["paper", "released"])
NAMES = ["vanilla", "linear", "linear-unscaled", "norm-t1", "transnormer-t1", "transnormer-t2", "vanilla-linear"]


def decoder(name: str, **fields: Any) -> LanguageModel:
    config = architecture(
        name, kind="decoder", vocab_size=V, max_length=40, dim=32, heads=2, layers=2, block_size=5, **fields
    )
    return build_model(config, seed=1).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(0))


def steps(model: LanguageModel, ids: torch.Tensor, read: int) -> list[torch.Tensor]:
    stepper = GraphStepper(model, len(ids))
    logits, states = model.prefill(ids[:, :read])
    made = [logits]
    for n in range(read, ids.shape[1]):
        logits, states = stepper.step(ids[:, n], states)
        made.append(logits)
    return made


@EACH
@pytest.mark.parametrize("name", NAMES)
def test_steps_of_fixed_shape_are_the_parallel_logits(name: str, recipe: str) -> None:
    model, ids = decoder(name, recipe=recipe).double(), tokens(3, N)
    with torch.no_grad():
        parallel = model(ids)
    for n, logits in enumerate(steps(model, ids, 7), 6):
        torch.testing.assert_close(logits, parallel[:, n], rtol=0, atol=1e-10)


FIELDS = [
    {"arrangement": "parallel"},
    {"positions": "learned"},
    {"positions": "beside", "tied": False},
    {"norm_placement": "post"},
    {"segments": 2},
]


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: next(iter(fields)) + f" {next(iter(fields.values()))}")
def test_no_part_of_the_model_is_forgotten(fields: dict[str, Any]) -> None:
    model, ids = decoder("transnormer-t2", **fields).double(), tokens(3, N)
    with torch.no_grad():
        parallel = model(ids)
    for n, logits in enumerate(steps(model, ids, 7), 6):
        torch.testing.assert_close(logits, parallel[:, n], rtol=0, atol=1e-10)


@pytest.mark.gpu
@ON_A_GPU
@EACH
@pytest.mark.parametrize("name", NAMES)
def test_replays_are_the_parallel_logits(name: str, recipe: str) -> None:
    model, ids = decoder(name, recipe=recipe).cuda(), tokens(3, N).cuda()
    with torch.no_grad():
        exact = decoder(name, recipe=recipe).double()(ids.cpu())
        own = (model(ids).cpu().double() - exact).abs().max()
    error = max((x.cpu().double() - exact[:, n]).abs().max() for n, x in enumerate(steps(model, ids, 7), 6))
    assert error <= 4 * own + 1e-5 * exact.abs().max()


@pytest.mark.gpu
@ON_A_GPU
def test_a_step_is_one_launch() -> None:
    model = decoder("transnormer-t2").cuda()
    stepper, ids = GraphStepper(model, 2), tokens(2).cuda()
    _, states = stepper.step(ids, model.initial_state(2))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        stepper.step(ids, states)
    launches = [event.key for event in profiler.key_averages() if "cudaGraphLaunch" in event.key]
    assert launches == ["cudaGraphLaunch"]


@pytest.mark.gpu
@ON_A_GPU
def test_logits_outlive_the_next_step() -> None:
    model, ids = decoder("linear").cuda(), tokens(2, 4).cuda()
    made = steps(model, ids, 1)
    again = steps(model, ids[:, :3], 1)
    assert torch.equal(made[1], again[1])
    assert not torch.equal(made[1], made[2])


@pytest.mark.parametrize("name", ["longformer", "gau", "performer"])
def test_a_mechanism_without_a_step_of_fixed_shape_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"name='{name}': has no step of fixed shape, which a CUDA graph needs"):
        GraphStepper(decoder(name), 2)


def test_states_of_another_batch_or_mechanism_and_a_full_model_are_refused() -> None:
    model = decoder("linear")
    stepper = GraphStepper(model, 2)
    said = r"state\['kv'\] is torch.float32, \(3, 2, 16, 16\): must be torch.float32, \(2, 2, 16, 16\)"
    with pytest.raises(ValueError, match=said):
        stepper.step(tokens(2), model.initial_state(3))
    with pytest.raises(ValueError, match="holds 1 states, must hold one per layer, 2"):
        stepper.step(tokens(2), model.initial_state(2)[:1])
    with pytest.raises(ValueError, match="must hold kv, position, z"):
        stepper.step(tokens(2), decoder("vanilla").initial_state(2))
    with pytest.raises(ValueError, match=r"input_ids_B.shape=\(3,\): must be \(2,\)"):
        stepper.step(tokens(3), model.initial_state(2))
    _, states = model.prefill(tokens(2, 40))
    with pytest.raises(ValueError, match="length=41: exceeds the model's max_length=40"):
        stepper.step(tokens(2), states)
