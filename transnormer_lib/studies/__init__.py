"""One folder per study: the runs it needs, what the paper printed, what the runs show, its figures and its claims.

A study is found by its name, which is its notebook's without the number (``06_glue`` → ``studies/glue``). It has those
of these files that it needs:

- ``runs.py``      ``Parameters``, the typed parameters of the notebook, and ``runs(parameters) -> list[RunConfig]``;
- ``published.py`` what follows from the printed tables and sentences alone;
- ``results.py``   what the runs say;
- ``figures.py``   its figures;
- ``claims.yaml``  its claims;
- ``plan*.yaml``   what was decided before its judged runs were trained (``common.plans``).

``common`` holds what studies share. A study whose notebook shows committed files names them in its ``__init__.py``:
``READS = ("reports/benchmarks/*.json",)``, patterns below the project's folder. A study that can do without a package
names it in ``OPTIONAL``, so that its notebook runs again when the package has been installed.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transnormer_lib.training.config import RunConfig


def _name(notebook: str, module: str = "") -> str | None:
    """The name of the study's package, or of one of its modules; None where there is none."""
    name = f"{__name__}.{notebook[3:]}"
    full = f"{name}.{module}" if module else name
    return full if find_spec(name) and find_spec(full) else None


@cache
def has_study(notebook: str) -> bool:
    """Whether ``notebook`` (its stem, like ``03_attention_dilution``) trains models."""
    return _name(notebook, "runs") is not None


def reads(notebook: str) -> tuple[str, ...]:
    """The committed files that the notebook shows, as patterns below the project's folder."""
    name = _name(notebook)
    return () if name is None else getattr(import_module(name), "READS", ())


def optional(notebook: str) -> dict[str, bool]:
    """The packages that the notebook can do without, and whether they are installed."""
    name = _name(notebook)
    packages = () if name is None else getattr(import_module(name), "OPTIONAL", ())
    return {package: find_spec(package) is not None for package in packages}


def runs(notebook: str, parameters: Mapping[str, Any]) -> "list[RunConfig]":
    """The runs that ``notebook`` needs under ``parameters`` (its resolved parameters cell); [] without a study."""
    name = _name(notebook, "runs")
    if name is None:
        return []
    from transnormer_lib.studies.common.parameters import read

    study = import_module(name)  # on demand: it imports torch, and most callers ask only whether there is a study
    return study.runs(read(study.Parameters, parameters))
