"""A study is one folder and one notebook: a toy study, added to a copy of the project, is found everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from project_factory import CHECKOUT, write_notebook

from transnormer_lib.ledger.measurements import MIME
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import parameters_cell, resolve

NOTEBOOK = "99_toy"
# Notebook 04's parameters of a language model, made as small as they go.
SMALL = {"dim": 8, "heads": 1, "layers": 1, "length": 8, "steps": 2, "batch_size": 2, "warmup": 0, "bands": []}
SMALL |= {"validation_windows": 2, "seeds": [0, 1]}
CELLS = [
    "from transnormer_lib.show import figures\n"
    "from transnormer_lib.studies.common.language_models import final_bits\n"
    "from transnormer_lib.studies.common.notebook import begin\n"
    "from transnormer_lib.studies.common.parameters import read\n"
    "from transnormer_lib.studies.toy import runs as study\n"
    "from transnormer_lib.studies.toy.figures import losses\n"
    "from transnormer_lib.training.store import RunStore\n"
    "claims = begin('99_toy', globals())",
    "bits = [final_bits(RunStore().get(run)) for run in study.runs(read(study.Parameters, globals()))]",
    "figures.show(losses(bits), name='losses', caption='The loss of every run.', alt='Two points.')",
    "claims.property('toy-runs-are-finite', value=all(b < float('inf') for b in bits), expected=True)",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with one folder and one notebook more."""
    root = tmp_path_factory.mktemp("a project")
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("transnormer_lib", "kernels", "params", "notebooks"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=skipped)
    shutil.copy(CHECKOUT / "Snakefile", root / "Snakefile")
    shutil.copytree(Path(__file__).parent / "toy", root / "transnormer_lib" / "studies" / "toy", ignore=skipped)
    values = resolve(Project(CHECKOUT), "quick", "04_autoregressive_lm") | SMALL
    wanted = ("scale", "corpus", "vocabulary", "task", "dim", "heads", "layers", "block_size", "init", "length")
    wanted += (
        "steps",
        "batch_size",
        "accumulate",
        "precision",
        "learning_rate",
        "rates",
        "schedule",
        "warmup",
        "clip_norm",
    )
    wanted += ("rates", "dropout", "validation_windows", "bands", "seeds")
    types = {"bands": "list[list[float]]", "seeds": "list[int]", "rates": "dict[str, float]"}
    lines = [f"{n}: {types.get(n, type(values[n]).__name__)} = {values[n]!r}  # as in notebook 04" for n in wanted]
    write_notebook(root / "notebooks" / f"{NOTEBOOK}.ipynb", CELLS, "\n".join(lines))
    return Project(root)


def run(project: Project, *command: str) -> str:
    paths = os.pathsep.join([str(project.root), str(project.root / "kernels")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=project.root, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cards(executed: Path) -> list[object]:
    """The measurements that the cells of an executed notebook carry."""
    outputs = [output for cell in nbformat.read(executed, 4).cells for output in cell.get("outputs", ())]
    return [output["data"][MIME] for output in outputs if MIME in output.get("data", {})]


def test_its_runs_are_planned(project: Project) -> None:
    planned = json.loads(run(project, "-m", "transnormer_lib.cli", "plan", "--only", "99", "--json"))
    assert [one["run"] for one in planned] == ["causal-toy-seed0", "causal-toy-seed1"]


@pytest.mark.slow
def test_its_claim_is_judged_its_figure_drawn_and_by_hand_it_shows_the_same(project: Project) -> None:
    run(project, "-m", "transnormer_lib.cli", "report", "--only", "99", "--cores", "1")
    report = project.report_dir("quick")
    judged = {claim["id"]: claim for claim in json.loads((report / "claims.json").read_text())}
    assert judged["toy-runs-are-finite"]["verdict"] == "reproduced"
    assert judged["toy-runs-are-finite"]["notebook"] == NOTEBOOK
    page = (report / f"{NOTEBOOK}.html").read_text()
    assert "The loss of every run." in page
    assert 'id="claim-toy-runs-are-finite"' in page
    assert '<figure class="tn-figure" id="fig-losses">' in page
    assert NOTEBOOK in (report / "index.html").read_text()

    # As JupyterLab runs it: the notebook as it is, with the defaults of its parameters cell.
    by_hand = project.root / "by hand.ipynb"
    source = nbformat.read(project.notebook_path(NOTEBOOK), 4)
    assert parameters_cell(source.cells, NOTEBOOK)
    command = "import nbformat, sys; from nbclient import NotebookClient as C\n"
    command += (
        "n = nbformat.read(sys.argv[1], 4); C(n, kernel_name='python3').execute(); nbformat.write(n, sys.argv[2])"
    )
    run(project, "-c", command, str(project.notebook_path(NOTEBOOK)), str(by_hand))
    assert cards(by_hand) == cards(report / f"{NOTEBOOK}.ipynb") != []
