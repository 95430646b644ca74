"""A small decoder of pixels."""

from typing import Any

from transnormer_lib.models.config import ModelConfig


def decoder(**fields: Any) -> ModelConfig:
    """Two layers of linear attention, ten logistics over 256 values, up to 12 tokens; ``fields`` replace these."""
    given: dict[str, Any] = {
        "kind": "decoder", "vocab_size": 256, "max_length": 12, "dim": 16, "heads": 2, "attention": ("linear",) * 2,
        "tied": False, "logistics": 10,
    }  # fmt: skip
    return ModelConfig(**(given | fields))
