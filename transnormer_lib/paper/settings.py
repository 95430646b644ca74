"""What the paper, and the scripts released with it, say about training: ``settings.yaml``, one record per place."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from transnormer_lib.paper.records import PACKAGE, Record, build, read_list

FILE = PACKAGE / "settings.yaml"
# Sources that are code, at the commit that was read: the released training scripts, and Skyformer's configuration.
SCRIPTS = "OpenNLPLab/Transnormer@fba2b49"
SKYFORMER = "pkuzengqi/Skyformer@1a677cb"
Model = Literal["autoregressive", "bidirectional", "arena"]


class Settings(Record):
    """The values that one place gives for one kind of model, as printed."""

    source: str  # "Table 13", "Section 5.1", or repository@commit, as SCRIPTS
    model: Model
    values: dict[str, Any]


@lru_cache
def load(path: Path = FILE) -> tuple[Settings, ...]:
    """Every record. Raises ValueError naming the entry for one that is broken."""
    return tuple(build(Settings, fields, f"{path.name}: entry {n}") for n, fields in enumerate(read_list(path), 1))


def said(source: str, model: Model, name: str) -> Any:
    """What ``source`` says of ``name`` for a kind of model. Raises ValueError where it says nothing."""
    for settings in load():
        if settings.source == source and settings.model == model and name in settings.values:
            return settings.values[name]
    raise ValueError(f"name={name!r}: {source} says nothing of it for the {model} model")
