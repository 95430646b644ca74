"""What a run leaves besides its weights: one JSON-ready record, and the history it grows from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from transnormer_lib.training.divergence import Divergence

# What may differ between two runs of one config on one machine. All else in a record is the same to the last bit.
RUN_CONDITIONS = ("seconds", "tokens_per_second", "peak_memory", "sessions", "processes", "provenance")


@dataclass
class History:
    """The part of a run's state that grows: what was measured after each step, and how long it took."""

    train_loss: list[float] = field(default_factory=list)  # per optimiser step, nats per counted token
    validation: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0  # that training read, padding left out
    best_step: int | None = None  # the evaluation whose weights are the best so far, where the config keeps those
    at_end: dict[str, dict[str, float]] = field(default_factory=dict)  # per further split, the result at the end
    skipped: int = 0  # optimiser steps that fp16's gradient scaler left out
    seconds: float = 0.0  # in all sessions together
    validation_seconds: float = 0.0  # of those, spent on validation
    sessions: int = 1  # how often the run was begun or taken up again
    divergence: Divergence | None = None
    outside: dict[str, Any] | None = None  # the band that the loss is outside of (``training.bands``)

    @property
    def ended(self) -> bool:
        """Whether the run goes no further, however many steps are left."""
        return self.divergence is not None or self.outside is not None

    @property
    def status(self) -> str:
        """How the run ended."""
        if self.divergence is not None:
            return "diverged"
        return "finished" if self.outside is None else "outside-band"

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        values = asdict(self)
        del values["divergence"]  # a diverged run is complete
        del values["outside"]  # looked for again, because the bands may be others by then
        return values


def loss_of(result: Mapping[str, float]) -> float:
    """The loss in nats of a validation result, per token or per example."""
    return result["nats_per_token"] if "nats_per_token" in result else result["nats_per_example"]


def make_record(
    history: History, *, parameters: int, data: dict[str, str], device: str, processes: int
) -> dict[str, Any]:
    """The record of a complete run.

    - ``status``: ``finished``; or ``diverged``, and then ``divergence``: step (from 0), what was not finite, layer; or
      ``outside-band``, and then ``outside``: after which step, of what loss, measured, low, high.
    - ``steps``: optimiser steps, the one that diverged included; ``train_loss``: one loss per step.
    - ``validation``: a result per measurement, with the number of finished steps; see ``evaluation.evaluate``.
    - ``kept_step``: the number of finished steps after which the weights were those that the run leaves;
      ``at_end``: with those, the result on each further split that the config names.
    - ``tokens``: tokens that training read, padding left out; ``tokens_per_second``: of training, the time of
      validation left out.
    - ``parameters``, ``device``, ``processes``, ``data`` (the corpus's fingerprint), ``skipped_steps`` (fp16),
      ``sessions``, ``seconds``.

    The learning rates are not in it: they follow from the config (``training.schedules``).
    """
    steps = len(history.train_loss)
    training_seconds = history.seconds - history.validation_seconds
    # The step that diverged has a loss and left the weights as they were.
    finished = steps if history.divergence is None else history.divergence.step
    return {
        "status": history.status,
        "divergence": None if history.divergence is None else history.divergence.to_dict(),
        "outside": history.outside,
        "steps": steps,
        "train_loss": history.train_loss,
        "validation": history.validation,
        "kept_step": finished if history.best_step is None else history.best_step,
        "at_end": history.at_end,
        "skipped_steps": history.skipped,
        "parameters": parameters,
        "tokens": history.tokens,
        "tokens_per_second": history.tokens / training_seconds if steps and training_seconds > 0 else 0.0,
        "data": data,
        "device": device,
        "processes": processes,
        "seconds": history.seconds,
        "sessions": history.sessions,
    }
