"""The trained choices of the register: how each pair differs, and which runs are notebook 05's."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from transnormer_lib import studies
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.what_the_paper_leaves_out import results
from transnormer_lib.studies.what_the_paper_leaves_out import runs as study
from transnormer_lib.studies.what_the_paper_leaves_out.results import Trained
from transnormer_lib.training.store import RunStore

PROJECT = Project(Path(__file__).resolve().parents[3])
OURS, BASE = "10_what_the_paper_leaves_out", "05_bidirectional_lm"
QUICK = read(study.Parameters, resolve(PROJECT, "quick", OURS))


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_all_parameters_except_the_comparisons_are_notebook_05s(preset: str) -> None:
    ours, base = (resolve(PROJECT, preset, notebook) for notebook in (OURS, BASE))
    assert {name: base[name] for name in ours if name != "comparisons"} == {
        name: value for name, value in ours.items() if name != "comparisons"
    }


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_rows_that_notebook_05_has_are_its_runs(preset: str) -> None:
    trained = {config.name: config for config in studies.runs(BASE, resolve(PROJECT, preset, BASE))}
    shared = [config for config in studies.runs(OURS, resolve(PROJECT, preset, OURS)) if config.name in trained]
    assert any("transnormer-t2" in config.name for config in shared)
    assert all(replace(trained[config.name], rate_search=()) == config for config in shared)


def test_a_changed_row_has_the_learning_rate_of_the_unchanged_one_unless_it_has_its_own() -> None:
    given = replace(
        QUICK, comparisons=("activation", "recipe"), rates={study.BASE: 0.02, f"{study.BASE}+released": 0.03}
    )
    found = {config.name.rpartition("-")[0]: config.optimizer.learning_rate for config in study.runs(given)}
    assert found == {
        "masked-transnormer-t2": 0.02, "masked-transnormer-t2-identity": 0.02, "masked-transnormer-t2-released": 0.03,
    }  # fmt: skip


def test_quick_trains_no_more_than_twenty_new_runs() -> None:
    trained = {config.name for config in studies.runs(BASE, resolve(PROJECT, "quick", BASE))}
    assert len([config for config in study.runs(QUICK) if config.name not in trained]) <= 20


@pytest.mark.parametrize(
    ("choice", "changed"),
    [
        ("rotation", {"rotary"}),
        ("activation", {"activation"}),
        ("epsilon", {"norm_eps_placement", "attention_options"}),
        ("recipe", {"rotary", "activation", "norm_eps_placement", "attention_options", "attention_dropout"}),
    ],
)
def test_a_choice_changes_only_its_own_fields(choice: str, changed: set[str]) -> None:
    ours, other = (study.model(row, QUICK) for row in study.comparisons(QUICK)[choice])
    assert {field.name for field in fields(ours) if getattr(ours, field.name) != getattr(other, field.name)} == changed


def test_epsilon_outside_applies_to_every_norm_and_leaves_the_base_unchanged() -> None:
    base, other = (study.model(row, QUICK) for row in study.comparisons(QUICK)["epsilon"])
    assert other.attention_options["norm"]["eps_placement"] == "outside"
    assert "eps_placement" not in base.attention_options["norm"]
    assert bidirectional.model(study.BASE, QUICK) == base


def test_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="comparisons='rotations': must be one of 'rotation', "):
        study.rows(replace(QUICK, comparisons=("rotations",)))


@pytest.mark.parametrize(
    ("other", "apart"),
    [([1.1, 1.2, 1.3], True), ([0.9, 1.0, 1.1], True), ([0.9, 1.1, 1.2], False), ([1.0, 2.0, float("inf")], False)],
    ids=["worse", "better", "mixed", "diverged"],
)
def test_a_difference_is_distinguishable_if_its_interval_excludes_zero(other: list[float], apart: bool) -> None:
    trained = Trained("rotation", "a", "b", {"a": [1.0, 1.1, 1.21], "b": other})
    assert trained.distinguishable is apart
    assert ("not distinguishable" in trained.sentence() or "no interval" in trained.sentence()) is not apart


def test_the_difference_is_the_other_choice_minus_ours() -> None:
    trained = Trained("rotation", "a", "b", {"a": [1.0, 1.0], "b": [1.5, 1.7]})
    assert trained.change is not None
    assert trained.change.mean == pytest.approx(0.6)
    (line,) = results.table({"rotation": trained})
    assert line["difference"] == pytest.approx(0.6)


def test_a_row_of_several_comparisons_has_its_losses_once() -> None:
    first = Trained("rotation", "a", "b", {"a": [1.0], "b": [1.5]})
    second = Trained("recipe", "a", "c", {"a": [1.0], "c": [2.0]})
    assert results.bits({"rotation": first, "recipe": second}) == {"a": [1.0], "b": [1.5], "c": [2.0]}


def test_losses_are_read_from_the_store_row_by_row() -> None:
    asked: list[str] = []

    def get(config: Any, **_: Any) -> Any:
        asked.append(config.name)
        loss = float(len(asked))
        return SimpleNamespace(record={"status": "finished", "validation": [{"bits_per_token": loss}]})

    found = results.measure(replace(QUICK, comparisons=("rotation",)), cast(RunStore, SimpleNamespace(get=get)))
    assert found["rotation"].bits == {"transnormer-t2": [1, 2, 3, 4, 5], "transnormer-t2+lrpe": [6, 7, 8, 9, 10]}
