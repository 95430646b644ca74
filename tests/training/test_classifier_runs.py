"""Classifiers train like language models: any micro-batches, bit-identical resuming; scores measure them."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from training_cases import Stop, classifier, config, fake_task, same

from transnormer_lib.data import examples
from transnormer_lib.strict import from_plain
from transnormer_lib.training import trainer
from transnormer_lib.training.checkpoints import Checkpoints
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig, steps_of
from transnormer_lib.training.evaluation import evaluate, labelled_batches
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.metrics import scores
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.trainer import train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_task(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True], ids=["one", "pairs"])
@pytest.mark.parametrize("name", ["vanilla", "transnormer-t2"])
def test_the_loss_curve_of_a_classifier_does_not_depend_on_the_number_of_micro_batches(
    name: str, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_task(monkeypatch, pairs)
    curves = []
    for accumulate in (1, 2, 4):
        record = train(classifier(name, pairs=pairs, dropout=0.0, accumulate=accumulate)).record
        curves.append(record["train_loss"] + [record["validation"][-1]["nats_per_example"]])
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert curves[2] == pytest.approx(curves[0], rel=1e-4)


def test_the_loss_of_a_step_is_the_mean_over_its_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fake_task(monkeypatch)
    run = classifier(dropout=0.0, steps=1, accumulate=2)
    model = train(replace(run, steps=0)).model
    batch = trainer.training_batches(run, task).batch(0)
    expected = F.cross_entropy(model(batch["input_ids"], batch["key_padding_mask"]), batch["targets"]).item()
    assert train(run).record["train_loss"] == pytest.approx([expected], rel=1e-5)


def test_a_classifier_learns() -> None:
    optimizer = OptimizerConfig(learning_rate=1e-2, schedule="cosine", warmup=5, weight_decay=0.0)
    record = train(classifier("vanilla", dropout=0.0, steps=150, optimizer=optimizer, evaluations=1)).record
    assert record["validation"][-1]["accuracy"] > 0.9
    assert sum(record["train_loss"][-10:]) < 0.3 * sum(record["train_loss"][:10])


def test_an_evaluation_reads_the_whole_split_and_gives_the_task_s_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fake_task(monkeypatch)
    run = classifier("vanilla", steps=20)
    trained = train(run)
    logits, labels = [], []
    for index in range(23):  # one by one, so without padding
        ids = torch.from_numpy(task.splits["validation"].sequence(index).astype("int64"))[None]
        with torch.no_grad():
            logits.append(trained.model(ids))
        labels.append(int(task.splits["validation"].labels[index]))
    whole, right = torch.cat(logits), torch.tensor(labels)
    expected = scores(task.metrics, whole.argmax(-1).numpy(), right.numpy())
    expected["nats_per_example"] = F.cross_entropy(whole, right).item()
    measured = evaluate(trained.model, run, task, CPU)
    assert measured == pytest.approx(expected, rel=1e-4)
    assert list(expected) == ["matthews", "accuracy", "f1", "nats_per_example"]
    assert trained.record["validation"] == [{"step": 20, **measured}]


def test_scores_are_those_of_their_definitions() -> None:
    predicted, labels = torch.tensor([1, 1, 0, 0, 1]).numpy(), torch.tensor([1, 0, 0, 1, 1]).numpy()
    found = scores(("accuracy", "f1", "matthews"), predicted, labels)
    # 2 true positives, 1 false positive, 1 false negative, 1 true negative
    matthews = (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)
    assert found == pytest.approx({"accuracy": 0.6, "f1": 2 / 3, "matthews": matthews})
    assert scores(("f1", "matthews"), labels * 0, labels) == {"f1": 0.0, "matthews": 0.0}
    with pytest.raises(ValueError, match="metrics='rouge': must be one of"):
        scores(("rouge",), predicted, labels)


def test_a_part_of_a_split_is_fixed_unless_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fake_task(monkeypatch)

    def read(run: Any, number: int) -> list[int]:
        lengths = [
            (~row).sum().item()
            for batch in labelled_batches(run, task, "validation", number)
            for row in batch["key_padding_mask"]
        ]
        return sorted(lengths)

    lengths = task.splits["validation"].lengths.tolist()
    fixed = classifier(evaluation_examples=7)
    assert read(fixed, 0) == read(fixed, 1)
    assert len(read(fixed, 0)) == 7
    moving = classifier(evaluation_examples=7, evaluation_part="moving")
    assert read(moving, 1) == read(moving, 1) != read(moving, 2)
    # Cyclic: 23 parts of 7 hold each of the 23 examples 7 times.
    assert sorted(length for number in range(23) for length in read(moving, number)) == sorted(lengths * 7)
    assert read(classifier(), 5) == sorted(lengths)


def test_a_moving_part_of_a_split_that_is_sorted_by_label_holds_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fake_task(monkeypatch)
    labels = [0] * 500 + [1] * 500
    members = examples.from_sequences([np.array([1, 2])] * 1000, labels, task.vocab_size)
    task = fake_task(monkeypatch, splits={**task.splits, "validation": members})
    run = classifier(evaluation_examples=100, evaluation_part="moving")
    for number in range(10):
        seen = torch.cat([batch["targets"] for batch in labelled_batches(run, task, "validation", number)])
        assert 30 <= int(seen.sum()) <= 70


def test_a_task_with_two_validation_splits_is_measured_on_both_and_judged_by_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = fake_task(monkeypatch)
    names = ("train", "validation", "validation_matched", "validation_mismatched")
    splits = dict(
        zip(names, [task.splits[name] for name in ("train", "validation", "validation", "test")], strict=True)
    )
    fake_task(monkeypatch, splits=splits)
    run = classifier("vanilla")
    result = train(run).record["validation"][-1]
    assert {"matthews", "matthews_mismatched", "nats_per_example_mismatched"} < set(result)
    fake_task(monkeypatch)
    alone = train(run).record["validation"][-1]
    assert alone.items() <= result.items()


@pytest.mark.parametrize("task", ["classify", "masked"])
def test_the_best_weights_are_those_of_the_first_best_evaluation(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fake_task(monkeypatch)
    optimizer = OptimizerConfig(learning_rate=3e-2, schedule="constant")  # too high, so that the scores go up and down
    fields: dict[str, Any] = {"steps": 24, "evaluations": 8, "keep": "best", "optimizer": optimizer}
    run = classifier("vanilla", **fields) if task == "classify" else config("vanilla", "masked", **fields)
    trained = train(run)
    results = trained.record["validation"]
    if task == "classify":
        best = max(results, key=lambda result: result["matthews"])
    else:
        best = min(results, key=lambda result: result["nats_per_token"])
    assert trained.record["kept_step"] == best["step"]
    source = data if task == "classify" else trainer.load_data(run)
    assert evaluate(trained.model, run, source, CPU) == {k: v for k, v in best.items() if k != "step"}
    shorter = replace(run, keep="last", steps=best["step"], evaluations=1)
    expected = train(shorter).model.state_dict()
    assert all(torch.equal(values, expected[name]) for name, values in trained.model.state_dict().items())


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_resumed_classifier_ends_bit_identical_with_the_same_best_weights(stop: int, tmp_path: Path) -> None:
    run = classifier(steps=9, evaluations=3, accumulate=2, keep="best", measured_at_end=("test",), gradients="norms")

    def progress(step: int, _loss: float) -> None:
        if step == stop:
            raise Stop

    with pytest.raises(Stop):
        train(run, progress, Checkpoints(tmp_path, seconds=0.0))
    assert same(train(run, None, Checkpoints(tmp_path, seconds=0.0)), train(run))


def test_further_splits_are_measured_once_with_the_weights_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fake_task(monkeypatch)
    run = classifier(measured_at_end=("test",), evaluations=2, keep="best")
    trained = train(run)
    assert trained.record["at_end"] == {"test": evaluate(trained.model, run, task, CPU, "test")}
    text = train(config(measured_at_end=("test",))).record["at_end"]
    assert set(text["test"]) == {"nats_per_token", "bits_per_token", "perplexity", "bits_per_byte"}


def test_the_record_counts_the_tokens_without_padding_and_the_work_without_a_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = fake_task(monkeypatch)
    run = classifier(steps=10)  # 40 sequences: each of them once
    record = RunStore(tmp_path).get(run).record
    assert record["tokens"] == task.splits["train"].lengths.sum()
    assert record["data"] == {"acceptability": "f" * 64}
    lm = config("transnormer-t2", "masked", steps=10)
    assert 0 < record["flops"] < RunStore(tmp_path).get(lm).record["flops"]


def test_a_stored_classifier_gives_back_its_weights_and_its_kept_result(tmp_path: Path) -> None:
    run = classifier(steps=12, evaluations=4, keep="best")
    stored = RunStore(tmp_path).get(run)
    expected = train(run)
    assert all(torch.equal(a, b) for a, b in zip(stored.model().parameters(), expected.model.parameters(), strict=True))
    assert stored.validation["step"] == stored.record["kept_step"]


def test_a_classifier_s_config_survives_plain_values() -> None:
    run = classifier(start_from=config("transnormer-t2", "masked"))
    assert from_plain(RunConfig, asdict(run)) == run


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head": None}, "head=None: data.task='classify' needs one"),
        ({"data": DataConfig(length=32, task="masked")}, "needs one, and no other task has one"),
        ({"evaluation_part": "moving"}, "evaluation_part='moving': needs evaluation_examples"),
        ({"evaluation_examples": 0}, "evaluation_examples=0: must be a whole number of at least 1"),
        ({"keep": "middle"}, "keep='middle': must be one of 'last', 'best'"),
    ],
    ids=["no-head", "no-task", "moving", "none", "keep"],
)
def test_an_inconsistent_classifier_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(classifier(), **fields)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"classes": 3}, r"head\.classes=2: task 'fake' has classes=3"),
        ({"pairs": True}, r"head\.pairs=False: task 'fake' has pairs=True"),
        ({"vocab_size": 9}, r"model\.vocab_size=258: task 'fake' has 9 ids"),
        ({"length": 99}, r"model\.max_length=32: task 'fake' has sequences of 99"),
    ],
    ids=["classes", "pairs", "vocabulary", "length"],
)
def test_a_head_that_does_not_fit_the_task_is_refused(
    task: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_task(monkeypatch, **task)
    with pytest.raises(ValueError, match=message):
        train(classifier())


def test_epochs_become_steps_that_read_every_example() -> None:
    assert steps_of(3, 40, 4) == 30
    assert steps_of(1, 41, 4) == 11
    with pytest.raises(ValueError, match="examples=0: must be a positive finite number"):
        steps_of(3, 0, 4)


def test_other_task_options_make_another_run() -> None:
    runs = [classifier(), classifier(data={"limit": {"train": 9}}), classifier(data={"length": 16})]
    assert len({run_id(run) for run in runs}) == 3
