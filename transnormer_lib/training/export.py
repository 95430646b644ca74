"""A stored run as a folder to share: ``models.pretrained`` with a model card from the run's record."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from transnormer_lib.data.licences import licence
from transnormer_lib.data.stored_vocabulary import can_be_stored
from transnormer_lib.models.model_card import model_card
from transnormer_lib.training.stored_run import Run

if TYPE_CHECKING:
    from transnormer_lib.data.vocabulary import Vocabulary
    from transnormer_lib.models.backbone import Backbone

_OF_TEXT = ("causal", "masked", "classify")


def export(run: Run, folder: Path) -> None:
    """Write the run's model, vocabulary and card to ``folder``; equal runs give equal bytes.

    Raises ValueError for a folder that exists and for a model that cannot be exported, ``RunFailed`` for a run that did
    not finish or has no weights.
    """
    if folder.exists():
        raise ValueError(f"folder={str(folder)!r}: exists; name a new one")
    model = exported(run)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as partial:  # so that a folder is whole
        whole = Path(partial) / folder.name
        model.save_pretrained(whole)
        whole.rename(folder)


def exported(run: Run) -> "Backbone":
    """The run's model with its vocabulary and its card, ready for ``save_pretrained`` and ``push_to_hub``."""
    from transnormer_lib.models.backbone import Backbone

    if run.record["status"] != "finished":
        raise run.failure()
    model = run.model()
    if not isinstance(model, Backbone):
        raise ValueError(f"run {run.path.name}: {type(model).__name__} is a baseline and cannot be exported")
    model.vocabulary = _vocabulary(run)
    model.card = model_card(model, run.config.name, _sections(run))
    return model


def _vocabulary(run: Run) -> "Vocabulary | None":
    """The vocabulary, unless the task has symbols of its own or it cannot be stored."""
    if run.config.data.task not in _OF_TEXT:
        return None
    vocabulary = run.vocabulary()
    return vocabulary if can_be_stored(vocabulary) and vocabulary.size == run.config.model.vocab_size else None


def _sections(run: Run) -> dict[str, str]:
    record, config, source = run.record, run.config, run.config.data.source
    made = record["provenance"]
    results = {"validation": run.validation} | record["at_end"]
    edited = ", with changes that are not committed" if made["dirty"] else ""
    fingerprint = record["data"].get(source)
    start = "" if config.start_from is None else f" It started from the weights of run `{record['start_from']}`."
    return {
        "Data": f"`{source}`" + (f" (sha256 of its content `{fingerprint}`)" if fingerprint else "") + ".",
        "Results": "\n".join(f"- {split}: {_numbers(result)}" for split, result in results.items()),
        "Training": (
            f"Run `{run.path.name}`: {record['steps']:,} steps of {config.data.batch_size} sequences,"
            f" {record['tokens']:,} tokens, seed {config.seed}, {config.precision}, {record['seconds']:,.0f} s on"
            f" {made['device']}, torch {made['versions']['torch']},"
            f" commit {made['commit'] or 'unknown'}{edited}.{start}"
        ),
        "Licence": (
            "The code is MIT. The weights are learned from the data, whose licence is"
            f" {licence(source) or 'not known to the library: whoever shares this model has to name it'}."
        ),
        "Limits": (
            "The model was trained to measure an architecture. It has not been tested for any use, and what it says may"
            " be false or offensive."
        ),
    }


def _numbers(result: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in result.items() if name != "step")
