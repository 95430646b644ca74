"""Studies: which training runs a notebook's parameters ask for.

One module per notebook that trains, each with ``runs(parameters) -> list[RunConfig]``. The notebook calls it to load
its runs from the store, the command line to train them beforehand, in parallel or on a cluster.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig

# Notebook → module; imported on demand, since a study imports torch and most callers only ask whether there is one.
_STUDIES = {
    "02_gradient_stability": "transnormer_lib.studies.gradient_stability",
    "03_attention_dilution": "transnormer_lib.studies.dilution",
    "04_autoregressive_lm": "transnormer_lib.studies.autoregressive",
    "05_bidirectional_lm": "transnormer_lib.studies.bidirectional",
    "06_glue": "transnormer_lib.studies.glue",
    "07_lra": "transnormer_lib.studies.arena",
    "08_speed": "transnormer_lib.studies.speed",
    "09_ablations": "transnormer_lib.studies.ablations",
    "10_what_the_paper_leaves_out": "transnormer_lib.studies.register_runs",
}


def has_study(notebook: str) -> bool:
    """Whether ``notebook`` (its stem, like ``03_attention_dilution``) trains models."""
    return notebook in _STUDIES


def runs(notebook: str, parameters: Mapping[str, Any]) -> "list[RunConfig]":
    """The runs that ``notebook`` needs under ``parameters`` (its resolved parameters cell); [] without a study."""
    if notebook not in _STUDIES:
        return []
    study: Callable[[Mapping[str, Any]], list[RunConfig]] = import_module(_STUDIES[notebook]).runs
    return study(parameters)


def run_ids(notebook: str, parameters: Mapping[str, Any]) -> list[str]:
    """The store's names of those runs, ``<name>-<digest>``, in the study's order."""
    from transnormer_lib.training.store import run_id

    return [run_id(config) for config in runs(notebook, parameters)]
