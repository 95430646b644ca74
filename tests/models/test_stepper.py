"""A prepared step gives the numbers of the model's own step and of the parallel form, for whatever decodes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from mechanism_cases import SMALL

from transnormer_lib.attention import config_class, is_recurrent, names
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.architectures import names as architectures
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.stepper import Stepper

V, N = 19, 21
RECURRENT = [name for name in names() if is_recurrent(name) and not config_class(name).causal_refusal]
SIZES = {"vocab_size": V, "max_length": 40, "dim": 16, "heads": 2, "layers": 2}


def decoder(name: str, dtype: torch.dtype = torch.float64, **fields: Any) -> LanguageModel:
    config = architecture(name, kind="decoder", block_size=5, **SIZES, **fields)
    if name in SMALL:
        config = replace(config, attention_options={name: SMALL[name]})
    model = build_model(config, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():  # biases off their zeros and gains off their ones
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model.to(dtype).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(0))


def assert_steps_are_the_parallel_logits(model: LanguageModel, read: int = 4) -> None:
    ids, stepper = tokens(3, N), Stepper(model)
    with torch.no_grad():
        parallel = model(ids)
    logits, states = model.prefill(ids[:, :read])
    for n in range(read, N):
        logits, states = stepper.step(ids[:, n], states)
        torch.testing.assert_close(logits, parallel[:, n], rtol=0, atol=1e-10)


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", architectures())
def test_steps_of_every_architecture_are_the_parallel_logits(name: str, recipe: str) -> None:
    assert_steps_are_the_parallel_logits(decoder(name, recipe=recipe))


@pytest.mark.parametrize("name", RECURRENT)
def test_steps_of_every_recurrent_mechanism_are_the_parallel_logits(name: str) -> None:
    assert_steps_are_the_parallel_logits(decoder(name))


@pytest.mark.parametrize(
    "fields",
    [
        {"arrangement": "parallel"},
        {"norm_placement": "post"},
        {"norm": "layer"},
        {"norm": "scale"},
        {"feed_forward": "ffn", "activation": "gelu"},
        {"positions": "learned"},
        {"tied": False, "output_bias": True},
        {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3},
    ],
    ids=lambda fields: ", ".join(f"{key}={value}" for key, value in fields.items()),
)
def test_no_field_of_the_model_is_forgotten(fields: dict[str, Any]) -> None:
    assert_steps_are_the_parallel_logits(decoder("transnormer-t2", **fields))


@pytest.mark.parametrize("name", ["diag/linear-normed", "diag/norm-per-head", "linear-normed-per-head/norm"])
def test_a_norm_after_the_output_is_part_of_the_step(name: str) -> None:
    assert_steps_are_the_parallel_logits(decoder(name))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2"])
def test_half_precision_steps_are_the_models_own(name: str, dtype: torch.dtype) -> None:
    model, ids = decoder(name, dtype), tokens(2, 12)
    stepper, own, prepared = Stepper(model), model.initial_state(2), model.initial_state(2)
    exact = decoder(name)(ids)
    for n in range(12):
        expected, own = model.step(ids[:, n], own)
        logits, prepared = stepper.step(ids[:, n], prepared)
        assert logits.dtype == dtype
        error, budget = ((x.double() - exact[:, n]).abs().max() for x in (logits, expected))
        assert error <= 2 * budget + torch.finfo(dtype).eps * exact.abs().max()


def test_states_go_from_the_models_step_to_the_prepared_one_and_back() -> None:
    model, ids = decoder("transnormer-t2"), tokens(2, N)
    stepper, states = Stepper(model), model.initial_state(2)
    with torch.no_grad():
        parallel = model(ids)
    for n in range(N):
        logits, states = (stepper if n % 3 else model).step(ids[:, n], states)
        torch.testing.assert_close(logits, parallel[:, n], rtol=0, atol=1e-10)


def test_the_weights_are_those_of_the_moment_it_was_made() -> None:
    model, ids = decoder("linear"), tokens(1)
    before = Stepper(model)
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter *= 1.5
    old, _ = before.step(ids, model.initial_state(1))
    new, _ = Stepper(model).step(ids, model.initial_state(1))
    own, _ = model.step(ids, model.initial_state(1))
    torch.testing.assert_close(new, own)
    assert not torch.allclose(old, own)


def test_no_gradient_is_recorded() -> None:
    model = decoder("transnormer-t1")
    logits, states = Stepper(model).step(tokens(2), model.initial_state(2))
    assert not logits.requires_grad
    assert not any(x.requires_grad for state in states for x in state.values())


@pytest.mark.parametrize(
    ("ids", "states", "message"),
    [
        (tokens(2), decoder("linear").initial_state(3), r"state\['kv'\].shape=\(3, 2, 8, 8\): must be \(2, 2, 8, 8\)"),
        (tokens(2), decoder("linear").initial_state(2)[:1], "states: holds 1 states, must hold one per layer, 2"),
        (tokens(2), decoder("vanilla").initial_state(2), r"state=\['keys', 'position', 'values'\]: must hold kv"),
        (tokens(2, 1), decoder("linear").initial_state(2), r"input_ids_B.shape=\(2, 1\): must be \[B\]"),
        (tokens(0), decoder("linear").initial_state(2), r"input_ids_B.shape=\(0,\): must be \[B\]"),
        (
            tokens(2),
            decoder("linear", torch.float32).initial_state(2),
            "is torch.float32 on cpu: must be torch.float64",
        ),
    ],
    ids=["batch", "layers", "mechanism", "two-dimensions", "no-sequence", "dtype"],
)
def test_states_that_do_not_fit_are_refused(ids: torch.Tensor, states: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stepper(decoder("linear")).step(ids, states)


def test_another_batch_is_refused_after_steps_too() -> None:
    model = decoder("linear")
    stepper = Stepper(model)
    _, states = stepper.step(tokens(2), model.initial_state(2))
    with pytest.raises(ValueError, match=r"state\['kv'\].shape=\(2, 2, 8, 8\): must be \(3, 2, 8, 8\)"):
        stepper.step(tokens(3), states)


def test_a_model_in_training_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model.training=True: call model.eval\(\) first"):
        Stepper(decoder("linear").train())


def test_a_model_without_a_recurrent_form_is_refused() -> None:
    with pytest.raises(ValueError, match="name='reformer': has no recurrent form"):
        Stepper(decoder("reformer"))


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2", "gau"])
def test_states_that_were_changed_between_two_steps_are_read_again(name: str) -> None:
    model, ids, order = decoder(name), tokens(3, N), torch.tensor([2, 0, 1])
    stepper = Stepper(model)
    _, states = model.prefill(ids[:, :4])
    _, states = stepper.step(ids[:, 4], states)
    for state in states:
        state |= {key: x[order] for key, x in state.items() if x.ndim}
    with torch.no_grad():
        parallel = model(ids[order])
    logits, _ = stepper.step(ids[order, 5], states)
    torch.testing.assert_close(logits, parallel[:, 5], rtol=0, atol=1e-10)
