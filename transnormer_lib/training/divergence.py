"""Where a diverged run broke: the first part of the model whose output, or whose gradient, is not finite."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transnormer_lib.data.batches import Batch
from transnormer_lib.training.setup import loss_on

What = Literal["activation", "loss", "gradient"]


@dataclass(frozen=True)
class Divergence:
    """What was not finite, when and where."""

    step: int  # counted from 0; if validation found it, the step that would have come next
    what: What
    layer: str | None  # such as "blocks.2.attention"; None: no part's output or gradient explains it


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model's children by name; for a list, each item's children (``blocks.2.attention``), or the item."""
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList):
            for index, block in enumerate(child):
                inside = [(f"{name}.{index}.{inner}", module) for inner, module in block.named_children()]
                yield from inside or [(f"{name}.{index}", block)]
        else:
            yield name, child


def locate(model: nn.Module, micro_batches: Sequence[Batch], device: torch.device) -> tuple[What, str | None]:
    """Repeat a step and return what broke first: (what, the part's name or None).

    That is the first part in the forward pass whose output is not finite or, if all outputs are finite, the first
    part in the backward pass with a gradient that is not. Overwrites the model's gradients; the caller restores
    weights and random state.
    """
    order: list[str] = []
    broken: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            order.append(name)
            if not broken and not _finite(output):
                broken.append(name)

        return hook

    named = dict(parts(model))
    handles = [module.register_forward_hook(watch(name)) for name, module in named.items()]
    model.zero_grad(set_to_none=True)
    loss_is_finite = True
    try:
        for batch in micro_batches:
            loss = loss_on(model, batch, device)
            if broken:
                return "activation", broken[0]
            loss_is_finite = loss_is_finite and bool(torch.isfinite(loss))
            if loss_is_finite and loss.requires_grad:
                loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    if not loss_is_finite:
        return "loss", None
    for name in dict.fromkeys(reversed(order)):
        if any(p.grad is not None and not _finite(p.grad) for p in named[name].parameters()):
            return "gradient", name
    return "gradient", None


def _finite(output: Any) -> bool:
    if isinstance(output, Tensor):
        return not output.is_floating_point() or bool(torch.isfinite(output).all())
    return not isinstance(output, tuple | list) or all(_finite(item) for item in output)
