"""The committed notebooks keep the project's form: nothing in them rots unseen."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from transnormer_lib import studies
from transnormer_lib.project import Project
from transnormer_lib.report.notebooks import split_title
from transnormer_lib.report.parameters import declared, parameters_cell, resolve
from transnormer_lib.report.staleness import digest
from transnormer_lib.studies.common.parameters import names, read

PROJECT = Project(Path(__file__).resolve().parents[1])
each_notebook = pytest.mark.parametrize("notebook", PROJECT.notebooks)
each_value_file = pytest.mark.parametrize(
    "path", sorted(PROJECT.root.glob("params/*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def cells(notebook: str) -> list[dict[str, Any]]:
    return json.loads(PROJECT.notebook_path(notebook).read_text())["cells"]


def test_numbers_are_unique_and_every_notebook_is_numbered() -> None:
    numbers = [name.split("_")[0] for name in PROJECT.notebooks]
    assert len(set(numbers)) == len(numbers) > 0
    assert {path.stem for path in (PROJECT.root / "notebooks").glob("*.ipynb")} == set(PROJECT.notebooks)


@each_notebook
def test_a_notebook_holds_no_outputs(notebook: str) -> None:
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@each_notebook
def test_a_notebook_opens_with_what_it_asks_how_and_what_answers_it(notebook: str) -> None:
    """In three sentences at most between the title and the next heading, with which its page opens."""
    _, rest = split_title("".join(cells(notebook)[0]["source"]))
    lead = re.split(r"(?m)^## ", rest)[0]
    assert 1 <= len(re.findall(r"(?<!et al)[.?!](?=[*\s\"]|$)", lead.strip())) <= 3


@each_notebook
def test_a_cell_has_at_most_fifteen_lines_beside_imports(notebook: str) -> None:
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    own = parameters_cell(cells(notebook), notebook)["id"]
    lines = {c["id"]: "".join(c["source"]).splitlines() for c in code if c["id"] != own}
    for name, source in lines.items():
        lines[name] = [line for line in source if line and not line.startswith(("import ", "from "))]
    assert [name for name, source in lines.items() if len(source) > 15] == []


@each_notebook
def test_parameters_come_before_everything_they_could_change(notebook: str) -> None:
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert code[0]["id"] == parameters_cell(cells(notebook), notebook)["id"]


@each_notebook
def test_every_parameter_is_explained_and_scale_is_one_of_them(notebook: str) -> None:
    parameters = declared(PROJECT, notebook)
    assert [p.name for p in parameters if not p.comment] == []
    assert [p.annotation for p in parameters if p.name == "scale"] == ["str"]


@each_notebook
def test_a_notebook_has_every_module_that_it_imports(notebook: str) -> None:
    assert digest(PROJECT, notebook, {})


@each_value_file
def test_every_value_of_every_preset_fits_its_notebook(path: Path) -> None:
    if path.stem == "preset":
        assert PROJECT.preset(path.parent.name).scale == path.parent.name
    else:
        assert resolve(PROJECT, path.parent.name, path.stem)["scale"] == path.parent.name


@each_notebook
def test_the_defaults_are_the_quick_preset(notebook: str) -> None:
    """So a notebook opened in JupyterLab computes what the quick report shows."""
    assert resolve(PROJECT, "quick", notebook) == {p.name: p.default for p in declared(PROJECT, notebook)}
    assert not PROJECT.values_path("quick", notebook).exists()


@pytest.mark.parametrize("preset", [name for name in PROJECT.presets if name != "quick"])
@each_notebook
def test_a_preset_says_only_what_differs(preset: str, notebook: str) -> None:
    """From the defaults, or from the notebook that it extends: a value that changes nothing is not written."""
    own = {name for name in PROJECT.values(preset, notebook) if name != "extends"}
    resolved = resolve(PROJECT, preset, notebook)
    for name in own:
        assert without(preset, notebook, name) != resolved, f"params/{preset}/{notebook}.yaml: {name} changes nothing"


def without(preset: str, notebook: str, name: str) -> dict[str, Any]:
    """The notebook's resolved values if the preset did not name ``name``."""

    class Without(Project):
        def values(self, of: str, asked: str) -> dict[str, Any]:
            found = super().values(of, asked)
            return {k: v for k, v in found.items() if (asked, k) != (notebook, name)}

    return resolve(Without(PROJECT.root), preset, notebook)


@each_notebook
def test_a_study_reads_the_notebook_s_parameters_by_their_names_and_types(notebook: str) -> None:
    module = f"transnormer_lib.studies.{notebook[3:]}.runs"
    if not studies.has_study(notebook):
        pytest.skip(f"there is no {module}")
    kind = import_module(module).Parameters
    defaults = {p.name: p.default for p in declared(PROJECT, notebook)}
    assert isinstance(read(kind, defaults), kind)
    assert set(names(kind)) <= set(defaults)


def test_the_first_notebook_says_what_each_of_the_others_is_about() -> None:
    texts = ["".join(c["source"]) for c in cells(PROJECT.notebooks[0]) if c["cell_type"] == "markdown"]
    (list_of_others,) = [text for text in texts if text.startswith("## What to read next")]
    assert [name for name in PROJECT.notebooks[1:] if f"- **{name[:2]}, " not in list_of_others] == []
    assert [name for name in PROJECT.notebooks[1:] if f"]({name}.ipynb)" not in list_of_others] == []
