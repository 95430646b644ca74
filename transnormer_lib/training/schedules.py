"""Learning-rate schedules: the factor on the highest rate as a function of the optimiser step.

``inverse-sqrt`` and ``linear`` are those of Table 13 of "The Devil in Linear Transformer" as fairseq implements them
(``linear``: polynomial decay with power 1). ``onecycle`` is that of the paper's Long Range Arena runs
(pkuzengqi/Skyformer@1a677cb): ``torch.optim.lr_scheduler.OneCycleLR`` with linear annealing, which peaks at the last
step of the warm-up. That harness also leaves OneCycleLR's momentum cycle on, which moves AdamW's β1 against the rate;
``OptimizerConfig.cycle_momentum`` does the same (:func:`momentum`).
"""

import math
from collections.abc import Callable, Sequence

from transnormer_lib.training.config import OptimizerConfig

# OneCycleLR's defaults, which Skyformer uses.
_ONECYCLE_START = 1 / 25  # of the highest rate
_ONECYCLE_END = _ONECYCLE_START / 1e4
_MOMENTUM_LOW, _MOMENTUM_HIGH = 0.85, 0.95


def factor(config: OptimizerConfig, steps: int) -> Callable[[int], float]:
    """The factor at step 0, 1, …, ``steps`` - 1: a linear warm-up to 1, then ``config.schedule``.

    The warm-up rises from ``warmup_start`` at step 0 to the highest rate at step ``warmup``, as fairseq's does. From
    a ``warmup_start`` of 0 it begins one increment higher, because a step at rate 0 learns nothing.

    - ``constant``: stays at 1; ``plateau`` too, and is halved by :func:`halvings` besides.
    - ``linear``, ``cosine``: fall to ``end_learning_rate`` after ``steps`` steps.
    - ``inverse-sqrt``: falls as √(warmup / step).
    - ``onecycle``: rises from 1/25 to 1 at step ``warmup`` - 1, falls to 1/25e4 at the last step.
    - ``drop``: stays at 1 until ``drop_after`` steps are done, then is ``end_learning_rate``.
    """
    if config.schedule == "onecycle":
        return _cycle(config.warmup, steps, _ONECYCLE_START, 1.0, _ONECYCLE_END)
    warmup = config.warmup
    start, end = config.warmup_start / config.learning_rate, config.end_learning_rate / config.learning_rate

    def at(step: int) -> float:
        if step < warmup:
            return start + (1.0 - start) * step / warmup if start else (step + 1) / (warmup + 1)
        if config.schedule in ("constant", "plateau"):
            return 1.0
        if config.schedule == "drop":
            return 1.0 if step < config.drop_after else end
        if config.schedule == "inverse-sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1, warmup))
        progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
        remaining = 1.0 - progress if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
        return end + (1.0 - end) * remaining

    return at


def halvings(losses: Sequence[float], patience: int) -> int:
    """How often ``plateau`` has halved the rate after validations with these results, lower is better.

    As ``torch.optim.lr_scheduler.ReduceLROnPlateau`` counts: a validation that is no better than the best so far is a
    bad one; more than ``patience`` bad ones in a row halve the rate, and the count begins again. Section 4.3 of
    "Transformers are RNNs" divides the rate by 2 "when the validation error stops decreasing" and prints no patience.
    """
    best, bad, count = math.inf, 0, 0
    for loss in losses:
        bad = 0 if loss < best else bad + 1
        best = min(best, loss)
        if bad > patience:
            bad, count = 0, count + 1
    return count


def momentum(config: OptimizerConfig, steps: int) -> Callable[[int], float]:
    """AdamW's β1 at step 0, 1, …, ``steps`` - 1: ``betas[0]``, or with ``cycle_momentum`` linearly from 0.95 to 0.85
    at step ``warmup`` - 1, the peak of the rate, and back to 0.95 at the last step."""
    if not config.cycle_momentum:
        return lambda step: config.betas[0]
    return _cycle(config.warmup, steps, _MOMENTUM_HIGH, _MOMENTUM_LOW, _MOMENTUM_HIGH)


def _cycle(warmup: int, steps: int, start: float, middle: float, end: float) -> Callable[[int], float]:
    """Linear from ``start`` to ``middle`` at step ``warmup`` - 1, then linear to ``end`` at the last step."""
    peak, last = warmup - 1, steps - 1  # without warm-up the peak is before the first step, as in torch

    def at(step: int) -> float:
        if step < peak:
            return start + (middle - start) * step / peak
        progress = min((step - peak) / max(last - peak, 1), 1.0)
        return middle + (end - middle) * progress

    return at
