"""A notebook is stale when something changed that its results depend on, and only then."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from project_factory import make_project, write_notebook

from transnormer_lib.project import Project, UserMistake
from transnormer_lib.provenance import imports
from transnormer_lib.report.staleness import digest, refresh_markdown

CELLS = ["from tiny import tables", "print(tables.X)"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose notebook imports one module of a package ``tiny`` and leaves another alone."""
    package = tmp_path / "tiny"
    package.mkdir()
    for name, text in {
        "__init__.py": "",
        "tables.py": "X = 1\n",
        "tables.yaml": "a: 1\n",
        "other.py": "",
        "other.yaml": "a: 1\n",
    }.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "PACKAGES", ("tiny",))
    imports._graph.cache_clear()
    yield make_project(tmp_path, {"01_a": CELLS})
    imports._graph.cache_clear()


def edit_file(name: str, text: str) -> Callable[[Project], None]:
    return lambda project: (project.root / "tiny" / name).write_text(text)  # type: ignore[return-value]


def edit_cell(kind: str, text: str) -> Callable[[Project], None]:
    def edit(project: Project) -> None:
        path = project.notebook_path("01_a")
        notebook = nbformat.read(path, as_version=4)
        [cell for cell in notebook.cells if cell.cell_type == kind][-1].source = text
        nbformat.write(notebook, path)

    return edit


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        (edit_cell("code", "print(tables.X + 1)"), True),
        (edit_cell("markdown", "# Another title"), False),
        (edit_file("tables.py", "X = 2\n"), True),
        (edit_file("tables.yaml", "a: 2\n"), True),
        (edit_file("__init__.py", "import os\n"), True),
        (edit_file("other.py", "Y = 2\n"), False),
        (edit_file("other.yaml", "a: 2\n"), False),
        (lambda project: project.notebook_path("01_a").touch(), False),
    ],
    ids=["code", "prose", "imported", "its-data", "package", "not-imported", "not-its-data", "touched"],
)
def test_an_edit_makes_stale_what_depends_on_it(edit: Callable[[Project], None], stale: bool, project: Project) -> None:
    before = digest(project, "01_a", {"size": 3})
    edit(project)
    imports._graph.cache_clear()
    assert (digest(project, "01_a", {"size": 3}) != before) is stale


def test_a_parameter_makes_stale(project: Project) -> None:
    assert digest(project, "01_a", {"size": 3}) != digest(project, "01_a", {"size": 4})


def test_magics_are_no_syntax_errors_and_other_errors_name_the_cell(project: Project) -> None:
    write_notebook(project.notebook_path("01_a"), ["%matplotlib inline\nimport os\n!ls"])
    digest(project, "01_a", {})
    write_notebook(project.notebook_path("01_a"), ["1", "print(1)\n1 +"])
    with pytest.raises(UserMistake, match="01_a: code cell 3, line 2: invalid syntax"):
        digest(project, "01_a", {})


@pytest.mark.parametrize("code", ["x = '\0'", "x = '\ud800'", "(" * 5000], ids=["null", "surrogate", "deep"])
def test_code_that_cannot_be_read_names_the_cell(code: str, project: Project) -> None:
    path = project.notebook_path("01_a")
    notebook = json.loads(path.read_text())
    notebook["cells"][-1]["source"] = code
    path.write_text(json.dumps(notebook))
    with pytest.raises(UserMistake, match=r"01_a: code cell \d+(, line \d+)?: .+"):
        digest(project, "01_a", {})


@pytest.fixture
def pair(project: Project) -> tuple[dict[str, Any], dict[str, Any]]:
    """A notebook and what papermill makes of it: outputs, metadata and the injected parameters."""
    source = json.loads(project.notebook_path("01_a").read_text())
    executed = copy.deepcopy(source)
    for number, cell in enumerate(executed["cells"]):
        cell["metadata"]["papermill"] = {"status": "completed"}
        if cell["cell_type"] == "code":
            cell |= {
                "execution_count": number,
                "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1"]}],
            }
    injected = {"cell_type": "code", "metadata": {"tags": ["injected-parameters"]}, "source": ["size = 5"]}
    executed["cells"].insert(2, {**injected, "id": "i", "outputs": [], "execution_count": 2})
    return source, executed


def test_unchanged_prose_is_left_alone(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    source, executed = pair
    before = copy.deepcopy(executed)
    assert not refresh_markdown(source, executed)
    assert executed == before


def test_new_prose_arrives_and_every_output_stays(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    source, executed = pair
    before = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    source["cells"][0]["source"] = ["# Better"]
    source["cells"].append({"cell_type": "markdown", "id": "end", "metadata": {}, "source": ["The end."]})
    assert refresh_markdown(source, executed)
    assert [c["source"] for c in executed["cells"] if c["cell_type"] == "markdown"] == [
        ["# Better"],
        ["The end."],
    ]
    assert [cell for cell in executed["cells"] if cell["cell_type"] == "code"] == before


def test_new_code_keeps_the_old_prose_until_it_has_run(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    source, executed = pair
    source["cells"][0]["source"] = ["# Better"]
    source["cells"][-1]["source"] = ["print(2)"]
    assert not refresh_markdown(source, executed)
    assert executed["cells"][0]["source"] != ["# Better"]


@pytest.mark.parametrize(("notebook", "stale"), [("08_speed", True), ("07_lra", False)])
def test_a_notebook_that_draws_the_kernels_benchmark_is_stale_once_there_is_one(
    tmp_path: Path, notebook: str, stale: bool
) -> None:
    checkout = Path(__file__).resolve().parents[2]
    (tmp_path / "notebooks").symlink_to(checkout / "notebooks")
    project = Project(tmp_path)
    before = digest(project, notebook, {})
    (tmp_path / "reports" / "benchmarks").mkdir(parents=True)
    (tmp_path / "reports" / "benchmarks" / "h200.json").write_text("{}")
    assert (digest(project, notebook, {}) != before) is stale
