"""What a built model consists of, read off the model itself by running it: no second description to keep in step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transnormer_lib.models.blocks import Block
from transnormer_lib.models.language_model import LanguageModel


@dataclass(frozen=True)
class Part:
    """One stage of a forward pass."""

    name: str  # what a reader calls it: "DiagAttention", "GLU", "RMSNorm"
    layer: int | None  # layer number from 1; None outside the blocks
    detail: str  # the settings that matter, as the module holds them
    shape: tuple[int, ...]  # of its output
    parameters: int


def _detail(module: nn.Module) -> str:
    config = getattr(module, "config", None)
    shown = {"scores": "{}", "block_size": "blocks of {}", "phi": "φ = {}", "norm": "{} norm"}
    values = ((text, getattr(config, name, None)) for name, text in shown.items())
    return ", ".join(text.format(value) for text, value in values if value is not None)


def _name(module: nn.Module) -> str:
    return type(module).__name__


def anatomy(model: LanguageModel, input_ids_BN: Tensor) -> list[Part]:
    """The parts of ``model`` in the order in which a forward pass runs them, seen by hooks on that pass."""
    parts: list[Part] = []

    def watch(module: nn.Module, layer: int | None, shown: Sequence[nn.Module] = ()) -> None:
        named = shown or (module,)

        def hook(_module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            count = sum(p.numel() for p in module.parameters())
            name, detail = " + ".join(map(_name, named)), "; ".join(filter(None, map(_detail, named)))
            parts.append(Part(name, layer, detail, tuple(tensor.shape), count))

        handles.append(module.register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    watch(model.embedding, None)
    for number, block in enumerate(model.blocks, start=1):
        assert isinstance(block, Block)
        watch(block.attention_norm, number)
        watch(block.attention, number, shown=block.mechanisms)
        for module in (block.feed_forward_norm, block.feed_forward):
            if module is not None:  # a block such as FLASH has no second part
                watch(module, number)
    if not isinstance(model.final_norm, nn.Identity):
        watch(model.final_norm, None)
    try:
        with torch.no_grad():
            model(input_ids_BN)
    finally:
        for handle in handles:
            handle.remove()
    return parts
