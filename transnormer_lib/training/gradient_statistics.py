"""How much the gradient of each parameter tensor varies from step to step (Table 2).

Measured on the gradient of a whole optimiser step before it is clipped. P parameter tensors, T steps.
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

    All but ``norms`` are over the ``counted`` steps after the warm-up; NaN if there are none or the run diverged. A
    step that fp16's gradient scaler skipped has a norm that is not finite and is not counted.
    """

    names: tuple[str, ...]  # [P]
    counted: int
    norms: Tensor  # [T, P]: ‖g_t‖
    mean_norm: Tensor  # [P]: ‖mean_t g_t‖
    mean_square: Tensor  # [P]: mean_t ‖g_t‖²
    elementwise_rsd: Tensor  # [P]: median over a tensor's entries of std_t / |mean_t|; entries always 0 do not count

    def save(self, path: Path) -> None:
        """Write the tensors to ``path`` (safetensors); names and count are in the run's record."""
        from safetensors.torch import save_file

        arrays = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        with replacing(path) as partial:
            save_file(arrays, str(partial))

    @classmethod
    def load(cls, path: Path, names: Sequence[str], counted: int) -> "GradientStatistics":
        """The inverse of :meth:`save`."""
        from safetensors.torch import load_file

        return cls(names=tuple(names), counted=counted, **load_file(str(path)))


class GradientRecorder:
    """Collects :class:`GradientStatistics` while a model trains, in a few operations per step."""

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
        """Add the present gradients, whose norms are ``norms_P``; ``step`` counts from 0."""
        self._norms.append(norms_P)
        if step < self.warmup or skipped:
            return
        gradients = gradients_of(self.parameters)
        torch._foreach_add_(self._sum, gradients)
        torch._foreach_addcmul_(self._sum_of_squares, gradients, gradients)
        self.counted += 1

    def result(self, steps: int, diverged: bool) -> GradientStatistics:
        """The statistics of the first ``steps`` steps."""
        count = 0 if diverged else self.counted
        rows = []
        for total, squares in zip(self._sum, self._sum_of_squares, strict=True):
            # float64, because the variance is a difference of two sums.
            mean, square = total.double() / count, squares.double() / count
            deviation = (square - mean.square()).clamp_min(0).sqrt()
            rows.append(torch.stack([mean.norm(), square.sum(), (deviation / mean.abs()).nanmedian()]))
        mean_norm, mean_square, rsd = (column.contiguous() for column in torch.stack(rows).float().cpu().unbind(1))
        norms = self._stacked_norms(steps).float().contiguous()
        return GradientStatistics(self.names, count, norms, mean_norm, mean_square, elementwise_rsd=rsd)

    def state(self) -> dict[str, Any]:
        """The state that :meth:`restore` restores."""
        return {
            "norms": self._stacked_norms(),
            "counted": self.counted,
            "sum": [s.cpu() for s in self._sum],
            "sum_of_squares": [s.cpu() for s in self._sum_of_squares],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self._norms = list(state["norms"].to(self._sum[0].device))
        self.counted = state["counted"]
        for mine, stored in ((self._sum, state["sum"]), (self._sum_of_squares, state["sum_of_squares"])):
            for tensor, value in zip(mine, stored, strict=True):
                tensor.copy_(value)

    def _stacked_norms(self, steps: int | None = None) -> Tensor:
        """The norms of the first ``steps`` steps (default: all), [T, P], on the CPU."""
        norms = self._norms[:steps]
        return torch.stack(norms).cpu() if norms else torch.zeros(0, len(self.names))
