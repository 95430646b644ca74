"""Expected losses at early steps: how they are measured, and where they come from.

A run whose loss is far from where earlier runs of the same recipe had it is not worth its remaining hours: something
in data, code or configuration is not what it was. A loss far below is as suspicious as one far above. Bands change
nothing in a run but whether it goes on, so they are no part of its identity; a run that stopped outside goes on from
where it stood when it is asked for without them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from transnormer_lib.training.config import Band, BandOf, RunConfig
from transnormer_lib.training.records import History, loss_of

_SHARE = 10  # the training loss at a step is the mean over the last tenth of the steps up to it


def measured(step: int, of: BandOf, train_loss: Sequence[float], validation: Sequence[Mapping[str, float]]) -> float:
    """The loss in nats that a band looks at after ``step`` finished steps.

    One batch's training loss says little, so that is the mean over the last tenth of the steps so far, at least one.
    Raises ValueError where the record does not reach that far.
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


def outside(config: RunConfig, step: int, history: History) -> dict[str, Any] | None:
    """The first of the config's bands after ``step`` steps that the run is outside of, with what was measured."""
    here = [band for band in config.bands if band.step == step]
    return next(_outside(here, history.train_loss, history.validation), None)


def outside_finished(config: RunConfig, record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first of the config's bands that a finished run with this record is outside of; None for another run."""
    if record["status"] != "finished":
        return None
    return next(_outside(config.bands, record["train_loss"], record["validation"]), None)


def _outside(
    bands: Iterable[Band], train_loss: Sequence[float], validation: Sequence[Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    for band in bands:
        loss = measured(band.step, band.of, train_loss, validation)
        if not band.low <= loss <= band.high:
            yield {"step": band.step, "of": band.of, "measured": loss, "low": band.low, "high": band.high}


def explain(found: Mapping[str, Any]) -> str:
    """One line on a run that stopped outside a band."""
    return f"{describe(found)}; TRANSNORMER_CHECK_BANDS=0 lets it go on from there"


def describe(found: Mapping[str, Any]) -> str:
    """What was measured outside a band, and where it was expected."""
    return (
        f"{found['of']} loss {found['measured']:.4g} after {found['step']} steps, expected in"
        f" [{found['low']:.4g}, {found['high']:.4g}]"
    )


def bands_of(
    records: Sequence[Mapping[str, Any]], steps: Sequence[int], of: BandOf = "train", margin: float = 0.15
) -> tuple[Band, ...]:
    """Bands from the records of earlier runs of a recipe: at each step from the lowest loss to the highest, and
    ``margin`` times their mean to either side.

    Raises ValueError for no record, one that did not finish, a step that it lacks, or a margin that is not positive.
    """
    if not records:
        raise ValueError("records: at least one is needed")
    if not margin > 0:
        raise ValueError(f"margin={margin!r}: must be greater than 0")
    for record in records:
        if record["status"] != "finished":
            raise ValueError(f"records: one is {record['status']!r}; bands come from runs that finished")
    bands = []
    for step in steps:
        losses = [measured(step, of, record["train_loss"], record["validation"]) for record in records]
        width = margin * abs(sum(losses) / len(losses))
        bands.append(Band(step, min(losses) - width, max(losses) + width, of))
    return tuple(bands)
