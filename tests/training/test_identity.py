"""Which edits keep every stored run, and which train it anew.

Each edit is made in a copy of the library, and the runs' names are taken there. An edit that changes weights keeps the
names by itself, but the golden steps fail in the copy and ask for a number; a raised number renames the runs.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from training_cases import classifier, config

from transnormer_lib.training import identity, numbers
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.identity import run_id

CHECKOUT = Path(__file__).resolve().parents[2]
GOLDEN = "from test_golden_steps import test_losses_change_only_with_the_numbers as check; check({recipe!r})"
NAMES = "print(run_id(config()), run_id(config('vanilla')), run_id(classifier()))"


@dataclass(frozen=True)
class Edit:
    """In a file of the copy ``old`` becomes ``new``, or ``new`` is appended if there is no ``old``."""

    file: str
    new: str
    old: str = ""
    recipe: str = ""  # of the golden steps, whose losses it changes


LIBRARY, TRAINING = "transnormer_lib", "transnormer_lib/training"
KEEPING = {
    "registering a mechanism": Edit(
        f"{LIBRARY}/attention/softmax.py", '\n\n@register("mine", SoftmaxConfig)\nclass Mine(SoftmaxAttention): ...\n'
    ),
    "another mechanism": Edit(f"{LIBRARY}/attention/performer.py", "\n\nEDITED = 1\n"),
    "a kernel": Edit("kernels/transnormer_kernels/linear_forward.py", "\n\nEDITED = 1\n"),
    "a new field of a run at its default": Edit(
        f"{TRAINING}/config.py",
        '    gradients: Gradients = "none"\n    another: int = 1',
        '    gradients: Gradients = "none"',
    ),
    "a new field of a model at its default": Edit(
        f"{LIBRARY}/models/config.py", '    init: Init = "fairseq"\n    another: int = 1', '    init: Init = "fairseq"'
    ),
    "a new field of a head at its default": Edit(
        f"{LIBRARY}/models/config.py",
        '    kind: TaskKind = "label"\n    another: int = 1',
        '    kind: TaskKind = "label"',
    ),
    "evaluation": Edit(f"{TRAINING}/evaluation.py", "_LARGEST_BATCH = 16", "_LARGEST_BATCH = 32"),
    "recording": Edit(f"{TRAINING}/records.py", '"more": 1, "status": history', '"status": history'),
    "progress": Edit(f"{TRAINING}/store.py", 'unit="optimiser steps"', 'unit="step"'),
    "checkpoints": Edit(f"{TRAINING}/checkpoints.py", '_HISTORY = "state.pt"', '_HISTORY = "history.pt"'),
    "a comment": Edit(f"{TRAINING}/trainer.py", "\n# edited\n"),
    "another task's data": Edit(f"{LIBRARY}/data/listops.py", "\n\nEDITED = 1\n"),
}
CHANGING = {
    "a mechanism's arithmetic": Edit(
        f"{LIBRARY}/attention/blockwise.py", "_mean(t.abs(), product)", "_mean(t.square(), product)", "norm, causal"
    ),
    "the first weights": Edit(
        f"{LIBRARY}/models/initialisation.py", "else 2**-0.4", "else 2**-0.5", "softmax, causal"
    ),
    "the optimiser": Edit(f"{TRAINING}/optimisation.py", '"eps": 1e-3', '"eps": options.eps', "softmax, causal"),
    "the schedule": Edit(f"{TRAINING}/schedules.py", "else 0.6 * (1.0 +", "else 0.5 * (1.0 +", "softmax, causal"),
    "the order of the batches": Edit(
        f"{LIBRARY}/data/batches.py",
        "rng = np.random.default_rng([self.seed, step + 1])", "rng = np.random.default_rng([self.seed, step])",
        "softmax, causal",
    ),
}  # fmt: skip
OWN_DATA = Edit(f"{LIBRARY}/data/sentences.py", 'generator(name, split, "mixed")', 'generator(name, split, "order")')


def _copy(folder: Path, edit: Edit) -> None:
    for name in ("transnormer_lib", "kernels"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / edit.file
    text = path.read_text()
    assert edit.old in text, f"{edit.file} no longer has {edit.old!r}"
    path.write_text(text.replace(edit.old, edit.new, 1) if edit.old else text + edit.new)


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    places = [folder, folder / "kernels", CHECKOUT / "tests" / "factories", CHECKOUT / "tests" / "training"]
    head = f"import sys; sys.path[:0] = {[str(place) for place in places]!r}\n"
    head += "from training_cases import classifier, config\nfrom transnormer_lib.training.identity import run_id\n"
    head += f"import transnormer_lib; assert transnormer_lib.__file__.startswith({str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=200)


def _names() -> list[str]:
    return [run_id(run) for run in (config(), config("vanilla"), classifier())]


@pytest.mark.slow
@pytest.mark.parametrize("edit", KEEPING)
def test_an_edit_that_keeps_every_run(edit: str, tmp_path: Path) -> None:
    _copy(tmp_path, KEEPING[edit])
    done = _run(tmp_path, NAMES)
    assert done.stdout.split() == _names(), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("edit", CHANGING)
def test_an_edit_that_changes_weights_fails_the_golden_steps_and_asks_for_a_number(edit: str, tmp_path: Path) -> None:
    _copy(tmp_path, CHANGING[edit])
    done = _run(tmp_path, GOLDEN.format(recipe=CHANGING[edit].recipe))
    assert "training has other results: raise the number in training/numbers.py" in done.stderr


@pytest.mark.slow
def test_an_edit_of_a_tasks_own_data_renames_its_runs_alone(tmp_path: Path) -> None:
    _copy(tmp_path, OWN_DATA)
    done = _run(tmp_path, NAMES)
    renamed = [ours != theirs for ours, theirs in zip(_names(), done.stdout.split(), strict=True)]
    assert renamed == [False, False, True], done.stderr


def test_a_raised_number_renames_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _names()
    monkeypatch.setattr(numbers, "TRAINING", numbers.TRAINING + 1)
    assert not set(before) & set(_names())


def test_a_mechanisms_raised_number_renames_its_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _names()
    monkeypatch.setitem(numbers.MECHANISMS, "norm", numbers.MECHANISMS.get("norm", 1) + 1)
    assert [a != b for a, b in zip(before, _names(), strict=True)] == [True, False, True]


CHANGES: dict[str, Callable[[RunConfig], RunConfig]] = {
    "seed": lambda c: replace(c, seed=5),
    "steps": lambda c: replace(c, steps=9),
    "model": lambda c: replace(c, model=replace(c.model, dropout=0.0)),
    "data": lambda c: replace(c, data=replace(c.data, batch_size=6)),
    "optimizer": lambda c: replace(c, optimizer=replace(c.optimizer, learning_rate=2e-2)),
}


@pytest.mark.parametrize("field", CHANGES)
def test_any_change_of_the_config_is_another_run(field: str) -> None:
    assert run_id(CHANGES[field](config())) != run_id(config())
    assert run_id(config()) == run_id(config())


def test_other_data_are_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_id(config())
    monkeypatch.setattr(identity, "_data_fingerprint", lambda _: "changed")
    assert run_id(config()) != before
