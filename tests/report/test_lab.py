"""A notebook that JupyterLab saves is the committed file again, whatever was run in it."""

import copy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_server.services.contents.manager import ContentsManager

from transnormer_lib.report.lab import without_outputs

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))


def run(content: Any) -> None:
    """What JupyterLab adds to a notebook in which every cell has been run."""
    content["metadata"]["language_info"] |= {"version": "3.13.1", "file_extension": ".py"}
    content["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    content["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}
    for number, cell in enumerate(content["cells"]):
        cell["metadata"] |= {"trusted": True, "execution": {"iopub.execute_input": "2026-11-22"}, "scrolled": False}
        if cell["cell_type"] == "code":
            cell["execution_count"] = number
            cell["outputs"] = [nbformat.v4.new_output("stream", name="stdout", text="a line")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_run_notebook_is_saved_as_it_is_committed(path: Path) -> None:
    committed = path.read_text()
    content = nbformat.reads(committed, as_version=4)
    run(content)
    without_outputs({"type": "notebook", "content": content}, path="notebooks/a.ipynb")
    assert nbformat.writes(content) + "\n" == committed


def test_an_edited_cell_is_saved_as_it_was_edited() -> None:
    content = nbformat.reads(NOTEBOOKS[0].read_text(), as_version=4)
    content["cells"][-1]["source"] = "x = 1"
    without_outputs({"type": "notebook", "content": content}, path="notebooks/a.ipynb")
    assert content["cells"][-1]["source"] == "x = 1"


@pytest.mark.parametrize(
    "model",
    [{"type": "file", "content": "text"}, {"type": "notebook", "content": {"nbformat": 3, "worksheets": []}}],
    ids=["a file", "an old notebook"],
)
def test_other_files_stay_as_they_are(model: dict[str, Any]) -> None:
    before = copy.deepcopy(model)
    without_outputs(model, path="notebooks/x", contents_manager=None)
    assert model == before


@pytest.mark.parametrize("path", ["reports/quick/01_gradient_theory.ipynb", "my notebooks/a.ipynb", "a.ipynb"])
def test_a_notebook_elsewhere_keeps_what_it_measured(path: str) -> None:
    content = nbformat.reads(NOTEBOOKS[0].read_text(), as_version=4)
    run(content)
    before = copy.deepcopy(content)
    without_outputs({"type": "notebook", "content": content}, path=path)
    assert content == before


def test_the_hook_that_make_lab_names_exists() -> None:
    name = "transnormer_lib.report.lab.without_outputs"
    assert f"pre_save_hook={name}" in (CHECKOUT / "Makefile").read_text()
    assert ContentsManager(pre_save_hook=name).pre_save_hook is without_outputs
