"""How a notebook begins: its parameters are checked before anything is computed, and its preset's threads are set."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transnormer_lib import studies
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.show import figures
from transnormer_lib.show.claims import Claims
from transnormer_lib.strict import check_type
from transnormer_lib.training.identity import run_id

_CHECKOUT = Project(Path(__file__).resolve().parents[3])


class WrongParameter(ValueError):
    """A parameter of the notebook cannot be used. Jupyter shows this one line and no traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{type(self).__name__}: {self}"]


def begin(notebook: str, variables: Mapping[str, Any]) -> Claims:
    """The claims of ``notebook``, whose ``variables`` are its ``globals()`` after the parameters cell.

    Sets the theme of the figures, and the threads of the preset that ``scale`` names: on a busy machine many threads on
    tiny tensors wait for each other. Raises :class:`WrongParameter` for a wrong type, a scale that is no preset, and
    values of which the study can make no run, for example a corpus that does not exist.
    """
    import torch

    try:
        for name, kind in variables.get("__annotations__", {}).items():
            check_type(name, variables[name], kind)
        preset = _CHECKOUT.preset(variables["scale"])
        for run in studies.runs(notebook, variables)[:1]:
            run_id(run)  # reads its data, which a later cell does anyway
    except DataUnavailable:
        pass  # the cell that reads them says which and how to get them
    except (ValueError, UserMistake) as mistake:
        raise WrongParameter(" ".join(str(mistake).split())) from None
    os.environ.update(preset.environment)  # of the processes that the notebook starts
    torch.set_num_threads(preset.threads)
    figures.theme()
    return Claims(notebook, scale=variables["scale"])
