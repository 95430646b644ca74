"""Tiny projects for the tests of the report path: notebooks of a few cells, one preset."""

import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nbformat

from transnormer_lib.project import Project
from transnormer_lib.report.signals import ENDING

CHECKOUT = Path(__file__).resolve().parents[2]
# A study that trains four runs in no time.
STUDY = "03_attention_dilution"
TINY = {"architectures": ["vanilla", "linear"], "mixtures": ["linear"], "seeds": [0, 1], "dim": 8, "heads": 2}
TINY |= {"layers": 2, "length": 8, "block_size": 4, "steps": 2, "warmup": 1, "batch_size": 2, "validation_windows": 2}
TINY |= {"bands": []}
PARAMETERS = 'scale: str = "quick"  # the preset\nsize: int = 3  # how many'


def write_notebook(path: Path, cells: Sequence[str], parameters: str | None = PARAMETERS) -> None:
    """Code cells, with a title before them and a parameters cell unless ``parameters`` is None."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    notebook.cells.append(nbformat.v4.new_markdown_cell(f"# {path.stem}\n\nA test.", id="title"))
    if parameters is not None:
        tagged = nbformat.v4.new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]})
        notebook.cells.append(tagged)
    for number, source in enumerate(cells):
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"cell-{number}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def make_project(
    root: Path,
    notebooks: Mapping[str, Sequence[str]],
    values: Mapping[str, str] | None = None,
    minutes: float = 5.0,
) -> Project:
    """A project with these notebooks, YAML texts in ``values`` and the checkout's Snakefile."""
    for name, cells in notebooks.items():
        write_notebook(root / "notebooks" / f"{name}.ipynb", cells)
    params = root / "params" / "quick"
    params.mkdir(parents=True, exist_ok=True)
    (params / "preset.yaml").write_text(
        "scale: quick\ndescription: A test.\ndevice: cpu\nthreads: 1\nruns_per_job: 1\n"
        f"minutes_per_notebook: {minutes}\n"
    )
    for name, text in (values or {}).items():
        (params / f"{name}.yaml").write_text(text)
    shutil.copy(CHECKOUT / "Snakefile", root / "Snakefile")
    return Project(root)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Fails if the condition does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def listen() -> None:
    """In a child process before it starts: hear what asks it to end even where the tests run in the background."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def study_project(root: Path, notebook: str = STUDY) -> Project:
    """A project with one notebook and the quick preset of the checkout."""
    (root / "notebooks").mkdir()
    shutil.copy(CHECKOUT / "notebooks" / f"{notebook}.ipynb", root / "notebooks")
    shutil.copytree(CHECKOUT / "params" / "quick", root / "params" / "quick")
    return Project(root)
