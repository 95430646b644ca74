"""Expected losses at early steps: how they are measured, and how they are derived from earlier runs.

A loss far above or far below that of earlier runs of a recipe means that data, code or configuration changed, so the
run stops before it wastes hours. Bands only decide whether a run goes on and are not part of its identity: a run that
stopped outside a band goes on from its checkpoint when it is requested without bands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transnormer_lib.checks import check_positive
from transnormer_lib.training.config import Band, BandOf
from transnormer_lib.training.records import loss_of

_SHARE = 10  # the training loss at a step is the mean over the last tenth of the steps so far


def measured(step: int, of: BandOf, train_loss: Sequence[float], validation: Sequence[Mapping[str, float]]) -> float:
    """The loss in nats that a band compares after ``step`` finished steps.

    One batch's training loss is noisy, so it is averaged over the last tenth of the steps so far, at least one step.
    Raises ValueError if the record does not reach ``step`` or has no validation after it.
    """
    if of == "train":
        if not 0 < step <= len(train_loss):
            raise ValueError(f"step={step!r}: the record has {len(train_loss)} steps")
        window = train_loss[step - max(step // _SHARE, 1) : step]
        return sum(window) / len(window)
    for result in validation:
        if result["step"] == step:
            return loss_of(result)
    raise ValueError(f"step={step!r}: the record has no validation after it")


def outside(
    bands: Iterable[Band], train_loss: Sequence[float], validation: Sequence[Mapping[str, float]]
) -> dict[str, Any] | None:
    """The first of ``bands`` that does not contain its loss, with the loss measured; None if all do."""
    for band in bands:
        loss = measured(band.step, band.of, train_loss, validation)
        if not band.low <= loss <= band.high:
            return {"step": band.step, "of": band.of, "measured": loss, "low": band.low, "high": band.high}
    return None


def describe(found: Mapping[str, Any]) -> str:
    """What :func:`outside` found, in one line."""
    return (
        f"{found['of']} loss {found['measured']:.4g} after {found['step']} steps, expected in"
        f" [{found['low']:.4g}, {found['high']:.4g}]"
    )


def explain(found: Mapping[str, Any]) -> str:
    """:func:`describe`, and how to let the run go on."""
    return f"{describe(found)}; TRANSNORMER_CHECK_BANDS=0 lets it go on from there"


def bands_of(
    records: Sequence[Mapping[str, Any]], steps: Sequence[int], of: BandOf = "train", margin: float = 0.15
) -> tuple[Band, ...]:
    """Bands from earlier runs of a recipe: at each step the range of their losses, widened on both sides by
    ``margin`` times the mean loss.

    Raises ValueError without records, for a run that did not finish, for a step that a record lacks, and for a margin
    that is not positive.
    """
    if not records:
        raise ValueError("records: at least one is needed")
    check_positive("margin", margin)
    for record in records:
        if record["status"] != "finished":
            raise ValueError(f"records: one is {record['status']!r}; bands come from runs that finished")
    bands = []
    for step in steps:
        losses = [measured(step, of, record["train_loss"], record["validation"]) for record in records]
        width = margin * abs(sum(losses) / len(losses))
        bands.append(Band(step, min(losses) - width, max(losses) + width, of))
    return tuple(bands)
