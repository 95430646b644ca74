"""A notebook's parameters are checked in its first cell, in one line, and it runs with its preset's threads."""

import os
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from project_factory import CHECKOUT

from transnormer_lib.project import Project
from transnormer_lib.report.parameters import declared, resolve
from transnormer_lib.studies.common.notebook import WrongParameter, begin

NOTEBOOK = "04_autoregressive_lm"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The globals of a notebook after its parameters cell; threads and environment are put back afterwards."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    project = Project(CHECKOUT)
    annotations = {parameter.name: parameter.type for parameter in declared(project, NOTEBOOK)}
    return {**resolve(project, "quick", NOTEBOOK), "__annotations__": annotations}


def test_it_runs_with_the_threads_of_its_preset(variables: dict[str, Any]) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        claims = begin(NOTEBOOK, variables)
        assert torch.get_num_threads() == 1
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert claims.scale == "quick"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"steps": "many"}, r"^steps='many': must be int"),
        ({"seeds": [0, "one"]}, r"^seeds=\[0, 'one'\]: must be list\[int\]"),
        ({"heads": 3}, r"heads=3: must divide dim=64"),
        ({"architectures": ["vanila"]}, r"architecture='vanila': must be one of 'vanilla'"),
        ({"scale": "mine"}, r"preset='mine'"),
        ({"corpus": "novels.txt"}, r"corpus='novels.txt': must be"),
    ],
    ids=["type", "element", "value", "architecture", "scale", "corpus"],
)
def test_a_wrong_parameter_is_one_line(change: dict[str, Any], line: str, variables: dict[str, Any]) -> None:
    with pytest.raises(WrongParameter, match=line) as caught:
        begin(NOTEBOOK, variables | change)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_jupyter_shows_one_line_below_the_first_cell() -> None:
    notebook = nbformat.read(CHECKOUT / "notebooks" / f"{NOTEBOOK}.ipynb", 4)
    parameters = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source = parameters.source.replace("heads: int = 4", "heads: int = 3", 1)
    with pytest.raises(CellExecutionError):
        NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(CHECKOUT)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    failed = [cell for cell in code if any(output.output_type == "error" for output in cell.outputs)]
    assert failed == code[1:2]
    (error,) = failed[0].outputs
    assert len(error.traceback) == 1
    assert "heads=3: must divide dim=64" in error.traceback[0]
