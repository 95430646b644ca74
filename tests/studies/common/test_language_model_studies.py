"""The runs of every study at each scale fit its notebook, and studies share equal runs."""

from pathlib import Path

import pytest

from transnormer_lib import studies
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import language_models

PROJECT = Project(Path(__file__).resolve().parents[3])
STUDIED = [notebook for notebook in PROJECT.notebooks if studies.has_study(notebook)]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PROJECT.presets)
@pytest.mark.parametrize("notebook", STUDIED)
def test_every_preset_gives_every_study_runs_with_different_names(notebook: str, preset: str) -> None:
    names = [config.name for config in studies.runs(notebook, resolve(PROJECT, preset, notebook))]
    assert names
    assert len(set(names)) == len(names)


def test_notebook_04_reads_the_runs_that_03_trains_at_quick() -> None:
    ours, theirs = (
        {config.name: config for config in studies.runs(notebook, resolve(PROJECT, "quick", notebook))}
        for notebook in ("03_attention_dilution", "04_autoregressive_lm")
    )
    shared = ours.keys() & theirs.keys()
    assert {name.rpartition("-")[0] for name in shared} == {
        "causal-vanilla-matched",
        "causal-linear-matched",
        "causal-transnormer-t2",
    }
    assert all(ours[name] == theirs[name] for name in shared)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", STUDIED)
def test_quick_has_five_seeds_and_larger_scales_three(notebook: str) -> None:
    for preset in PROJECT.presets:
        seeds = {config.seed for config in studies.runs(notebook, resolve(PROJECT, preset, notebook))}
        assert len(seeds) >= (5 if preset == "quick" else 3)


@pytest.mark.parametrize("preset", PROJECT.presets)
@pytest.mark.parametrize("notebook", STUDIED)
def test_language_models_have_expectations_of_their_early_loss(notebook: str, preset: str) -> None:
    for config in studies.runs(notebook, resolve(PROJECT, preset, notebook)):
        if config.head is None and config.start_from is None:
            assert config.bands, f"{config.name} would run to its end whatever its loss"
            assert min(band.step for band in config.bands) <= config.steps / 10


def test_a_row_or_seed_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"architectures=\['a', 'a'\]: must differ"):
        language_models.grid(["a", "a"], [0])
    with pytest.raises(ValueError, match=r"seeds=\[1, 1\]: must differ"):
        language_models.grid(["a"], [1, 1])


@pytest.mark.parametrize("preset", ["gpu", "paper"])
def test_notebook_03_reads_the_encoders_that_05_trains_on_real_text(preset: str) -> None:
    ours, theirs = (
        {config.name: config for config in studies.runs(notebook, resolve(PROJECT, preset, notebook))}
        for notebook in ("03_attention_dilution", "05_bidirectional_lm")
    )
    shared = ours.keys() & theirs.keys()
    assert {name.rpartition("-")[0] for name in ours} - {name.rpartition("-")[0] for name in shared} == {
        "masked-linear-vanilla",
        "masked-vanilla-linear",
    }
    assert all(ours[name].identity() == theirs[name].identity() for name in shared)
