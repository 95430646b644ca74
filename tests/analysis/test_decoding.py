"""The state of a decoder between two tokens, and that decoding gives the logits of the parallel form."""

import pytest
import torch

from transnormer_lib.analysis import decoding
from transnormer_lib.analysis.decoding import StepCost, recurrent_difference, state_numbers, step_costs
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.progress import tracked

POSITIONS = [1, 8, 40]


def decoder(name: str, *, max_length: int = 48, **fields: object) -> LanguageModel:
    config = architecture(
        name, kind="decoder", vocab_size=11, max_length=max_length, dim=8, heads=2, layers=2, block_size=4, **fields
    )
    return build_model(config, seed=0)


def held(name: str, positions: list[int] = POSITIONS, batch: int = 1) -> list[int]:
    costs = step_costs({name: decoder(name)}, positions, batch=batch, steps=1, rounds=1)
    return [cost.state_numbers for cost in costs]


@pytest.mark.parametrize(
    "name", ["linear", "linear-unscaled", "norm-t1", "norm-t2", "transnormer-t1", "transnormer-t2"]
)
def test_the_state_of_linear_and_diagonal_attention_is_constant(name: str) -> None:
    assert len(set(held(name))) == 1


def test_measuring_says_which_position_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(decoding, "tracked", lambda items, unit: tracked(items, unit, told=lines.append))
    held("linear")
    assert [line.partition(",")[0] for line in lines] == [f"position {number} of 3" for number in (1, 2, 3)]


@pytest.mark.parametrize("name", ["vanilla", "vanilla-linear"])
def test_the_state_of_softmax_attention_grows(name: str) -> None:
    first, _, last = held(name)
    assert last > first


def test_the_state_counts_every_number_of_every_layer_once_per_sequence() -> None:
    # NormAttention holds a matrix D × D per head, DiagAttention the keys and values of one block: D = 4, block 4.
    norm, diag = 2 * 4 * 4, 2 * 2 * 4 * 4
    assert held("norm-t2", batch=3) == [2 * norm] * 3
    assert held("transnormer-t2", batch=3) == [diag + norm] * 3


def test_positions_do_not_count_as_state() -> None:
    model = decoder("norm-t2")
    states = model.initial_state(batch=1)
    assert state_numbers(states, batch=1) == sum(t.numel() for s in states for k, t in s.items() if k != "position")


def test_every_model_is_measured_at_every_position_in_every_round() -> None:
    models = {name: decoder(name) for name in ("linear", "vanilla")}
    costs = step_costs(models, POSITIONS, steps=2, rounds=3)
    assert [(c.model, c.position) for c in costs] == [(name, at) for at in POSITIONS for name in models]
    assert all(len(c.seconds) == 3 and min(c.seconds) > 0 for c in costs)


def test_the_median_is_over_the_rounds() -> None:
    assert StepCost("linear", 1, (5.0, 1.0, 2.0), 0).median == 2.0


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([0], r"positions=\[0\]: must be between 1 and 41 for 'linear'"),
        ([8, 42], r"positions=\[8, 42\]: must be between 1 and 41"),
        ([], r"positions=\[\]: needs at least one"),
    ],
    ids=["before-the-first-token", "no-room-for-the-steps", "none"],
)
def test_positions_that_cannot_be_measured_are_refused(positions: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step_costs({"linear": decoder("linear")}, positions, steps=2, rounds=3)


def test_the_last_position_with_room_is_measured() -> None:
    assert len(step_costs({"linear": decoder("linear")}, [41], steps=2, rounds=3)) == 1


@pytest.mark.parametrize("name", ["batch", "steps", "rounds"])
def test_numbers_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0: must be a whole number of at least 1"):
        step_costs({"linear": decoder("linear")}, [1], **{name: 0})


def test_no_models_are_refused() -> None:
    with pytest.raises(ValueError, match=r"models=\[\].*needs at least one"):
        step_costs({}, [1])


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_decoding_gives_the_parallel_logits(name: str, recipe: str) -> None:
    ids = torch.randint(11, (2, 13), generator=torch.Generator().manual_seed(1))
    assert recurrent_difference(decoder(name, recipe=recipe), ids) < 1e-10


def test_a_recurrence_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = LanguageModel.step

    def forgetful(self: LanguageModel, ids: torch.Tensor, states: list) -> tuple:
        halved = [{k: t * 0.5 if t.is_floating_point() else t for k, t in state.items()} for state in states]
        return step(self, ids, halved)

    monkeypatch.setattr(LanguageModel, "step", forgetful)
    ids = torch.randint(11, (1, 13), generator=torch.Generator().manual_seed(1))
    assert recurrent_difference(decoder("linear-unscaled"), ids) > 1e-6


def test_the_comparison_does_not_change_the_model() -> None:
    model = decoder("transnormer-t1").train()
    recurrent_difference(model, torch.zeros(1, 4, dtype=torch.long))
    assert model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ids_BN.shape=\(1, 1\): must be \[B, N\] with N at least 2"):
        recurrent_difference(decoder("linear"), torch.zeros(1, 1, dtype=torch.long))
