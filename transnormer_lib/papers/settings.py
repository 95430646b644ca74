"""Training settings in a paper and its released scripts: ``papers/<paper>/settings.yaml``, one record per source."""

from functools import lru_cache
from typing import Any, Literal

from transnormer_lib.papers import catalogue
from transnormer_lib.papers.records import Record, build, read_list

# Sources that are code, at the commit we read: the released training scripts, and Skyformer's configuration.
SCRIPTS = "OpenNLPLab/Transnormer@fba2b49"
SKYFORMER = "pkuzengqi/Skyformer@1a677cb"
Model = Literal[
    "autoregressive", "bidirectional", "arena",  # TransNormer
    "copy", "cost", "mnist", "cifar", "speech",  # Transformers are RNNs
    "gau", "roformer",  # GAU-based model
    "sentences",  # what a text says of its tables
]  # fmt: skip


class Settings(Record):
    """The values that one source gives for one kind of model, or in its sentences, as printed."""

    source: str  # "Table 13", "Section 5.1", or repository@commit, as SCRIPTS
    model: Model
    values: dict[str, Any]


@lru_cache
def load(paper: str) -> tuple[Settings, ...]:
    """Every record of a paper. Raises ValueError naming an invalid entry."""
    path = catalogue.folder(paper) / "settings.yaml"
    return tuple(build(Settings, fields, f"{path.name}: entry {n}") for n, fields in enumerate(read_list(path), 1))


def said(paper: str, source: str, model: Model, name: str) -> Any:
    """The value of ``name`` that ``source`` gives for a kind of model. Raises ValueError if it gives none."""
    for settings in load(paper):
        if settings.source == source and settings.model == model and name in settings.values:
            return settings.values[name]
    raise ValueError(f"name={name!r}: {source} gives no value of it for the {model} model")
