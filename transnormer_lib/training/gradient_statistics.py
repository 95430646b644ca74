"""How much the gradient of each parameter tensor varies from step to step (Table 2 speaks of this).

All is measured on the gradient of a whole optimiser step before it is clipped. P parameter tensors, T steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transnormer_lib.files import replacing
from transnormer_lib.training.optimisation import gradients_of


@dataclass(frozen=True)
class GradientStatistics:
    """The gradient statistics of a run, per parameter tensor, float32.

    Except for ``norms`` they are over the ``counted`` steps after the warm-up; NaN where there was none, or where the
    run diverged. Under fp16 a step that the gradient scaler skipped has a norm that is not finite and is not counted.
    """

    names: tuple[str, ...]  # [P]
    counted: int
    norms: Tensor  # [T, P]: ‖g_t‖
    mean_norm: Tensor  # [P]: ‖mean_t g_t‖
    mean_square: Tensor  # [P]: mean_t ‖g_t‖²
    # [P]: median over the tensor's entries of std_t / |mean_t|. An entry that is 0 at every step does not count.
    elementwise_rsd: Tensor

    def save(self, path: Path) -> None:
        """Write the arrays to ``path`` (safetensors). The names and the count stay with the record."""
        from safetensors.torch import save_file

        arrays = {name: getattr(self, name) for name in ("norms", "mean_norm", "mean_square", "elementwise_rsd")}
        with replacing(path) as partial:
            save_file(arrays, str(partial))

    @classmethod
    def load(cls, path: Path, names: Sequence[str], counted: int) -> "GradientStatistics":
        """The inverse of :meth:`save`."""
        from safetensors.torch import load_file

        return cls(names=tuple(names), counted=counted, **load_file(str(path)))


class GradientRecorder:
    """Collects :class:`GradientStatistics` while a model trains, in a handful of operations per step."""

    def __init__(self, model: nn.Module, warmup: int) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = tuple(name for name, _ in named)
        self.parameters = [p for _, p in named]
        self.warmup = warmup
        self.counted = 0
        self._norms: list[Tensor] = []
        self._sum = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self._sum_of_squares = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]

    def add(self, step: int, norms_P: Tensor, skipped: bool = False) -> None:
        """Take in the gradients as they are now, whose norms are ``norms_P``; ``step`` counts from 0."""
        self._norms.append(norms_P)
        if step < self.warmup or skipped:
            return
        gradients = gradients_of(self.parameters)
        torch._foreach_add_(self._sum, gradients)
        torch._foreach_addcmul_(self._sum_of_squares, gradients, gradients)
        self.counted += 1

    def result(self, steps: int, diverged: bool) -> GradientStatistics:
        """The statistics of the first ``steps`` steps."""
        norms = torch.stack(self._norms[:steps]) if steps else torch.zeros(0, len(self.names))
        count = self.counted if not diverged else 0
        rows = []
        for total, squares in zip(self._sum, self._sum_of_squares, strict=True):
            # In float64: the variance is a difference of two sums.
            mean, square = total.double() / count, squares.double() / count
            deviation = (square - mean.square()).clamp_min(0).sqrt()
            rows.append(torch.stack([mean.norm(), square.sum(), (deviation / mean.abs()).nanmedian()]))
        mean_norm, mean_square, rsd = torch.stack(rows).float().cpu().unbind(1)
        return GradientStatistics(
            names=self.names,
            counted=count,
            norms=norms.float().cpu().contiguous(),
            mean_norm=mean_norm.contiguous(),
            mean_square=mean_square.contiguous(),
            elementwise_rsd=rsd.contiguous(),
        )

    def state(self) -> dict[str, Any]:
        """All that :meth:`restore` needs to go on."""
        norms = [torch.stack(self._norms).cpu()] if self._norms else []
        return {
            "norms": norms,
            "counted": self.counted,
            "sum": [s.cpu() for s in self._sum],
            "sum_of_squares": [s.cpu() for s in self._sum_of_squares],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        device = self._sum[0].device
        self._norms = [row for norms in state["norms"] for row in norms.to(device)]
        self.counted = state["counted"]
        for mine, stored in ((self._sum, state["sum"]), (self._sum_of_squares, state["sum_of_squares"])):
            for tensor, value in zip(mine, stored, strict=True):
                tensor.copy_(value)
