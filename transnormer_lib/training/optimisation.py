"""The optimiser of a run; the norms of gradients and their clipping."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transnormer_lib.training.config import OptimizerConfig


def build_optimizer(options: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW or RAdam over all parameters of ``model``.

    AdamW is fused: one kernel per step, which skips the step on the device if its ``found_inf`` is set, so that the
    host need not wait. RAdam has no such form, so the trainer reads the loss before each of its steps.
    """
    shared: dict[str, Any] = {
        "lr": options.learning_rate,
        "betas": options.betas,
        "eps": options.eps,
        "weight_decay": options.weight_decay,
    }
    if options.rule == "radam":
        return torch.optim.RAdam(model.parameters(), decoupled_weight_decay=True, foreach=True, **shared)
    return torch.optim.AdamW(model.parameters(), fused=True, **shared)


def gradients_of(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradient of each parameter; zeros if the loss does not depend on it."""
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


def gradient_norms(gradients: list[Tensor]) -> Tensor:
    """The Euclidean norm of each gradient, [P]. The norm of these is the norm of the whole gradient."""
    norms = torch.stack(torch._foreach_norm(gradients))
    # Sharded: each process has partial norms. The class is not imported, because that takes a second or two.
    whole = getattr(norms, "full_tensor", None)
    return norms if whole is None else whole()


def clip(parameters: Sequence[nn.Parameter], options: OptimizerConfig, norm: Tensor) -> None:
    """Clip gradients with the total norm ``norm``, [], in place: to ``clip_norm``, or each entry to ±``clip_value``."""
    if options.clip_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, options.clip_norm, norm, foreach=True)
    elif options.clip_value > 0:
        nn.utils.clip_grad_value_(parameters, options.clip_value, foreach=True)
