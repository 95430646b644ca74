"""Where a diverged run broke: the first part of the model whose output, or whose gradient, is not finite."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transnormer_lib.data.batches import Batch
from transnormer_lib.training.setup import loss_on

What = Literal["activation", "loss", "gradient"]


@dataclass(frozen=True)
class Divergence:
    """What was not finite, when and where."""

    step: int  # counted from 0; where validation found it, the step that would have come next
    what: What
    layer: str | None  # like "blocks.2.attention"; None: no part's output or gradient explains it

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model's children by name; of a list of blocks, each block's children (``blocks.2.attention``)."""
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList):
            for index, block in enumerate(child):
                for inner, module in block.named_children():
                    yield f"{name}.{index}.{inner}", module
        else:
            yield name, child


def locate(model: nn.Module, micro_batches: Sequence[Batch], device: torch.device) -> tuple[What, str | None]:
    """Run the step again and say what broke first: (what, the part's name or None).

    The first part, in the order of the forward pass, whose output is not finite. Where all outputs are finite, the
    last one in that order, which is the first of the backward pass, that holds a gradient that is not. The caller
    restores weights and random state; the model's gradients are overwritten.
    """
    order: list[str] = []
    broken: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            order.append(name)
            if not broken and not _finite(output):
                broken.append(name)

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in parts(model)]
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
    by_name = dict(parts(model))
    for name in dict.fromkeys(reversed(order)):
        if any(p.grad is not None and not _finite(p.grad) for p in by_name[name].parameters()):
            return "gradient", name
    return "gradient", None


def _finite(output: Any) -> bool:
    if isinstance(output, Tensor):
        return not output.is_floating_point() or bool(torch.isfinite(output).all())
    if isinstance(output, tuple | list):
        return all(_finite(item) for item in output)
    return True
