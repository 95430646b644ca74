"""The splits measured at the end and the head of a classifier are checked before the first step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_cases import classifier, config, fake_task

from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.training import trainer
from transnormer_lib.training.config import OptimizerConfig, RunRefused
from transnormer_lib.training.evaluation import evaluate
from transnormer_lib.training.setup import build
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import RunFailed
from transnormer_lib.training.trainer import train


@pytest.mark.parametrize("part", ["spread", "moving"])
def test_the_end_is_measured_on_whole_splits_whatever_an_evaluation_reads(
    part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = fake_task(monkeypatch)
    run = classifier(evaluation_examples=7, evaluation_part=part, measured_at_end=("test",))
    trained = train(run)
    whole = evaluate(trained.model, classifier(), task, torch.device("cpu"), "test")
    assert trained.record["at_end"] == {"test": whole}
    assert whole != evaluate(trained.model, run, task, torch.device("cpu"), "test")


@pytest.mark.parametrize(
    ("run", "splits"),
    [(classifier(), "'train', 'validation', 'test'"), (config(), "'train', 'validation', 'test'")],
    ids=["classifier", "language-model"],
)
def test_an_unknown_split_is_refused_before_the_first_step(
    run: Any, splits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_task(monkeypatch)
    monkeypatch.setattr(trainer._Training, "optimise", lambda self: pytest.fail("trained"))
    with pytest.raises(RunRefused, match=f"measured_at_end='exam': must be one of {splits}"):
        train(replace(run, measured_at_end=("exam",)))


def test_a_split_that_is_not_on_this_machine_is_missing_data_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits = dict(fake_task(monkeypatch).splits)
    del splits["test"]
    fake_task(monkeypatch, splits=splits, absent={"test": "its labels are not published"})
    monkeypatch.setattr(trainer._Training, "optimise", lambda self: pytest.fail("trained"))
    with pytest.raises(DataUnavailable, match="measured_at_end='test': its labels are not published"):
        train(classifier(measured_at_end=("test",)))


def test_a_split_is_named_once() -> None:
    with pytest.raises(ValueError, match=r"measured_at_end=\['test', 'test'\]: must differ from each other"):
        classifier(measured_at_end=("test", "test"))


def test_a_head_has_no_dropout_unless_configured() -> None:
    head = ClassifierHead(classes=2, head_width=8)
    for wanted, run in ((0.0, classifier(dropout=0.1)), (0.3, classifier(head=replace(head, head_dropout=0.3)))):
        assert [m.p for m in build(run).head.modules() if isinstance(m, nn.Dropout)] == [wanted]
    with pytest.raises(ValueError, match=r"head_dropout=1\.0: must be in \[0, 1\)"):
        ClassifierHead(classes=2, head_dropout=1.0)


def test_a_study_continues_without_an_absent_split_but_not_from_a_diverged_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transnormer_lib.studies.common import classification

    fake_task(monkeypatch, absent={"exam": "nobody has it"})
    store, base = RunStore(tmp_path), config("transnormer-t2", "masked")
    absent = classification.train(classifier(measured_at_end=("exam",)), store)
    assert absent == classification.Absent("measured_at_end='exam': nobody has it")
    broken = replace(base, optimizer=OptimizerConfig(learning_rate=1e36, schedule="constant"))
    with pytest.raises(RunFailed, match=r"starts from another: run test-transnormer-t2-.*: diverged after 2 steps"):
        classification.train(classifier(start_from=broken), store)
