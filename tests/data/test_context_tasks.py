"""The answers of recall and copying stand in the sequence, and a rule that reads only that finds them."""

import numpy as np
import pytest
import torch

from transnormer_lib.data.batches import IGNORE, DrawnBatches
from transnormer_lib.data.context_tasks import KEYS, SPLITS, VALUES, VOCAB_SIZE, ContextTask

RECALL, COPY = ContextTask("recall-4", 32), ContextTask("copy-6", 16)
DUPLICATE = ContextTask("duplicate-10", 128)


def looked_up(task: ContextTask, tokens: list[int]) -> list[int]:
    """The answers by a rule of a few lines, which knows the task but not the targets."""
    if task.name.startswith("copy"):
        return tokens[: task.count]
    if task.name.startswith("duplicate"):
        n = tokens.index(0)
        return [0, *tokens[:n]]
    values = dict(zip(tokens[0 : 2 * task.count : 2], tokens[1 : 2 * task.count : 2], strict=True))
    return [values[token] for token in tokens[2 * task.count :] if token in values]


@pytest.mark.parametrize(
    "task",
    [RECALL, COPY, DUPLICATE, ContextTask("recall-1", 3), ContextTask("copy-1", 2), ContextTask("duplicate-1", 8)],
    ids=str,
)
def test_every_answer_follows_from_the_sequence(task: ContextTask) -> None:
    batch = DrawnBatches(task, 64, seed=3).batch(5)
    assert batch["input_ids"].shape == batch["targets"].shape == (64, task.length)
    assert batch["input_ids"].dtype == batch["targets"].dtype == torch.int64
    assert int(batch["input_ids"].min()) >= 0
    assert int(batch["input_ids"].max()) < task.vocab_size <= VOCAB_SIZE
    for tokens, targets in zip(batch["input_ids"].tolist(), batch["targets"].tolist(), strict=True):
        assert [target for target in targets if target != IGNORE] == looked_up(task, tokens)


def test_recall_asks_for_every_key_once_after_all_pairs() -> None:
    batch = DrawnBatches(RECALL, 200, seed=0).batch(0)
    asked = batch["targets"] != IGNORE
    assert (asked.sum(1) == RECALL.count).all()
    assert not asked[:, : 2 * RECALL.count].any()
    for tokens, where in zip(batch["input_ids"], asked, strict=True):
        assert sorted(tokens[where].tolist()) == sorted(tokens[0 : 2 * RECALL.count : 2].tolist())


def test_recalls_places_keys_and_values_are_even() -> None:
    batch = DrawnBatches(RECALL, 8000, seed=1).batch(0)
    asked = batch["targets"] != IGNORE
    places = asked[:, 8:].sum(0).double() / 8000
    assert (places - 4 / 24).abs().max() < 5 * (4 / 24 / 8000) ** 0.5
    for symbols, count in ((batch["input_ids"][asked], KEYS), (batch["targets"][asked], VALUES)):
        shares = torch.bincount(symbols - symbols.min(), minlength=count).double() / symbols.numel()
        assert len(shares) == count
        assert (shares - 1 / count).abs().max() < 5 * (1 / count / symbols.numel()) ** 0.5


def test_copying_predicts_each_symbol_from_the_one_before_it() -> None:
    batch = DrawnBatches(COPY, 16, seed=2).batch(1)
    inputs, targets = batch["input_ids"], batch["targets"]
    answered = slice(COPY.count, 2 * COPY.count)
    assert torch.equal(targets[:, answered][:, :-1], inputs[:, answered][:, 1:])
    assert (targets[:, : COPY.count] == IGNORE).all()
    assert (targets[:, 2 * COPY.count :] == IGNORE).all()


def test_the_sequences_to_duplicate_are_those_of_the_release() -> None:
    """32 to 62 of 10 symbols, each as likely; the symbols again after the separator, then separators alone."""
    tokens, targets = DUPLICATE.draw(4000, np.random.default_rng(0)).values()
    n = (tokens == 0).int().argmax(1)
    assert (int(n.min()), int(n.max())) == (32, 62)
    shares = torch.bincount(n - 32, minlength=31).double() / 4000
    assert (shares - 1 / 31).abs().max() < 5 * (1 / 31 / 4000) ** 0.5
    assert (torch.bincount(tokens[tokens > 0]) / (tokens > 0).sum() - 0.1)[1:].abs().max() < 0.005
    for sequence, asked, count in zip(tokens[:50], targets[:50], n[:50].tolist(), strict=True):
        assert torch.equal(sequence[count + 1 : 2 * count + 1], sequence[:count])
        assert not sequence[2 * count + 1 :].any()
        where = (asked != IGNORE).nonzero().squeeze(1)
        assert where.tolist() == list(range(count - 1, 2 * count))
        assert torch.equal(asked[where], sequence[where + 1])


def test_batches_depend_on_seed_and_step_alone() -> None:
    one = DrawnBatches(RECALL, 8, seed=4)
    again = DrawnBatches(RECALL, 8, seed=4)
    assert torch.equal(one.batch(7)["input_ids"], again.batch(7)["input_ids"])
    assert not torch.equal(one.batch(7)["input_ids"], one.batch(8)["input_ids"])
    assert not torch.equal(one.batch(7)["input_ids"], DrawnBatches(RECALL, 8, seed=5).batch(7)["input_ids"])


def test_held_out_sequences_are_the_same_whatever_the_batch_and_differ_between_splits() -> None:
    whole = {split: torch.cat([b["input_ids"] for b in RECALL.held_out(split, 20, 20)]) for split in SPLITS}
    pieces = torch.cat([batch["input_ids"] for batch in RECALL.held_out("validation", 20, 7)])
    assert torch.equal(pieces, whole["validation"])
    assert not torch.equal(whole["validation"], whole["test"])
    with pytest.raises(ValueError, match="split='dev': must be one of"):
        RECALL.held_out("dev", 1, 1)


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("sort-4", 32, "task_name='sort': must be one of"),
        ("recall", 32, "task_name='recall': must be recall-COUNT with 1 to 32 pairs"),
        ("recall-0", 32, "task_name='recall-0': must be"),
        ("recall-33", 512, "task_name='recall-33': must be"),
        ("recall-x", 32, "task_name='recall-x': must be"),
        ("recall-4", 11, "length=11: recall-4 needs at least 12 tokens"),
        ("copy-6", 11, "length=11: copy-6 needs at least 12 tokens"),
        ("copy-6", 0, "length=0"),
        ("duplicate-0", 128, "task_name='duplicate-0': must be duplicate-COUNT with 1 to 255 symbols"),
        ("duplicate-10", 7, "length=7: duplicate-10 needs at least 8 tokens"),
    ],
)
def test_a_task_that_there_is_not_is_refused_by_name(name: str, length: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextTask(name, length)


def test_tasks_and_lengths_have_fingerprints_of_their_own() -> None:
    tasks = [RECALL, COPY, ContextTask("recall-4", 33), ContextTask("recall-5", 32)]
    assert len({task.fingerprint for task in tasks}) == len(tasks)
    assert ContextTask("recall-4", 32).fingerprint == RECALL.fingerprint


def test_chance_is_what_a_guess_among_the_possible_answers_gets() -> None:
    batch = DrawnBatches(RECALL, 4000, seed=0).batch(0)
    targets = batch["targets"][batch["targets"] != IGNORE].numpy()
    guesses = np.random.default_rng(0).choice(np.unique(targets), size=targets.size)
    assert abs((guesses == targets).mean() - RECALL.chance) < 5 * (RECALL.chance / targets.size) ** 0.5
