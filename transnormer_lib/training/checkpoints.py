"""Weights on disk: safetensors, written whole or not at all."""

from pathlib import Path

from torch import nn

from transnormer_lib.files import replacing


def save_weights(model: nn.Module, path: Path) -> None:
    """Write ``model``'s parameters and persistent buffers to ``path``; an interruption leaves no broken file."""
    from safetensors.torch import save_model

    with replacing(path) as partial:
        save_model(model, str(partial))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights saved by :func:`save_weights`; refuses missing and unexpected names."""
    from safetensors.torch import load_model

    load_model(model, str(path), strict=True)
