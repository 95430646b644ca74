"""Runs small enough to train in a test, shared by the tests of training."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from transnormer_lib.data import examples, tasks
from transnormer_lib.data.tasks import TaskData
from transnormer_lib.data.vocabulary import vocabulary_size
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.training import identity
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.trainer import Trained

# The fields in which two runs of one config on one machine may differ. All others are bit-identical.
RUN_CONDITIONS = ("seconds", "tokens_per_second", "peak_memory", "sessions", "processes", "provenance")


class Stop(Exception):
    """Stops a run in a test."""


def same(first: Trained, second: Trained) -> bool:
    """Whether two runs left the same records, apart from run conditions, and bit-identical weights."""
    records = [{k: v for k, v in t.record.items() if k not in RUN_CONDITIONS} for t in (first, second)]
    weights = [t.model.state_dict() for t in (first, second)]
    return records[0] == records[1] and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


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
    head = ClassifierHead(classes=2, head_width=8, pairs=fields.pop("pairs", False))
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
    task = TaskData(**(values | fields))
    monkeypatch.setattr(tasks, "load_task", lambda *_, **__: task)
    # Cached fingerprints would be those of the real task or of another fake.
    monkeypatch.setattr(identity, "_data_fingerprint", inspect.unwrap(identity._data_fingerprint))
    return task
