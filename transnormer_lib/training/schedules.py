"""Learning-rate schedules: the factor on the peak rate at each optimiser step."""

import math
from collections.abc import Callable

from transnormer_lib.training.config import OptimizerConfig


def factor(config: OptimizerConfig, steps: int) -> Callable[[int], float]:
    """The factor at step 0, 1, …, ``steps`` - 1: a linear warm-up to 1, then what ``config.schedule`` says.

    ``linear`` and ``cosine`` end at 0 after ``steps`` steps; ``inverse-sqrt`` falls as √(warmup / step), as fairseq's.
    """
    warmup = config.warmup

    def at(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if config.schedule == "constant":
            return 1.0
        if config.schedule == "inverse-sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1, warmup))
        progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return 1.0 - progress if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))

    return at
