"""Weights on disk: safetensors, written whole or not at all."""

import os
from pathlib import Path

from torch import nn


def save_weights(model: nn.Module, path: Path) -> None:
    """Write ``model``'s parameters and persistent buffers to ``path``; an interruption leaves no broken file."""
    from safetensors.torch import save_model

    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_model(model, str(partial))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights saved by :func:`save_weights`; refuses missing and unexpected names."""
    from safetensors.torch import load_model

    load_model(model, str(path), strict=True)
