"""Batches of labelled sequences."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data.classification_batches import ExampleBatches, Padding, evaluation_batches
from transnormer_lib.data.examples import Examples, from_groups, from_sequences

PAD = Padding(0)
seeds = st.integers(0, 2**40)
steps = st.integers(0, 10**6)
sizes = st.integers(1, 9)


@st.composite
def tasks(draw: st.DrawFn) -> Examples:
    """One to seven singles, pairs or groups; a token says whose it is, and the pad's id is a token too."""
    n, kind = draw(st.integers(1, 7)), draw(st.sampled_from(["single", "pair", "group"]))
    sizes = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)) if kind == "group" else [1 + (kind == "pair")] * n
    lengths = draw(st.lists(st.integers(1, 150), min_size=sum(sizes), max_size=sum(sizes)))
    sequences = [np.full(length, i) for i, length in enumerate(lengths)]
    if kind != "group":
        return from_sequences(sequences, range(n), 256)
    ends = np.cumsum(sizes).tolist()
    return from_groups([sequences[a - size : a] for a, size in zip(ends, sizes, strict=True)], np.arange(n), 256)


def rows(batch: dict[str, torch.Tensor]) -> list[tuple[int, list[list[int]]]]:
    """The label of every example of the batch and its sequences without padding."""
    ids, mask = batch["input_ids"], batch["key_padding_mask"]
    shape = (len(ids), -1, ids.shape[-1])
    return [
        (int(label), [s[~padding].tolist() for s, padding in zip(of, masks, strict=True) if not padding.all()])
        for label, of, masks in zip(batch["targets"], ids.reshape(shape), mask.reshape(shape), strict=True)
    ]


def expected(examples: Examples) -> list[tuple[int, list[list[int]]]]:
    return [
        (int(label), [examples.sequence(row).tolist() for row in examples.sequences_of(np.array([i])).tolist()])
        for i, label in enumerate(examples.labels)
    ]


@given(examples=tasks(), batch_size=sizes)
def test_evaluation_sees_every_example_once_and_whole(examples: Examples, batch_size: int) -> None:
    batches = list(evaluation_batches(examples, PAD, batch_size=batch_size))
    seen = [row for batch in batches for row in rows(batch)]
    assert sorted(seen) == sorted(expected(examples))
    assert all(len(batch["targets"]) == batch_size for batch in batches[:-1])


@given(examples=tasks(), batch_size=sizes, seed=seeds, step=steps, multiple=st.sampled_from([1, 8, 64]))
def test_shapes_types_and_padding(examples: Examples, batch_size: int, seed: int, step: int, multiple: int) -> None:
    batch = ExampleBatches(examples, Padding(77, multiple), batch_size, seed).batch(step)
    assert batch.keys() == {"input_ids", "key_padding_mask", "targets"}
    assert [values.dtype for values in batch.values()] == [torch.int64, torch.bool, torch.int64]
    ids, mask = batch["input_ids"], batch["key_padding_mask"]
    if examples.groups is None:
        assert ids.shape[:-1] == ((batch_size, 2) if examples.pairs else (batch_size,))
    else:
        assert ids.shape[:-1] == (batch_size, int((~mask).any(-1).sum(-1).max()))
    assert mask.shape == ids.shape
    longest = int((~mask).sum(-1).max())
    assert ids.shape[-1] % multiple == 0
    assert 0 <= ids.shape[-1] - longest < multiple
    assert (ids[mask] == 77).all()
    assert not (mask[..., :-1] & ~mask[..., 1:]).any()  # padding comes last


@given(examples=tasks())
def test_a_token_with_the_id_of_the_pad_is_no_padding(examples: Examples) -> None:
    (batch,) = evaluation_batches(examples, PAD, batch_size=100)  # the first sequence holds nothing but the id 0
    assert int((~batch["key_padding_mask"]).sum()) == examples.tokens.size


@given(examples=tasks(), batch_size=sizes, seed=seeds, epoch=st.integers(0, 1000))
def test_an_epoch_gives_every_example_once(examples: Examples, batch_size: int, seed: int, epoch: int) -> None:
    sampler = ExampleBatches(examples, PAD, batch_size, seed)
    n = len(examples)
    first = epoch * n  # the place of the epoch's first example among all that ever come
    start = first // batch_size
    seen = [row for step in range(start, (first + n) // batch_size + 1) for row in rows(sampler.batch(step))]
    within = seen[first - start * batch_size :][:n]
    assert sorted(within) == sorted(expected(examples))


@given(examples=tasks(), batch_size=sizes, seed=seeds, step=steps)
def test_a_batch_is_a_function_of_seed_and_step(examples: Examples, batch_size: int, seed: int, step: int) -> None:
    sampler = ExampleBatches(examples, PAD, batch_size, seed)
    first = sampler.batch(step)
    sampler.batch(step + 1)
    fresh = ExampleBatches(examples, PAD, batch_size, seed)
    for again in (sampler.batch(step), fresh.batch(step)):
        assert all(torch.equal(again[name], first[name]) for name in first)


def test_other_seeds_and_epochs_give_another_order() -> None:
    examples = from_sequences([np.array([i]) for i in range(50)], range(50), 256)
    orders = {
        tuple(ExampleBatches(examples, PAD, 50, seed).batch(epoch)["targets"].tolist())
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(orders) == 16


@given(n=st.integers(1, 60), limit=st.integers(1, 70))
def test_a_limit_takes_so_many_different_examples(n: int, limit: int) -> None:
    examples = from_sequences([np.array([i]) for i in range(n)], range(n), 256)
    batches = evaluation_batches(examples, PAD, batch_size=8, limit=limit)
    labels = [label for batch in batches for label in batch["targets"].tolist()]
    assert len(labels) == len(set(labels)) == min(n, limit)


@given(twins=st.integers(50, 200))
def test_half_of_a_task_of_twins_holds_both_labels(twins: int) -> None:
    examples = from_sequences([np.array([1])] * 2 * twins, [1, 0] * twins, 256)
    batches = evaluation_batches(examples, PAD, batch_size=64, limit=twins)
    positive = sum(int(batch["targets"].sum()) for batch in batches)
    assert 0.25 * twins < positive < 0.75 * twins


@given(examples=tasks(), batch_size=sizes)
def test_evaluation_begins_with_the_largest_batch(examples: Examples, batch_size: int) -> None:
    widths = [b["input_ids"].shape[-1] for b in evaluation_batches(examples, PAD, batch_size=batch_size)]
    assert widths == sorted(widths, reverse=True)


ONE = from_sequences([np.array([1, 2, 3])], [0], 256)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Padding(pad_id=-1), "pad_id=-1: must be a whole number of at least 0"),
        (lambda: Padding(pad_id=0, multiple=0), "multiple=0: must be a whole number of at least 1"),
        (lambda: ExampleBatches(ONE, PAD, 0, seed=0), "batch_size=0: must be a whole number of at least 1"),
        (lambda: ExampleBatches(ONE, PAD, 1, seed=-1), "seed=-1: must be a whole number of at least 0"),
        (lambda: ExampleBatches(ONE, PAD, 1, seed=0).batch(-1), "step=-1: must be a whole number of at least 0"),
        (lambda: evaluation_batches(ONE, PAD, batch_size=1, limit=0), "limit=0: must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_named_with_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
