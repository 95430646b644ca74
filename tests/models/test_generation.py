"""Properties of the recurrent form of a decoder and of sampling from it."""

import io
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.models.architectures import architecture, names
from transnormer_lib.models.generation import Sampling, generate
from transnormer_lib.models.language_model import LanguageModel, build_model

V = 19


def decoder(name: str, **fields: Any) -> LanguageModel:
    config = architecture(
        name, kind="decoder", vocab_size=V, max_length=40, dim=16, heads=2, layers=2, block_size=5, **fields
    )
    return build_model(config, seed=1).double().eval()


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", names())
def test_recurrent_logits_are_the_parallel_ones_at_every_position(name: str, recipe: str) -> None:
    model, ids = decoder(name, recipe=recipe), tokens(3, 17)
    with torch.no_grad():
        parallel = model(ids)
        states = model.initial_state(3)
        for n in range(17):
            logits, states = model.step(ids[:, n], states)
            torch.testing.assert_close(logits, parallel[:, n], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("name", names())
@settings(max_examples=5, deadline=None)
@given(read=st.integers(1, 16))
def test_a_prompt_read_in_parallel_then_continued_is_the_whole(name: str, recipe: str, read: int) -> None:
    model, ids = decoder(name, recipe=recipe), tokens(2, 17)
    with torch.no_grad():
        parallel = model(ids)
        logits, states = model.prefill(ids[:, :read])
        torch.testing.assert_close(logits, parallel[:, read - 1], rtol=0, atol=1e-10)
        for n in range(read, 17):
            logits, states = model.step(ids[:, n], states)
    torch.testing.assert_close(logits, parallel[:, -1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_a_saved_and_restored_state_continues_bit_for_bit(name: str) -> None:
    model, ids = decoder(name), tokens(2, 12)
    with torch.no_grad():
        _, states = model.prefill(ids[:, :7])
        file = io.BytesIO()
        torch.save(states, file)
        for n in range(7, 12):
            undisturbed, states = model.step(ids[:, n], states)
        file.seek(0)
        states = torch.load(file, weights_only=True)
        for n in range(7, 12):
            restored, states = model.step(ids[:, n], states)
    assert torch.equal(undisturbed, restored)


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_greedy_continuations_are_the_parallel_models_choices_whatever_the_batch(name: str) -> None:
    model = decoder(name)
    prompts = [tokens(3, seed=1), tokens(9, seed=2), tokens(6, seed=3)]
    together = generate(model, prompts, 8, sampling=Sampling(temperature=0.0))
    for prompt, made in zip(prompts, together, strict=True):
        assert torch.equal(generate(model, [prompt], 8, sampling=Sampling(temperature=0.0))[0], made)
        whole = torch.cat([prompt, made])
        with torch.no_grad():
            choices = model(whole[None])[0].argmax(-1)
        assert torch.equal(choices[len(prompt) - 1 : -1], made)


def test_one_generator_seed_one_text_and_another_seed_another() -> None:
    model, prompt = decoder("transnormer-t2"), [tokens(4)]

    def draw(seed: int) -> list[int]:
        return generate(model, prompt, 20, generator=torch.Generator().manual_seed(seed))[0].tolist()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_stop_token_ends_its_sequence_and_no_other() -> None:
    model, prompts = decoder("linear"), [tokens(4, seed=1), tokens(6, seed=2)]
    free = [made.tolist() for made in generate(model, prompts, 12, generator=torch.Generator().manual_seed(0))]
    stop = free[0][5]
    stopped = generate(model, prompts, 12, stop={stop}, generator=torch.Generator().manual_seed(0))
    for before, after in zip(free, stopped, strict=True):
        expected = before[: before.index(stop) + 1] if stop in before else before
        assert after.tolist() == expected


logit_rows = st.lists(st.floats(-8, 8), min_size=V, max_size=V)


@settings(max_examples=60, deadline=None)
@given(row=logit_rows, top_k=st.integers(0, V + 2), top_p=st.floats(0.05, 1.0), temperature=st.floats(0.1, 4))
def test_filters_keep_the_likeliest_tokens_and_renormalise(
    row: list[float], top_k: int, top_p: float, temperature: float
) -> None:
    logits = torch.tensor([row], dtype=torch.float64)
    p = Sampling(temperature, top_k, top_p).probabilities(logits)[0]
    full = (logits[0] / temperature).softmax(-1)
    kept = p > 0
    assert p.sum().item() == pytest.approx(1.0)
    assert 1 <= int(kept.sum()) <= (top_k or V)
    if not bool(kept.all()):
        assert full[kept].min() >= full[~kept].max()
    torch.testing.assert_close(p[kept], full[kept] / full[kept].sum())
    candidates = full.sort(descending=True).values[: top_k or V]
    mass = (candidates / candidates.sum())[: int(kept.sum())]
    assert mass[:-1].sum() < top_p + 1e-12  # without the last one it would not have been enough
    if int(kept.sum()) < len(candidates):
        assert mass.sum() >= top_p - 1e-12


def test_drawn_tokens_follow_the_distribution() -> None:
    logits = torch.linspace(-2, 2, V).double()
    drawn = Sampling().draw(logits.expand(40_000, V), torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=V) / len(drawn)
    assert (share - logits.softmax(-1)).abs().max() < 0.01  # four standard deviations of the likeliest token


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0: must be a finite number"),
        ({"temperature": float("nan")}, "temperature=nan: must be a finite number"),
        ({"top_k": -2}, "top_k=-2: must be a whole number of at least 0"),
        ({"top_p": 0.0}, r"top_p=0.0: must be in \(0, 1\]"),
    ],
    ids=["negative", "nan", "top-k", "top-p"],
)
def test_a_bad_sampling_field_is_named_with_its_rule(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**fields)


@pytest.mark.parametrize(
    ("prompts", "new", "message"),
    [
        ([], 1, "prompts=\\[\\]"),
        ([torch.zeros(0, dtype=torch.long)], 1, r"prompts\[0\].shape=\(0,\)"),
        ([torch.tensor([V])], 1, r"prompts\[0\]: holds an id outside \[0, 19\)"),
        ([torch.zeros(39, dtype=torch.long)], 3, "max_new_tokens=3: with prompts"),
        ([torch.zeros(3, dtype=torch.long)], -1, "max_new_tokens=-1"),
    ],
    ids=["none", "empty", "vocabulary", "too-long", "negative"],
)
def test_bad_prompts_are_refused_with_the_rule(prompts: list[torch.Tensor], new: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(decoder("linear"), prompts, new)


def test_the_longest_continuation_that_fits_is_made_and_the_mode_is_restored() -> None:
    model = decoder("transnormer-t1").train()
    made = generate(model, [tokens(30)], 11)
    assert len(made[0]) == 11
    assert model.training


def test_an_encoder_does_not_run_as_a_recurrence() -> None:
    config = architecture("vanilla", kind="encoder", vocab_size=V, max_length=8, dim=16, heads=2, layers=2)
    with pytest.raises(ValueError, match="kind='encoder': only a decoder"):
        build_model(config, seed=0).prefill(tokens(1, 4))
