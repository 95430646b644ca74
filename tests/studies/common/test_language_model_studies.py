"""The runs of every study at each scale fit its notebook, and studies share equal runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_study import LANGUAGE_MODEL

from transnormer_lib import studies
from transnormer_lib.data.ngrams import ngram_baselines
from transnormer_lib.data.two_sided_ngrams import two_sided_bits
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.language_models import TWO_SIDED, LanguageModelParameters
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.training.evaluation import held_out_batches

PROJECT = Project(Path(__file__).resolve().parents[3])
PARAMETERS = replace(read(LanguageModelParameters, LANGUAGE_MODEL), length=16, validation_windows=64)
STUDIED = [notebook for notebook in PROJECT.notebooks if studies.has_study(notebook)]


def trains(parameters: Mapping[str, Any]) -> bool:
    """Whether the study trains at these parameters: that of speed only times where no task gives it scores."""
    return bool(parameters.get("scores_tasks", True))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PROJECT.presets)
@pytest.mark.parametrize("notebook", STUDIED)
def test_every_preset_gives_every_study_runs_with_different_names(notebook: str, preset: str) -> None:
    parameters = resolve(PROJECT, preset, notebook)
    names = [config.name for config in studies.runs(notebook, parameters)]
    assert bool(names) is trains(parameters)
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


# At quick these show one trained model, and judge no order of rows.
DEMONSTRATIONS = {"12_image_generation", "13_speech_ctc"}


@pytest.mark.slow
@pytest.mark.parametrize("notebook", STUDIED)
def test_quick_has_five_seeds_and_larger_scales_three(notebook: str) -> None:
    for preset in PROJECT.presets:
        parameters = resolve(PROJECT, preset, notebook)
        if not trains(parameters):
            continue
        seeds = {config.seed for config in studies.runs(notebook, parameters)}
        assert len(seeds) >= (
            5 if preset == "quick" and notebook not in DEMONSTRATIONS else 3 if preset != "quick" else 1
        )


@pytest.mark.parametrize("preset", PROJECT.presets)
@pytest.mark.parametrize("notebook", STUDIED)
def test_language_models_have_expectations_of_their_early_loss(notebook: str, preset: str) -> None:
    for config in studies.runs(notebook, resolve(PROJECT, preset, notebook)):
        ladder = "-ladder-" in config.name  # at some of its rates a run is expected to break
        if config.head is None and config.start_from is None and not ladder:
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


def test_the_floor_of_encoders_reads_both_sides_where_they_are_measured() -> None:
    corpus = language_models.corpus(PARAMETERS)
    ngrams = language_models.ngram_bits(PARAMETERS, corpus)
    config = language_models.run("linear", language_models.model("linear", PARAMETERS), 3, PARAMETERS)
    there = two_sided_bits(corpus, held_out_batches(config, corpus), config.data.masking)
    found = language_models.floor(PARAMETERS, ngrams)
    assert (found.name, found.bits) == (TWO_SIDED, pytest.approx(there, rel=1e-12))


def test_the_floor_of_decoders_is_the_bigram() -> None:
    parameters = replace(PARAMETERS, task="causal")
    corpus = language_models.corpus(parameters)
    ngrams = language_models.ngram_bits(parameters, corpus)
    assert list(ngrams) == ["1-gram", "2-gram", "3-gram"]
    _, bigram, _ = ngram_baselines(corpus)["validation"]
    found = language_models.floor(parameters, ngrams)
    assert (found.name, found.bits) == ("bigram", pytest.approx(bigram.bits_per_byte))
