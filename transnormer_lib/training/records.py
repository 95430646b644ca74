"""What a run leaves besides its weights: the history that grows during training, and the JSON-ready record."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from transnormer_lib.checks import check_choice, check_count, check_not_negative, is_number

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


_COUNTS = ("steps", "kept_step", "parameters", "tokens", "processes", "sessions", "evaluation")
_AMOUNTS = ("tokens_per_second", "seconds", "flops")
_MAPPINGS = ("at_end", "data", "arithmetic", "provenance")
_COMPLETE = ("finished", "diverged")  # a run that stopped outside a band is not complete


def check_record(record: Mapping[str, Any]) -> None:
    """Refuse what is no record of a complete run: all that readers of a store ask of it must be there.

    Raises ValueError naming the field, the value and the rule. Further fields are not looked at.
    """
    fields = (*_COUNTS, *_AMOUNTS, *_MAPPINGS, "status", "divergence", "train_loss", "validation", "device")
    if missing := [name for name in fields if name not in record]:
        raise ValueError(f"{missing[0]}: is missing")
    check_choice("status", record["status"], _COMPLETE)
    for name in _COUNTS:
        check_count(name, record[name], 0)
    for name in _AMOUNTS:
        check_not_negative(name, record[name])
    for name in _MAPPINGS:
        _check_mapping(name, record[name])
    for name, value in record["data"].items():
        if not isinstance(value, str):
            raise ValueError(f"data.{name}={value!r}: must be a fingerprint")
    _check_mapping("provenance", record["provenance"], "commit", "dirty", "device", "versions")
    _check_mapping("provenance.versions", record["provenance"]["versions"])
    if record["status"] == "diverged":
        _check_mapping("divergence", record["divergence"], "step", "what", "layer")
    losses = record["train_loss"]
    if not isinstance(losses, list) or len(losses) != record["steps"] or not all(map(is_number, losses)):
        raise ValueError(f"train_loss: must be a list of steps={record['steps']} numbers")
    if not isinstance(record["validation"], list):
        raise ValueError(f"validation={record['validation']!r}: must be a list of results")
    for result in record["validation"]:
        _check_result("validation", result)
        check_count("validation.step", result.get("step"), 0)
    for split, result in record["at_end"].items():
        _check_result(f"at_end.{split}", result)
    kept = record["kept_step"]
    if record["status"] == "finished" and all(result["step"] != kept for result in record["validation"]):
        raise ValueError(f"validation: must have a result of kept_step={kept}")


def _check_mapping(name: str, value: object, *needed: str) -> None:
    if not isinstance(value, Mapping) or not value.keys() >= set(needed):
        raise ValueError(f"{name}={value!r}: must be a mapping{' with ' if needed else ''}{', '.join(needed)}")


def _check_result(name: str, result: object) -> None:
    """A loss, a score beside it, and numbers only."""
    loss = ("nats_per_token", "nats_per_example")
    if (
        not isinstance(result, Mapping)
        or not all(map(is_number, result.values()))
        or not any(part in result for part in loss)
        or not result.keys() - {"step", *loss}
    ):
        raise ValueError(f"{name}={result!r}: must map a loss in nats and a score to numbers")


def explain_divergence(found: Mapping[str, Any]) -> str:
    """What a record's ``divergence`` says, in half a sentence."""
    where = f" of {found['layer']}" if found["layer"] else ""
    return f"{found['what']}{where} not finite at step {found['step']}"
