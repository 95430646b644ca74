"""What a run leaves besides its weights: one JSON-ready record, and the history it grows from."""

from dataclasses import asdict, dataclass, field
from typing import Any

from transnormer_lib.training.divergence import Divergence

# What may differ between two runs of one config on one machine. All else in a record is the same to the last bit.
CIRCUMSTANCES = ("seconds", "tokens_per_second", "peak_memory", "sessions", "processes", "provenance")


@dataclass
class History:
    """The part of a run's state that grows: what was measured after each step, and how long it took."""

    train_loss: list[float] = field(default_factory=list)  # per optimiser step, nats per counted token
    validation: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0  # optimiser steps that fp16's gradient scaler left out
    seconds: float = 0.0  # in all sessions together
    validation_seconds: float = 0.0  # of those, spent on validation
    sessions: int = 1  # how often the run was begun or taken up again
    divergence: Divergence | None = None

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        values = asdict(self)
        del values["divergence"]  # a diverged run is complete
        return values


def make_record(
    history: History, *, parameters: int, tokens_per_step: int, data: dict[str, str], device: str, processes: int
) -> dict[str, Any]:
    """The record of a complete run.

    - ``status``: ``finished``, or ``diverged``, and then ``divergence``: step (from 0), what was not finite, layer.
    - ``steps``: optimiser steps, the one that diverged included; ``train_loss``: one loss per step.
    - ``validation``: a result per measurement, with the number of finished steps; see ``evaluation.evaluate``.
    - ``tokens``: tokens that training read; ``tokens_per_second``: of training, the time of validation left out.
    - ``parameters``, ``device``, ``processes``, ``data`` (the corpus's fingerprint), ``skipped_steps`` (fp16),
      ``sessions``, ``seconds``.

    The learning rates are not in it: they follow from the config (``training.schedules``).
    """
    steps = len(history.train_loss)
    tokens = steps * tokens_per_step
    training_seconds = history.seconds - history.validation_seconds
    return {
        "status": "finished" if history.divergence is None else "diverged",
        "divergence": None if history.divergence is None else history.divergence.to_dict(),
        "steps": steps,
        "train_loss": history.train_loss,
        "validation": history.validation,
        "skipped_steps": history.skipped,
        "parameters": parameters,
        "tokens": tokens,
        "tokens_per_second": tokens / training_seconds if steps and training_seconds > 0 else 0.0,
        "data": data,
        "device": device,
        "processes": processes,
        "seconds": history.seconds,
        "sessions": history.sessions,
    }
