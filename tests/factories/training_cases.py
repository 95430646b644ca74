"""Runs small enough to train in a test, shared by the tests of training."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transnormer_lib.choices import TaskKind
from transnormer_lib.data import examples, sequences, tasks
from transnormer_lib.data.task_kinds import ChoiceRows, SpanRows
from transnormer_lib.data.tasks import TaskData
from transnormer_lib.data.vocabulary import ByteVocabulary, vocabulary_size
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.provenance.environment import provenance
from transnormer_lib.training import identity, numbers
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.records import History, make_record
from transnormer_lib.training.trainer import Trained

# The fields in which two runs of one config on one machine may differ. All others are bit-identical.
RUN_CONDITIONS = ("seconds", "tokens_per_second", "peak_memory", "sessions", "processes", "provenance")
MOST_CANDIDATES = 4


class Stop(Exception):
    """Stops a run in a test."""


def same(first: Trained, second: Trained) -> bool:
    """Whether two runs left the same records, apart from run conditions, and bit-identical weights."""
    records = [{k: v for k, v in t.record.items() if k not in RUN_CONDITIONS} for t in (first, second)]
    weights = [t.model.state_dict() for t in (first, second)]
    return records[0] == records[1] and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def whole_record(config: RunConfig) -> dict[str, Any]:
    """The record of a run of this config that finished, without training it."""
    losses = [5.0 - step / config.steps for step in range(config.steps)]
    result = {"step": config.steps, "nats_per_token": 4.0, "bits_per_token": 5.8}
    history = History(train_loss=losses, validation=[result], tokens=100, seconds=1.5)
    made = make_record(history, parameters=7, data={"test": "0f"}, device="cpu", processes=1)
    made |= {"flops": 10, "provenance": provenance(), "evaluation": numbers.EVALUATION}
    return made | {"arithmetic": numbers.arithmetic(config.model.mechanisms)}


def also_save_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every checkpoint also holds a folder of shards, as those of FSDP do."""
    from accelerate import Accelerator
    from torch.distributed import checkpoint

    save = Accelerator.save_state

    def save_with_shards(self: Accelerator, folder: str) -> None:
        save(self, folder)
        shards = Path(folder) / "pytorch_model_fsdp_0"
        checkpoint.save({"model": {"weight": torch.arange(4.0)}}, checkpoint_id=shards, no_dist=True)

    monkeypatch.setattr(Accelerator, "save_state", save_with_shards)


def config(name: str = "transnormer-t2", task: str = "causal", dropout: float = 0.1, **fields: Any) -> RunConfig:
    model = architecture(
        name,
        kind="decoder" if task == "causal" else "encoder",
        vocab_size=vocabulary_size("bytes"),
        max_length=32,
        dim=16,
        heads=2,
        layers=2,
        block_size=8,
        dropout=dropout,
    )
    values: dict[str, Any] = {
        "name": f"test-{name}",
        "model": model,
        "data": DataConfig(task=task, length=32, batch_size=4),  # type: ignore[arg-type]
        "optimizer": OptimizerConfig(
            learning_rate=1e-2, schedule="cosine", warmup=min(2, max(fields.get("steps", 8) - 1, 0)), clip_norm=1.0
        ),
        "steps": 8,
        "seed": 0,
        "validation_windows": 4,
    }
    return RunConfig(**(values | fields))


def classifier(name: str = "transnormer-t2", data: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
    """A classifier of short word sequences, on an embedded task unless ``fake_task`` replaced it."""
    base = config(name, "masked", dropout=fields.pop("dropout", 0.1), steps=fields.pop("steps", 8))
    values = {"length": 32, "batch_size": 4, "task_name": "acceptability"}
    values |= {"limit": {"train": 64, "validation": 24, "test": 24}} | (data or {})
    kind = fields.pop("kind", "label")
    classes = MOST_CANDIDATES if kind == "choice" else 2
    head = ClassifierHead(classes=classes, head_width=8, pairs=fields.pop("pairs", False), kind=kind)
    return replace(base, **({"data": DataConfig(task="classify", **values), "head": head} | fields))


def fake_task(monkeypatch: pytest.MonkeyPatch, pairs: bool = False, **fields: Any) -> TaskData:
    """Replaces every task by one that asks whether half of a sequence's letters (of both, for pairs) are a 7.

    Sequences have 3 to 20 tokens; 40 examples in train, 23 in validation and test each.
    """
    splits = {}
    for number, (split, count) in enumerate({"train": 40, "validation": 23, "test": 23}.items()):
        draw = np.random.default_rng(number)
        labels = draw.integers(2, size=count)
        sequences = []
        for label in labels.repeat(2 if pairs else 1):
            sequence = draw.integers(8, 200, size=draw.integers(3, 21))
            if label:
                sequence[draw.random(sequence.size) < 0.5] = 7
            sequences.append(sequence)
        splits[split] = examples.from_sequences(sequences, labels, vocabulary_size("bytes"))
    values: dict[str, Any] = {"name": "fake", "title": "a letter", "stand_in": True, "origin": "generated"}
    values |= {"pairs": pairs, "classes": 2, "vocab_size": vocabulary_size("bytes"), "pad_id": 257, "length": 20}
    values |= {"splits": splits, "metrics": ("matthews", "accuracy", "f1"), "fingerprint": "f" * 64}
    return _replace_every_task(monkeypatch, TaskData(**(values | fields)))


def fake_reading(monkeypatch: pytest.MonkeyPatch, kind: TaskKind) -> TaskData:
    """Replaces every task by one of 40 choices among two to four letters, or by one of 40 marked spans.

    Right is the letter that the text holds; the span is the run of letters among digits. Some passages have several
    windows of 24 tokens.
    """
    splits = {}
    for number, (split, count) in enumerate({"train": 40, "validation": 23, "test": 23}.items()):
        draw = np.random.default_rng(number)
        words = ByteVocabulary()
        rows: ChoiceRows | SpanRows
        if kind == "choice":
            candidates = [draw.permutation(list("abcdef"))[: draw.integers(2, 5)].tolist() for _ in range(count)]
            labels = np.array([draw.integers(len(of)) for of in candidates])
            texts = [f"1{of[label]}23" for of, label in zip(candidates, labels, strict=True)]
            rows = ChoiceRows(texts, [0] * count, candidates, labels)
        else:
            before, after = (
                ["".join(draw.choice(list("123"), draw.integers(1, 20))) for _ in range(count)] for _ in "ab"
            )
            runs = ["".join(draw.choice(list("ab"), draw.integers(1, 5))) for _ in range(count)]
            passages = [f"{a}{run}{b}" for a, run, b in zip(before, runs, after, strict=True)]
            answers = [[(len(a), run)] for a, run in zip(before, runs, strict=True)]
            rows = SpanRows(["where?"] * count, passages, answers)
        splits[split] = sequences.encoded(rows, words, 24, joined=False)
    metrics = ("accuracy",) if kind == "choice" else ("score", "exact_match", "f1")
    return _replace_every_task(
        monkeypatch,
        TaskData(
            name="fake", title="letters", stand_in=True, origin="generated", pairs=False, kind=kind,
            classes=MOST_CANDIDATES if kind == "choice" else 2, vocab_size=vocabulary_size("bytes"), pad_id=257,
            length=24, splits=splits, metrics=metrics, fingerprint="e" * 64,
        ),
    )  # fmt: skip


def _replace_every_task(monkeypatch: pytest.MonkeyPatch, task: TaskData) -> TaskData:
    monkeypatch.setattr(tasks, "load_task", lambda *_, **__: task)
    # Cached fingerprints would be those of the real task or of another fake.
    monkeypatch.setattr(identity, "_data_fingerprint", inspect.unwrap(identity._data_fingerprint))
    return task
