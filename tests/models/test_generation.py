"""Properties of the recurrent form of a decoder and of sampling from it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from transnormer_lib.models.architectures import architecture, names
from transnormer_lib.models.generation import Generation, continuation, continued, generate
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.models.stepper import Stepper

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


def test_a_step_gives_every_sequences_next_id_as_it_is_made() -> None:
    model, prompts = decoder("transnormer-t2"), [tokens(3, seed=1), tokens(6, seed=2)]
    rows = list(Generation(model, prompts, 5, sampling=Sampling(temperature=0.0)))
    whole = [made.tolist() for made in generate(model, prompts, 5, sampling=Sampling(temperature=0.0))]
    assert [row[0] for row in rows] == [*whole[0], None, None, None]
    assert [row[1] for row in rows] == [None, None, None, *whole[1]]


def test_the_first_step_is_there_before_the_second_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    generation = Generation(decoder("linear"), [tokens(3)], 5)
    monkeypatch.setattr(Stepper, "step", lambda *_: pytest.fail("the model stepped on"))
    assert isinstance(next(generation)[0], int)


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2"])
def test_the_parallel_form_makes_the_same_texts(name: str) -> None:
    model, prompts, seeds = decoder(name), [tokens(3, seed=1), tokens(6, seed=2)], (torch.Generator() for _ in "ab")
    recurrent, parallel = (
        generate(model, prompts, 12, generator=one.manual_seed(3), form=form)
        for form, one in zip(("recurrent", "parallel"), seeds, strict=True)
    )
    assert all(torch.equal(x, y) for x, y in zip(recurrent, parallel, strict=True))


def test_a_mechanism_without_a_recurrent_form_needs_the_parallel_one() -> None:
    model, prompts = decoder("reformer"), [tokens(3)]
    with pytest.raises(ValueError, match=r"form='recurrent': 'reformer' has no recurrent form; use form='parallel'"):
        generate(model, prompts, 2)
    assert len(generate(model, prompts, 5, form="parallel")[0]) == 5


def test_a_sequence_of_several_stop_tokens_ends_where_it_is_complete() -> None:
    model, prompts = decoder("transnormer-t2"), [tokens(4, seed=1), tokens(6, seed=2)]
    free = [made.tolist() for made in generate(model, prompts, 20, generator=torch.Generator().manual_seed(0))]
    stop = free[0][8:11]
    stopped = generate(model, prompts, 20, stop=[stop], generator=torch.Generator().manual_seed(0))
    for before, after in zip(free, stopped, strict=True):
        ends = [n + 3 for n in range(len(before) - 2) if before[n : n + 3] == stop]
        assert after.tolist() == before[: min(ends, default=None)]


def test_a_stop_in_the_prompt_ends_nothing() -> None:
    model, prompt = decoder("linear"), torch.tensor([5, 6])
    made = generate(model, [prompt], 12, sampling=Sampling(temperature=0.0))[0].tolist()
    assert generate(model, [prompt], 12, sampling=Sampling(temperature=0.0), stop=[[5, 6, made[0]]])[0].tolist() == made


@pytest.mark.parametrize("form", ["recurrent", "parallel"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2", "gau"])
@pytest.mark.parametrize("steps", [0, 1, 9])
def test_a_saved_generation_goes_on_with_the_same_numbers(name: str, form: str, steps: int, tmp_path: Path) -> None:
    model, prompts = decoder(name).float(), [tokens(3, seed=1), tokens(7, seed=2)]
    options = {"sampling": Sampling(0.9, 15, 0.97), "stop": [(1, 2), 3], "form": form}
    whole = Generation(model, prompts, 15, generator=torch.Generator().manual_seed(0), **options)
    stopped = Generation(model, prompts, 15, generator=torch.Generator().manual_seed(0), **options)
    for _ in range(steps):
        next(stopped)
    stopped.save(tmp_path / "state.safetensors")
    for _ in stopped:  # the file holds its own memory
        pass
    resumed = Generation.load(tmp_path / "state.safetensors", decoder(name).float())
    assert resumed.made == [made[: len(again)] for made, again in zip(stopped.made, resumed.made, strict=True)]
    rows, logits = list(whole), whole._logits_BV
    assert list(resumed) == rows[steps:]
    assert torch.equal(resumed._logits_BV, logits)
    assert resumed.made == whole.made


def test_a_saved_generation_belongs_to_its_model_and_its_weights(tmp_path: Path) -> None:
    model, path = decoder("linear"), tmp_path / "state.safetensors"
    Generation(model, [tokens(3)], 5).save(path)
    for other in (decoder("transnormer-t2"), decoder("linear", norm_placement="post"), decoder("linear").float()):
        with pytest.raises(ValueError, match="was saved with another model, or with other weights"):
            Generation.load(path, other)
    with torch.no_grad():
        model.embedding.weight[0, 0] += 1e-9
    with pytest.raises(ValueError, match="was saved with another model, or with other weights"):
        Generation.load(path, model)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", save({"x": torch.zeros(1)})])
def test_a_file_that_is_no_saved_generation_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no saved generation"):
        Generation.load(path, decoder("linear"))


def test_without_a_generator_torchs_own_seed_decides() -> None:
    model, prompt = decoder("linear"), [tokens(4)]
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(generate(model, prompt, 20)[0].tolist())
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("stop", [[()], [V], [(1, -1)]], ids=["empty", "outside", "negative"])
def test_a_bad_stop_is_refused_with_the_rule(stop: Any) -> None:
    with pytest.raises(ValueError, match=r"stop=.*: each must hold at least one id, all in \[0, 19\)"):
        generate(decoder("linear"), [tokens(3)], 2, stop=stop)


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
        assert full[kept].min() >= full[~kept].max() - 1e-12  # logits that differ by a rounding have equal shares
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


def test_a_text_longer_than_the_model_goes_on_from_its_end() -> None:
    model, prompts = decoder("linear"), list(tokens(2, 5))
    made = continued(model, prompts, 90, Sampling(temperature=0.0))
    assert [len(ids) for ids in made] == [90, 90]
    first = generate(model, prompts, 36, sampling=Sampling(temperature=0.0))
    assert all(torch.equal(ids[:36], start) for ids, start in zip(made, first, strict=True))
    second = generate(model, [ids[31:36] for ids in made], 36, sampling=Sampling(temperature=0.0))
    assert all(torch.equal(ids[36:72], next_) for ids, next_ in zip(made, second, strict=True))
    assert continued(model, prompts, 0)[0].tolist() == []


@pytest.mark.parametrize(
    ("lengths", "count", "message"),
    [
        ([3, 6], 2, r"prompts: have lengths \[3, 6\], must all have the same"),
        ([], 2, r"prompts=\[\]: needs at least one prompt"),
        ([3], -5, "tokens=-5: must be a whole number of at least 0"),
    ],
    ids=["lengths", "none", "count"],
)
def test_a_continuation_refuses_before_its_first_step(lengths: list[int], count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        continuation(decoder("linear"), [tokens(length) for length in lengths], count)


def test_numbers_of_numpy_and_prompts_in_one_tensor_are_read(tmp_path: Path) -> None:
    model, prompts = decoder("linear"), tokens(2, 5)
    plain = Generation(model, list(prompts), 8, stop=[3, [4, 5]], generator=torch.Generator().manual_seed(0))
    other = Generation(
        model, prompts, 8, stop=[np.int64(3), [np.int64(4), 5]], generator=torch.Generator().manual_seed(0)
    )
    other.save(tmp_path / "saved")
    assert list(other) == list(plain)
    assert other.stop == plain.stop == ((3,), (4, 5))


def test_a_prompt_that_holds_no_integers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompts\[0\].dtype=torch.float32: must be int64 or int32"):
        generate(decoder("linear"), [torch.zeros(3)], 2)


def test_a_generation_saved_on_another_kind_of_device_is_refused_in_one_line(tmp_path: Path) -> None:
    model, path = decoder("linear"), tmp_path / "saved"
    Generation(model, [tokens(5)], 8).save(path)
    content = path.read_bytes()
    changed = content.replace(b'"device":"cpu"', b'"device":"gpu"')
    assert changed != content
    path.write_bytes(changed)
    with pytest.raises(ValueError, match="was saved on 'gpu', whose random numbers 'cpu' does not make"):
        Generation.load(path, model)


def test_the_smallest_temperature_takes_the_likeliest_token() -> None:
    logits = torch.tensor([[1.0, 5.0, -3.0]])
    assert Sampling(temperature=1e-300).probabilities(logits).tolist() == [[0.0, 1.0, 0.0]]


def test_a_prompt_that_is_a_list_is_named() -> None:
    with pytest.raises(ValueError, match=r"prompts\[1\]: must be a tensor of token ids, not list"):
        generate(decoder("transnormer-t2"), [tokens(3), [1, 2]], 4)  # type: ignore[list-item]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.0)], ids=["drawn", "greedy"])
def test_a_model_whose_logits_are_no_numbers_writes_nothing(sampling: Sampling) -> None:
    model = decoder("transnormer-t2")
    with torch.no_grad():
        model.embedding.weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="its logits after 3 tokens are not finite"):
        generate(model, [tokens(3)], 4, sampling=sampling)
