"""Training and evaluation batches."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from transnormer_lib.data.batches import (
    IGNORE,
    MaskingConfig,
    Sampler,
    WindowBatches,
    evaluation_windows,
)
from transnormer_lib.data.vocabulary import ByteVocabulary

WORDS = ByteVocabulary()
MASKED = (WORDS, MaskingConfig())
# No byte occurs twice within 251 tokens, so a window of up to 251 says where it was taken.
TOKENS = (np.arange(5000) % 251).astype(np.int32)


def causal(length: int, batch_size: int, seed: int) -> Sampler:
    return WindowBatches(TOKENS, length, batch_size, seed)


def masked(length: int, batch_size: int, seed: int, **masking: float) -> Sampler:
    return WindowBatches(TOKENS, length, batch_size, seed, (WORDS, MaskingConfig(**masking)))


Make = Callable[[int, int, int], Sampler]
tasks = pytest.mark.parametrize("make", [causal, masked])
lengths = st.integers(1, 100)
sizes = st.integers(1, 8)
seeds = st.integers(0, 2**40)
steps = st.integers(0, 10**7)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@tasks
@given(length=lengths, batch_size=sizes, seed=seeds, step=steps)
def test_batches_are_int64_of_the_shape_asked_for(
    make: Make, length: int, batch_size: int, seed: int, step: int
) -> None:
    batch = make(length, batch_size, seed).batch(step)
    assert batch.keys() == {"input_ids", "targets"}
    for values in batch.values():
        assert values.dtype == torch.int64
        assert values.shape == (batch_size, length)


@tasks
@given(length=lengths, batch_size=sizes, seed=seeds, step=steps)
def test_a_batch_is_a_function_of_seed_and_step(make: Make, length: int, batch_size: int, seed: int, step: int) -> None:
    sampler = make(length, batch_size, seed)
    first = sampler.batch(step)
    sampler.batch(step + 1)
    assert equal(sampler.batch(step), first)
    assert equal(make(length, batch_size, seed).batch(step), first)


@tasks
def test_a_resumed_run_sees_what_an_undisturbed_one_sees(make: Make) -> None:
    undisturbed = make(32, 4, 7)
    whole = [undisturbed.batch(step) for step in range(20)]
    resumed = make(32, 4, 7)
    assert all(equal(resumed.batch(step), whole[step]) for step in range(11, 20))


@tasks
def test_other_seeds_and_steps_give_other_batches(make: Make) -> None:
    batches = [make(32, 4, seed).batch(step) for seed in range(4) for step in range(4)]
    assert len({batch["input_ids"].numpy().tobytes() for batch in batches}) == 16


@tasks
def test_sampling_leaves_the_global_random_states_alone(make: Make) -> None:
    torch_before, numpy_before = torch.get_rng_state(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    make(32, 4, 7).batch(0)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert pickle.dumps(np.random.get_state()) == numpy_before  # noqa: NPY002


@given(length=lengths, seed=seeds, step=steps)
def test_causal_targets_are_the_inputs_moved_by_one(length: int, seed: int, step: int) -> None:
    batch = causal(length, 3, seed).batch(step)
    assert torch.equal(batch["targets"][:, :-1], batch["input_ids"][:, 1:])
    assert torch.equal(batch["targets"], (batch["input_ids"] + 1) % 251)  # contiguous in TOKENS


@tasks
def test_every_window_of_the_text_can_come(make: Make) -> None:
    keep = None if make is causal else (WORDS, MaskingConfig(masked=0.0, random=0.0))
    sampler = WindowBatches(np.arange(12, dtype=np.int32), 4, 64, 0, keep)
    starts = torch.cat([sampler.batch(step)["input_ids"][:, 0] for step in range(8)])
    assert sorted(set(starts.tolist())) == list(range(8 if make is causal else 9))


@given(length=lengths, seed=seeds, step=steps)
def test_masked_targets_are_the_tokens_that_were_there(length: int, seed: int, step: int) -> None:
    # With contiguous tokens modulo 251, each row is fixed by the tokens that were left as they are.
    sampler = masked(length, 3, seed, masked=0.0, random=0.0)
    changing = masked(length, 3, seed)
    original, seen = sampler.batch(step), changing.batch(step)
    selected = seen["targets"] != IGNORE
    assert torch.equal(original["targets"], seen["targets"])
    assert torch.equal(original["input_ids"][selected], seen["targets"][selected])
    assert torch.equal(original["input_ids"][~selected], seen["input_ids"][~selected])


@given(length=lengths, seed=seeds, step=steps, share=st.floats(0.01, 1.0))
def test_every_sequence_has_the_share_of_targets_rounded(length: int, seed: int, step: int, share: float) -> None:
    sampler = masked(length, 4, seed, selected=share)
    selected = (sampler.batch(step)["targets"] != IGNORE).sum(dim=1)
    assert (selected >= 1).all()
    assert (selected - max(share * length, 1)).abs().max() <= 1


def within(count: int, total: int, share: float) -> bool:
    """Whether the count of a binomial lies within five standard deviations."""
    return abs(count - total * share) <= 5 * (total * share * (1 - share)) ** 0.5


def test_masking_follows_its_proportions() -> None:
    sampler = masked(100, 64, 0)
    batches = [sampler.batch(step) for step in range(40)]
    inputs = torch.cat([batch["input_ids"] for batch in batches])
    targets = torch.cat([batch["targets"] for batch in batches])
    selected = targets != IGNORE
    count = int(selected.sum())
    assert within(count, targets.numel(), 0.15)
    assert within(int((inputs[selected] == WORDS.mask_id).sum()), count, 0.8)
    # A random token is now and then the token that was there.
    assert within(int((inputs[selected] == targets[selected]).sum()), count, 0.1 + 0.1 / 256)
    assert not (inputs[~selected] == WORDS.mask_id).any()


def test_every_position_is_selected_equally_often() -> None:
    sampler = masked(40, 64, 0)
    selected = torch.cat([sampler.batch(step)["targets"] != IGNORE for step in range(100)])
    counts = selected.sum(dim=0)
    assert all(within(int(count), len(selected), 0.15) for count in counts)


def test_random_replacements_are_text_from_the_whole_vocabulary() -> None:
    sampler = masked(100, 64, 0, masked=0.0, random=1.0)
    batches = [sampler.batch(step) for step in range(5)]
    replaced = torch.cat([batch["input_ids"][batch["targets"] != IGNORE] for batch in batches])
    assert set(replaced.tolist()) == set(range(WORDS.text_size))


@given(total=st.integers(2, 300), length=st.integers(1, 50), batch_size=sizes)
def test_evaluation_counts_every_target_of_whole_windows_once(total: int, length: int, batch_size: int) -> None:
    tokens = np.arange(total, dtype=np.int32)
    if total <= length:
        with pytest.raises(ValueError, match="must have at least"):
            evaluation_windows(tokens, length=length, batch_size=batch_size)
        return
    batches = list(evaluation_windows(tokens, length=length, batch_size=batch_size))
    targets = torch.cat([batch["targets"] for batch in batches])
    windows = (total - 1) // length
    assert targets.flatten().tolist() == list(range(1, 1 + windows * length))
    assert torch.equal(torch.cat([batch["input_ids"] for batch in batches]), targets - 1)
    assert [len(batch["targets"]) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


@given(limit=st.integers(1, 60), batch_size=sizes)
def test_a_limit_takes_that_many_windows_from_all_over_the_text(limit: int, batch_size: int) -> None:
    tokens = np.arange(2001, dtype=np.int32)
    windows = torch.cat(
        [b["input_ids"] for b in evaluation_windows(tokens, length=50, batch_size=batch_size, limit=limit)]
    )
    starts = windows[:, 0]
    assert len(set(starts.tolist())) == min(limit, 40)
    assert (starts % 50 == 0).all()
    gaps = torch.diff(torch.cat([starts, torch.tensor([2000])]))
    assert gaps.max() - gaps.min() <= 50


@given(batch_size=sizes)
def test_masked_evaluation_does_not_depend_on_the_batch_size(batch_size: int) -> None:
    def whole(size: int) -> dict[str, torch.Tensor]:
        batches = list(evaluation_windows(TOKENS, length=64, batch_size=size, limit=11, masked=MASKED))
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}

    assert equal(whole(batch_size), whole(11))


def test_masked_evaluation_covers_the_text_with_visible_and_hidden_tokens() -> None:
    batches = list(evaluation_windows(TOKENS, length=64, batch_size=8, masked=MASKED))
    inputs = torch.cat([batch["input_ids"] for batch in batches]).flatten()
    targets = torch.cat([batch["targets"] for batch in batches]).flatten()
    expected = torch.from_numpy(TOKENS[: 5000 // 64 * 64].astype(np.int64))
    assert torch.equal(torch.where(targets == IGNORE, inputs, targets), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: causal(0, 1, 0), "length=0: must be a whole number of at least 1"),
        (lambda: causal(1, 0, 0), "batch_size=0: must be a whole number of at least 1"),
        (lambda: masked(1, 1, -1), "seed=-1: must be a whole number of at least 0"),
        (lambda: causal(1, 1, 0).batch(-1), "step=-1: must be a whole number of at least 0"),
        (lambda: causal(5000, 1, 0), "tokens: has 5000, must have at least 5001"),
        (lambda: masked(5001, 1, 0), "tokens: has 5000, must have at least 5001"),
        (lambda: evaluation_windows(TOKENS, length=0, batch_size=1), "length=0: must be a whole number of at least 1"),
        (
            lambda: evaluation_windows(TOKENS, length=1, batch_size=0),
            "batch_size=0: must be a whole number of at least 1",
        ),
        (
            lambda: evaluation_windows(TOKENS, length=1, batch_size=1, limit=0),
            "limit=0: must be a whole number of at least 1",
        ),
        (
            lambda: WindowBatches(TOKENS.astype(float), 1, 1, 0),
            "tokens: must be integers of shape [T], not float64 of shape [5000]",
        ),
        (lambda: MaskingConfig(selected=0.0), "selected=0.0: must be in (0, 1]"),
        (lambda: MaskingConfig(masked=1.5), "masked=1.5: must be in [0, 1]"),
        (lambda: MaskingConfig(random=0.3), "random=0.3: must be at most 1 - masked"),
    ],
)
def test_wrong_arguments_are_named_with_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@tasks
def test_varied_lengths_keep_the_number_of_tokens_and_take_every_length(make: Make) -> None:
    whole = make(16, 4, 3)
    varied = replace(whole, shortest=13)  # type: ignore[type-var]
    shapes = [tuple(varied.batch(step)["input_ids"].shape) for step in range(60)]
    assert {length for _, length in shapes} == {13, 14, 15, 16}
    assert all(abs(sequences * length - 64) <= length / 2 for sequences, length in shapes)


def test_a_shortest_length_above_the_longest_is_refused() -> None:
    with pytest.raises(ValueError, match="shortest=5: must be from 0 to length=4"):
        WindowBatches(TOKENS, 4, 1, 0, shortest=5)


STARTS = np.random.default_rng(5).random(TOKENS.size) < 0.4
WHOLE = MaskingConfig(whole_words=True)


def whole(length: int, batch_size: int, seed: int = 0, **masking: float) -> WindowBatches:
    return WindowBatches(TOKENS, length, batch_size, seed, (WORDS, replace(WHOLE, **masking)), word_starts=STARTS)


def words_of(sampler: WindowBatches, step: int = 0) -> list[list[NDArray[np.int64]]]:
    """The places of every word of every sequence of a batch: found by the loop that the library does without."""
    rng = np.random.default_rng([sampler.seed, step])
    starts = rng.integers(TOKENS.size - sampler.length + 1, size=sampler.batch_size)
    found = []
    for start in starts.tolist():
        begins = [0, *(at for at in range(1, sampler.length) if STARTS[start + at])]
        found.append([np.arange(a, b) for a, b in zip(begins, [*begins[1:], sampler.length], strict=True)])
    return found


@given(seed=st.integers(0, 1000), length=st.integers(1, 40))
def test_a_word_is_selected_whole_or_not_at_all(seed: int, length: int) -> None:
    sampler = whole(length, 8, seed)
    selected = (sampler.batch(0)["targets"] != IGNORE).numpy()
    for row, words in zip(selected, words_of(sampler), strict=True):
        assert {len(set(row[word])) for word in words} == {1}
        assert row.any()


def test_the_share_of_the_words_is_selected_and_so_is_that_of_the_tokens() -> None:
    sampler = whole(64, 512)
    selected = (sampler.batch(0)["targets"] != IGNORE).numpy()
    words = words_of(sampler)
    chosen = [sum(row[word[0]] for word in of) for row, of in zip(selected, words, strict=True)]
    for count, of in zip(chosen, words, strict=True):  # the share, rounded up or down at random
        assert int(0.15 * len(of)) <= count <= int(0.15 * len(of)) + 1 or count == 1
    assert sum(chosen) / sum(map(len, words)) == pytest.approx(0.15, abs=0.005)
    assert selected.mean() == pytest.approx(0.15, abs=0.01)


def test_a_word_has_one_fate_and_the_shares_are_80_10_10() -> None:
    sampler = whole(64, 2048)
    batch = sampler.batch(0)
    seen, right = batch["input_ids"].numpy(), batch["targets"].numpy()
    fates: list[str] = []
    for s, r, words in zip(seen, right, words_of(sampler), strict=True):
        for word in words:
            if r[word[0]] != IGNORE:
                masks = s[word] == WORDS.mask_id
                assert masks.all() or not masks.any()
                fates.append("mask" if masks[0] else "kept" if (s[word] == r[word]).all() else "random")
    shares = {fate: fates.count(fate) / len(fates) for fate in set(fates)}
    assert shares == pytest.approx({"mask": 0.8, "kept": 0.1, "random": 0.1}, abs=0.012)


def test_words_of_one_token_are_masked_as_tokens_are() -> None:
    every = np.ones(TOKENS.size, np.bool_)
    words = WindowBatches(TOKENS, 32, 16, 3, (WORDS, WHOLE), word_starts=every).batch(7)
    tokens = WindowBatches(TOKENS, 32, 16, 3, MASKED).batch(7)
    assert all((words[name] == tokens[name]).all() for name in tokens)


@pytest.mark.parametrize("starts", [None, STARTS[:-1]], ids=["none", "too-few"])
def test_whole_words_need_to_know_where_words_begin(starts: NDArray[np.bool_] | None) -> None:
    with pytest.raises(ValueError, match="whole_words=True: needs word_starts, one for each token"):
        WindowBatches(TOKENS, 8, 2, 0, (WORDS, WHOLE), word_starts=starts)
    with pytest.raises(ValueError, match="whole_words=True: needs word_starts, one for each token"):
        evaluation_windows(TOKENS, length=8, batch_size=2, masked=(WORDS, WHOLE), word_starts=starts)
