"""Parameters for the tests of the language-model studies: runs that take no time."""

from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from transnormer_lib.models.config import ModelConfig

# The parameters that every language-model study reads.
LANGUAGE_MODEL: dict[str, Any] = {
    "corpus": "wikipedia",
    "vocabulary": "bytes",
    "task": "masked",
    "dim": 8,
    "heads": 2,
    "layers": 2,
    "block_size": 4,
    "init": "fairseq",
    "length": 8,
    "steps": 2,
    "batch_size": 2,
    "accumulate": 1,
    "precision": "fp32",
    "learning_rate": 1e-3,
    "rates": {},
    "schedule": "cosine",
    "warmup": 0,
    "clip_norm": 1.0,
    "dropout": 0.0,
    "validation_windows": 2,
    "bands": [],
}
NO_SEARCH: dict[str, Any] = {"rates_tried": [], "rate_seeds": []}
ROWS: dict[str, Any] = {
    "architectures": ["vanilla", "linear", "transnormer-t1", "transnormer-t2"],
    "controls": ["vanilla-matched", "linear-matched"],
    "released": ["transnormer-t1", "transnormer-t2", "linear-matched"],
    "seeds": [1, 0],
}
ATTENTION = {"attention", "attention_options"}


with_matched_controls = pytest.mark.parametrize(
    ("variant", "control"), list(product(("transnormer-t1", "transnormer-t2"), ("vanilla-matched", "linear-matched")))
)


def differing(a: ModelConfig, b: ModelConfig) -> set[str]:
    """The fields in which two models differ."""
    ours, theirs = asdict(a), asdict(b)
    return {name for name in ours if ours[name] != theirs[name]}
