"""Runs small enough to train in a test, shared by the tests of training."""

from typing import Any

from transnormer_lib.data.vocabulary import vocabulary_size
from transnormer_lib.models.architectures import architecture
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig


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
        "optimizer": OptimizerConfig(learning_rate=1e-2, schedule="cosine", warmup=2, clip_norm=1.0),
        "steps": 8,
        "seed": 0,
        "validation_windows": 4,
    }
    return RunConfig(**(values | fields))
