"""What a run leaves besides its weights: the history that grows during training, and the JSON-ready record."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transnormer_lib.training.divergence import Divergence


@dataclass
class History:
    """What a run has measured so far, and how long it took."""

    train_loss: list[float] = field(default_factory=list)  # per optimiser step, nats per counted token
    validation: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0  # read by training, without padding
    best_step: int | None = None  # of the best evaluation so far, if the config keeps its weights
    at_end: dict[str, dict[str, float]] = field(default_factory=dict)  # final results by further split
    skipped: int = 0  # optimiser steps that fp16's gradient scaler left out
    seconds: float = 0.0  # of all sessions
    validation_seconds: float = 0.0  # of those, spent on validation
    sessions: int = 1  # how often the run was started or resumed
    divergence: "Divergence | None" = None
    outside: dict[str, Any] | None = None  # the band that does not contain the loss (``training.bands``)

    @property
    def status(self) -> str:
        """How the run ended; ``finished`` also while it still trains."""
        if self.divergence is not None:
            return "diverged"
        return "finished" if self.outside is None else "outside-band"

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        values = asdict(self)
        del values["divergence"]  # a diverged run is complete
        del values["outside"]  # checked again on resuming, because the bands may have changed
        return values


def loss_of(result: Mapping[str, float]) -> float:
    """The loss in nats of a validation result, per token or per example."""
    return result["nats_per_token"] if "nats_per_token" in result else result["nats_per_example"]


def error_of(result: Mapping[str, float]) -> float:
    """What is to fall: a transcriber's error rate, else the loss."""
    return result["error_rate"] if "error_rate" in result else loss_of(result)


def make_record(
    history: History, *, parameters: int, data: dict[str, str], device: str, processes: int
) -> dict[str, Any]:
    """The record of a complete run.

    - ``status``: ``finished``; ``diverged``, with ``divergence``: step (from 0), what was not finite, layer; or
      ``outside-band``, with ``outside``: step, kind of loss, measured, low, high.
    - ``steps``: optimiser steps, including one that diverged; ``train_loss``: the loss of each.
    - ``validation``: a result per evaluation, with the number of finished steps; see ``evaluation.evaluate``.
    - ``kept_step``: the number of finished steps of the kept weights; ``at_end``: their results on further splits.
    - ``tokens``: tokens that training read, without padding; ``tokens_per_second``: without the time of validation.
    - ``parameters``, ``device``, ``processes``, ``data`` (fingerprints), ``skipped_steps`` (fp16), ``sessions``,
      ``seconds``. The learning rates follow from the config (``training.schedules``).
    """
    steps = len(history.train_loss)
    training_seconds = history.seconds - history.validation_seconds
    # The step that diverged has a loss and left the weights unchanged.
    finished = steps if history.divergence is None else history.divergence.step
    return {
        "status": history.status,
        "divergence": None if history.divergence is None else asdict(history.divergence),
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


def explain_divergence(found: Mapping[str, Any]) -> str:
    """What a record's ``divergence`` says, in half a sentence."""
    where = f" of {found['layer']}" if found["layer"] else ""
    return f"{found['what']}{where} not finite at step {found['step']}"
