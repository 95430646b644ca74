"""The register of Transformers are RNNs: every entry has a check that confirms it, and every check can fail."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from falsified import Mutation, puts
from torch import nn

from transnormer_lib.attention import build
from transnormer_lib.data import context_tasks
from transnormer_lib.papers import discrepancies
from transnormer_lib.studies.common.register import find
from transnormer_lib.studies.transformers_are_rnns import gradients
from transnormer_lib.studies.transformers_are_rnns.register import (
    REGISTER,
    attention,
    checks,
    complexity,
    images,
    speech,
    tables,
    theory,
    training,
)

ENTRIES = discrepancies.by_id("linear-transformers")
NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
SHOWN_IN = {"images": "12_image_generation", "speech": "13_speech_ctc"}  # other subjects: in notebook 11


def prints(column: str, method: str, value: float) -> Mutation:
    """A table that prints another number for a method."""
    real, module = checks.printed, speech if column == "seconds_per_epoch" else tables

    def other(table: str, of: str, row: str) -> float:
        return value if (of, row) == (column, method) else real(table, of, row)

    return puts(module, "printed", other)


def builds(module: Any, **changes: Any) -> Mutation:
    """Mechanisms with other options than the check asks for."""
    return puts(module, "build", lambda name, **fields: checks.build(name, **(fields | changes)))


def says(module: Any, name: str, value: Any) -> Mutation:
    """A setting with another value."""
    real = module.said
    return puts(module, "said", lambda *where: value if where[-1] == name else real(*where))


MUTATIONS: dict[str, Mutation] = {
    "eq-15-without-its-transpose": puts(
        gradients, "equation_15_as_printed", lambda q, k, g: gradients.algorithm_1(q, k, torch.zeros_like(g), g)[2]
    ),
    "similarity-of-zero": puts(theory, "build", lambda name, **f: lambda q, k, v: v),
    "epsilon-in-the-denominator": builds(theory, denominator_floor=1.0),
    "softmax-is-not-a-finite-rnn": puts(
        theory, "build", lambda name, **f: checks.build({"softmax": "linear"}.get(name, name), **f)
    ),
    "constant-memory-that-is-linear": puts(complexity, "peak_bytes", lambda call: 1000),
    "min-and-not-max": puts(complexity, "allocations", lambda call: [32 * 16 * 16 * 8]),
    "step-cost-without-a-cache": puts(complexity, "one_more", lambda core, n: n * n),
    "pixels-of-reformer-and-softmax": puts(complexity, "counted", lambda call: 1000),
    "matrix-that-need-not-be-stored": builds(complexity, impl="reference"),
    "polynomial-needs-half": puts(complexity, "degree_two", lambda x: (x[..., :, None] * x[..., None, :]).flatten(-2)),
    "lsh-rounds-averaged": puts(attention, "averaged", lambda core, q, k, v: core(q, k, v)),
    "lsh-mask-is-quadratic": builds(attention, impl="reference"),
    "lsh-chunks-see-the-future": builds(attention, chunking="across"),
    "lsh-keys-of-length-one": builds(attention, scaled=True),
    "lsh-chunks-that-divide": says(attention, "length", 784),
    "loss-covers-the-separator": puts(
        training,
        "drawn",
        lambda: context_tasks.ContextTask("copy-6", 16).draw(9, np.random.default_rng(0)).values(),
    ),
    "copies-never-fill-the-sequence": says(training, "most", 63),
    "positions-beside-the-embedding": puts(
        training, "ModelConfig", lambda *a, positions, **f: partial(_config, "sinusoidal")(*a, **f)
    ),
    "weight-decay-not-mentioned": says(training, "weight_decay", 0.1),
    "factor-of-one-digit": prints("images_per_second", "Softmax", 0.04),
    "best-bits-on-cifar": prints("bits_per_dim", "LSH-4", 3.41),
    "thousand-times-on-one-of-two": prints("times_softmax", "Linear", 4000.0),
    "thousands-with-two-causes": puts(tables, "one_more", lambda core, n: 1),
    "sampler-of-another-scale": puts(images, "as_released", images.Mixtures.of),
    "narrow-bins-by-their-density": puts(images, "_SMALL", 1e-14),
    "last-pixel-of-the-one-before": puts(images, "last_values", lambda model, written, given, place: written[:, -1]),
    "batches-of-sixteen": says(images, "epochs", 100),
    "six-heads-of-256": says(speech, "heads", 8),
    "lstm-is-not-far-behind-in-speed": prints("seconds_per_epoch", "Bi-LSTM", 2000.0),
}


def _config(positions: Any, *arguments: Any, **fields: Any) -> Any:
    from transnormer_lib.models.config import ModelConfig

    return ModelConfig(*arguments, positions=positions, **fields)


def test_every_entry_has_a_check_and_every_check_an_entry() -> None:
    assert set(REGISTER.names()) == set(ENTRIES)


@pytest.mark.parametrize("entry", MUTATIONS)
def test_every_check_confirms_its_entry(entry: str) -> None:
    found = REGISTER.run(entry)
    assert found.confirmed, {name: holds for name, holds in found.shows.items() if not holds}
    assert found.figures


@pytest.mark.parametrize("entry", MUTATIONS)
def test_a_check_fails_on_falsified_evidence(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[entry](monkeypatch)
    assert not REGISTER.run(entry).confirmed


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_place_is_found_in_the_code(entry: str) -> None:
    assert all(find(name).source for name in ENTRIES[entry].code)


def test_no_two_papers_share_an_id() -> None:
    assert not set(ENTRIES) & set(discrepancies.by_id("transnormer"))


@pytest.mark.parametrize("notebook", ["11_transformers_are_rnns", *SHOWN_IN.values()])
def test_a_notebook_shows_every_entry_of_its_subjects_once(notebook: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]
    code = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    named = [name for name in re.findall(r'"([a-z0-9-]+)"', code) if name in ENTRIES]
    own = SHOWN_IN.get
    mine = [n for n, entry in ENTRIES.items() if own(entry.subject, "11_transformers_are_rnns") == notebook]
    assert sorted(named) == sorted(mine)


def test_the_library_builds_what_the_checks_build() -> None:
    assert isinstance(checks.build("linear"), type(build("linear", {"heads": 2, "head_dim": 8})))
    assert isinstance(checks.build("linear"), nn.Module)
