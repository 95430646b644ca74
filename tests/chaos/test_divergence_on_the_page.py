"""A run that diverges, from the step that breaks to the ledger's words and the page; the other runs go on."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any, get_args

import pytest
from chaos_trials import Tried
from project_factory import CHECKOUT, write_notebook

from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.training.divergence import What

NOTEBOOK, STUDY, SEEDS, STEPS = "99_numbers", "numbers", 5, 6

# Row → (what is not finite, the part, the first step at which). The seed 2 of a row is broken, no other run is.
BROKEN = {
    "loss": ("loss", None, 3),
    "activation": ("activation", "blocks.1.feed_forward", 3),
    "gradient": ("gradient", "blocks.0.feed_forward", 3),
    "validation": ("activation", "blocks.0.feed_forward", 3),
    "logits": ("activation", "blocks.0.attention", 3),
    "rate": (None, None, None),  # a learning rate beyond measure: whatever breaks first
}

RUNS = '''
"""One decoder per row and seed; the rows differ in what is broken in their seed 2."""

from dataclasses import dataclass, replace

import torch

from transnormer_lib.studies.common import language_models
from transnormer_lib.training import trainer
from transnormer_lib.training.config import RunConfig


@dataclass(frozen=True)
class Parameters(language_models.LanguageModelParameters):
    rows: tuple[str, ...]
    seeds: tuple[int, ...]


def runs(parameters: Parameters) -> list[RunConfig]:
    model = language_models.model("linear", parameters)
    made = [language_models.run(row, model, seed, parameters) for row in parameters.rows for seed in parameters.seeds]
    made = [replace(run, evaluations=2) for run in made]
    beyond = replace(made[0].optimizer, learning_rate=1e30, schedule="constant")
    return [replace(run, optimizer=beyond) if run.name == "causal-rate-seed2" else run for run in made]


def breaking(act, only_after=3):
    seen = 0

    def hook(module, inputs, output):
        nonlocal seen
        seen += module.training
        return act(output) if module.training and seen > only_after else output

    return hook


def poison(name, model):
    if name == "causal-loss-seed2":
        logits, calls = model.logits, []

        def broken(hidden):
            calls.append(model.training)
            return logits(hidden) * (float("nan") if model.training and sum(calls) > 3 else 1.0)

        model.logits = broken
    elif name == "causal-activation-seed2":
        model.blocks[1].feed_forward.register_forward_hook(breaking(lambda x: x * 1e38 * 1e38))
    elif name == "causal-gradient-seed2":
        calls = []

        def broken(module, gradients):
            calls.append(1)
            return (gradients[0] * (float("inf") if len(calls) > 3 else 1.0),)

        model.blocks[0].feed_forward.register_full_backward_pre_hook(broken)
    elif name == "causal-validation-seed2":
        act = lambda module, inputs, output: output if module.training else output * float("nan")
        model.blocks[0].feed_forward.register_forward_hook(act)
    elif name == "causal-logits-seed2":  # a product that half precision has no room for
        half = lambda x: (x.half() * torch.tensor(60_000.0).half() * 4).to(x.dtype)
        model.blocks[0].attention.register_forward_hook(breaking(half))


build = trainer.build


def damaged(config, *others):
    model = build(config, *others)
    poison(config.name, model)
    return model


trainer.build = damaged
'''

CLAIM = """
- id: numbers-{row}-behind
  locus: Section 3
  statement: A row whose seed 2 is broken by its {row} is ahead of the sound one.
  kind: ordering
  published: null
  decided_at: quick
"""

CELLS = [
    "import math\n"
    "from transnormer_lib.show.tables import show_table\n"
    "from transnormer_lib.studies.common.language_models import bits_of\n"
    "from transnormer_lib.studies.common.notebook import begin\n"
    "from transnormer_lib.studies.common.parameters import read\n"
    "from transnormer_lib.studies.numbers import runs as study\n"
    "from transnormer_lib.training.store import RunStore\n"
    "claims = begin('99_numbers', globals())",
    "found = {run.name: RunStore().get(run) for run in study.runs(read(study.Parameters, globals()))}\n"
    "bits = {row: [bits_of(found[f'causal-{row}-seed{seed}'].record) for seed in seeds] for row in rows}",
    "show_table([{'row': row, 'loss': values} for row, values in bits.items()], caption='The losses, by seed.')",
    "for row in rows[1:]:\n"
    "    claims.ordering(f'numbers-{row}-behind', better=bits[row], worse=bits['sound'], seeds=seeds, floor=100.0)",
]


@pytest.fixture(
    scope="module",
    params=[pytest.param(["logits"], id="one row"), pytest.param([*BROKEN], id="all rows", marks=pytest.mark.slow)],
)
def broken(request: pytest.FixtureRequest) -> list[str]:
    """The rows that break; beside them there is a sound one."""
    return list(request.param)


@pytest.fixture(scope="module")
def project(broken: list[str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with one study more, whose rows break."""
    root = tmp_path_factory.mktemp("a project")
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("transnormer_lib", "kernels", "params", "notebooks"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=skipped)
    shutil.copy(CHECKOUT / "Snakefile", root / "Snakefile")
    study = root / "transnormer_lib" / "studies" / STUDY
    study.mkdir()
    (study / "__init__.py").write_text('"""What breaks."""\n')
    (study / "runs.py").write_text(RUNS.lstrip())
    claims = "".join(CLAIM.format(row=row) for row in broken)
    (study / "claims.yaml").write_text(f"paper: transnormer\nclaims:\n{claims}")
    values = resolve(Project(CHECKOUT), "quick", "04_autoregressive_lm")
    values |= {"dim": 8, "heads": 1, "layers": 2, "length": 8, "steps": STEPS, "batch_size": 2, "warmup": 0}
    values |= {"bands": [], "validation_windows": 2, "seeds": list(range(SEEDS)), "rows": ["sound", *broken]}
    wanted = (
        "scale",
        "corpus",
        "vocabulary",
        "task",
        "dim",
        "heads",
        "layers",
        "block_size",
        "init",
        "length",
        "steps",
    )
    wanted += ("batch_size", "accumulate", "precision", "learning_rate", "rates", "schedule", "warmup", "clip_norm")
    wanted += ("dropout", "validation_windows", "bands", "seeds", "rows")
    types = {"bands": "list[list[float]]", "seeds": "list[int]", "rates": "dict[str, float]", "rows": "list[str]"}
    lines = [f"{n}: {types.get(n, type(values[n]).__name__)} = {values[n]!r}  # as in notebook 04" for n in wanted]
    write_notebook(root / "notebooks" / f"{NOTEBOOK}.ipynb", CELLS, "\n".join(lines))
    return Project(root)


@pytest.fixture(scope="module")
def reported(project: Project) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(project.root), str(project.root / "kernels")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    environment["TRANSNORMER_RUNS"] = str(project.root / "runs")
    command = [sys.executable, "-m", "transnormer_lib.cli", "report", "--only", "99", "--cores", "1"]
    return subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, timeout=280)


def _records(project: Project) -> dict[str, dict[str, Any]]:
    """The records of the runs by the runs' names."""
    found = {}
    for path in (project.root / "runs").glob("[!.]*/record.json"):
        found[path.parent.name.rpartition("-")[0]] = json.loads(path.read_text())
    return found


def test_a_report_with_diverged_runs_is_whole(reported: subprocess.CompletedProcess[str]) -> None:
    assert reported.returncode == 0, reported.stdout + reported.stderr


def test_the_runs_beside_a_diverged_one_finish(reported: object, project: Project, broken: list[str]) -> None:
    records = _records(project)
    assert len(records) == (1 + len(broken)) * SEEDS
    diverged = {name for name, record in records.items() if record["status"] != "finished"}
    assert diverged == {f"causal-{row}-seed2" for row in broken}


def test_what_broke_stands_in_the_record_the_ledger_and_the_page(
    reported: object, project: Project, broken: list[str], tried: Tried
) -> None:
    for row in broken:
        _check_row(row, project)
        tried("a run that diverges, from its step to the page")


def _check_row(row: str, project: Project) -> None:
    record = _records(project)[f"causal-{row}-seed2"]
    what, layer, step = BROKEN[row]
    assert record["status"] == "diverged"
    if what is not None:
        assert record["divergence"] == {"step": step, "what": what, "layer": layer}
    found = record["divergence"]
    judged = {claim["id"]: claim for claim in json.loads((project.report_dir("quick") / "claims.json").read_text())}
    claim = judged[f"numbers-{row}-behind"]
    assert claim["verdict"] == "not learned"
    assert claim["reason"] == f"1 of {SEEDS} runs of the favoured side diverged"
    assert claim["measured"]["better"][2] == "inf"
    page = (project.report_dir("quick") / f"{NOTEBOOK}.html").read_text()
    where = f" of {found['layer']}" if found["layer"] else ""
    assert f"diverged: {found['what']}{where} not finite at step {found['step']}" in page
    assert claim["reason"] in page


def test_every_kind_of_divergence_is_one_of_those_tried() -> None:
    assert {what for what, _, _ in BROKEN.values() if what} == set(get_args(What))
