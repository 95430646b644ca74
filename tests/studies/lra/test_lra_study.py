"""The runs behind Table 6, their recipes, and what their scores say."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from transnormer_lib.choices import VARIANTS
from transnormer_lib.data import tasks as task_registry
from transnormer_lib.data.faults import DataUnavailable
from transnormer_lib.studies.lra import published, recipes
from transnormer_lib.studies.lra import results as found
from transnormer_lib.studies.lra import runs as study
from transnormer_lib.studies.lra.results import Results, ScoredRun
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

TINY: dict[str, int | float | str] = {
    "steps": 1,
    "batch_size": 2,
    "dim": 8,
    "warmup": 0,
    "block_size": 4,
    "ffn": 8,
    "glu": 8,
    "landmarks": 4,
}
FEW = {"train_examples": 10, "held_out_examples": 10}
PARAMETERS = study.Parameters(
    recipe="paper",
    tasks=("digits-7",),
    architectures=("linear", "transnormer-t2"),
    controls=("linear-matched",),
    seeds=(1, 0),
    settings={"digits-7": TINY | FEW},
    precision="fp32",
    evaluations=1,
    evaluation_examples=0,
    evaluation_part="spread",
)
WHOLE = replace(PARAMETERS, tasks=published.TASKS, architectures=tuple(published.PUBLISHED), settings={})
ATTENTION = {"attention", "attention_options"}


def fake(task: str, row: str, scores: list[float]) -> list[ScoredRun]:
    run = cast(Run, SimpleNamespace(record={"parameters": 7}))
    return [ScoredRun(row, seed, score, run, task, score) for seed, score in enumerate(scores)]


def results(*measured: list[ScoredRun], absent: dict[str, str] | None = None) -> Results:
    return Results(tuple(m for part in measured for m in part), absent or {})


def differing(a: RunConfig, b: RunConfig) -> set[str]:
    ours, theirs = asdict(a.model), asdict(b.model)
    return {name for name in ours if ours[name] != theirs[name]}


def by_row(parameters: study.Parameters, task: str) -> dict[str, RunConfig]:
    return {row: study.run(task, row, 0, parameters) for row in study.rows(parameters)}


def test_every_task_row_and_seed_is_a_run_of_its_own_name_and_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_registry, "load_task", lambda *_, **__: pytest.fail("reads data"))
    for recipe in ("paper", "released"):
        names = [config.name for config in study.runs(replace(WHOLE, recipe=cast(Any, recipe)))]
        assert len(set(names)) == len(names) == 5 * (15 + 1) * 2


def test_the_paper_recipe_is_that_of_appendix_e() -> None:
    for task, (batch, rate) in {
        "text": (16, 1e-4),
        "listops": (32, 1e-4),
        "retrieval": (16, 2e-4),
        "pathfinder": (128, 2e-4),
        "image": (256, 1e-4),
    }.items():
        config = by_row(WHOLE, task)["transnormer-t2"]
        assert (config.data.batch_size, config.optimizer.learning_rate, config.steps) == (batch, rate, 50_000)
        assert (config.model.layers, config.model.dim, config.model.heads, config.model.hidden) == (2, 64, 2, 85)
        assert (config.model.feed_forward, config.model.activation, config.model.norm_placement) == (
            "glu",
            "swish",
            "pre",
        )
        assert config.head is not None
        assert config.head.pairs == (task == "retrieval")


def test_the_baselines_have_the_sizes_of_that_harness() -> None:
    options = {row: c.model.attention_options for row, c in by_row(WHOLE, "image").items()}
    assert options["nystromformer"]["nystromformer"] == {"landmarks": 128, "conv_kernel": None}
    assert options["informer"]["informer"]["factor"] == math.ceil(128 / math.log(1024))
    assert options["bigbird"]["bigbird"] == {"random_blocks": 3}
    assert options["reformer"]["reformer"] == {"hashes": 2}


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_a_control_differs_from_transnormer_in_attention_alone(recipe: str) -> None:
    controls = ("vanilla-matched", "linear-matched")
    rows = by_row(replace(WHOLE, recipe=cast(Any, recipe), controls=controls), "image")
    for variant in VARIANTS:
        for control in controls:
            assert differing(rows[variant], rows[control]) == ATTENTION


def test_the_released_recipe_has_local_heads_of_its_own_and_no_glu() -> None:
    model = by_row(replace(WHOLE, recipe="released"), "image")["transnormer-t2"].model
    assert (model.layers, model.dim, model.heads, model.hidden) == (12, 128, 8, 256)
    assert (model.feed_forward, model.positions, model.rotary) == ("ffn", "sinusoidal", "lrpe")
    assert model.attention == ("diag",) * 6 + ("norm",) * 6
    assert (model.attention_options["diag"]["heads"], model.attention_options["norm"]["eps"]) == (4, 1e-2)


def test_a_stand_in_has_the_settings_of_the_task_it_stands_for_and_its_own_length() -> None:
    digits, image = (recipes.setting(task, "paper", {}) for task in ("digits-7", "image"))
    assert (digits.length, image.length) == (49, 1024)
    assert digits.learning_rate == image.learning_rate


def test_what_is_no_task_setting_or_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match="tasks='cola': must be one of"):
        recipes.setting("cola", "paper", {})
    with pytest.raises(ValueError, match=r"settings\.image\.width: no such setting"):
        recipes.setting("image", "paper", {"width": 3})
    with pytest.raises(ValueError, match="recipe='ours': must be one of"):
        recipes.setting("image", cast(Any, "ours"), {})
    with pytest.raises(ValueError, match=r"settings=\['image'\]: names no task of tasks="):
        study.runs(replace(PARAMETERS, settings={"image": {}}))


def test_a_run_is_measured_on_the_test_split_in_percent(tmp_path: Path) -> None:
    measured = found.measure(replace(PARAMETERS, seeds=(0,), controls=()), RunStore(tmp_path))
    assert [m.row for m in measured.measured] == ["linear", "transnormer-t2"]
    for m in measured.measured:
        assert m.test == 100 * m.run.record["at_end"]["test"]["accuracy"]


def test_a_run_of_the_released_recipe_trains_and_may_be_chosen_on_a_moving_part(tmp_path: Path) -> None:
    settings = {"digits-7": TINY | FEW | {"layers": 2, "heads": 2, "local_heads": 4}}
    released = replace(PARAMETERS, recipe="released", settings=settings, seeds=(0,), architectures=VARIANTS)
    moving = replace(released, controls=(), evaluation_examples=4, evaluation_part="moving")
    measured = found.measure(moving, RunStore(tmp_path))
    assert [m.row for m in measured.measured] == list(VARIANTS)
    assert all(math.isfinite(m.test) for m in measured.measured)


def test_a_task_without_data_is_left_out_and_its_reason_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise DataUnavailable("no such file")

    monkeypatch.setattr(task_registry, "load_task", unavailable)
    measured = found.measure(PARAMETERS, cast(RunStore, None))
    assert measured == Results((), {"digits-7": "no such file"})
    assert measured.why_not("digits-7") == "no such file"
    assert found.conclusions(measured, {}) == ["digits-7: not run; no such file"]


def test_a_diverged_run_is_below_every_score_and_counted() -> None:
    class Diverging:
        def get(self, config: object, **_: object) -> object:
            return SimpleNamespace(record={"status": "diverged", "parameters": 7})

    lost = found.measure(PARAMETERS, cast(RunStore, Diverging()))
    assert all(m.test == -math.inf for m in lost.measured)
    table = found.score_table(lost, {"digits-7": {"chance": 10.0}})
    assert [line["digits-7"] for line in table] == ["2 diverged"] * 3 + ["10.0"]
    half = results(fake("digits-7", "linear", [40.0, -math.inf]))
    assert found.score_table(half, {"digits-7": {}})[0]["digits-7"] == "40.0 (40.0 to 40.0, 1 diverged)"


def test_scores_come_in_the_order_of_the_seeds() -> None:
    measured = fake("image", "linear", [30.0, 40.0, 50.0])
    assert results(measured[::-1]).scores("image") == {"linear": [30.0, 40.0, 50.0]}


def test_an_average_takes_all_five_tasks() -> None:
    four = [fake(task, "flash", [40.0, 50.0]) for task in published.TASKS[:-1]]
    assert results(*four).average("flash") is None
    assert "flash was not measured on image" in results(*four).why_no_average("flash")
    assert results(*four, fake("image", "flash", [45.0, 55.0])).average("flash") == [41.0, 51.0]


def test_the_sentences_of_section_5_2_follow_from_table_6() -> None:
    ranks, said = published.places_in_table_6(), published.section_5_2()
    assert ranks["transnormer-t2"] == {"text": 1, "listops": 2, "retrieval": 2, "pathfinder": 1, "image": 3, "avg": 1}
    assert (said["one_of_two"], said["t1"], said["t2"], said["averages"]) == (True, False, False, True)
    assert said["lead"] == {"transnormer-t1": 1.6, "transnormer-t2": 2.69}


def test_every_printed_average_is_the_mean_of_its_row() -> None:
    assert max(map(abs, published.averages_off().values())) <= 0.005


def test_shortcuts_are_those_of_the_task() -> None:
    settings = {"digits-7": TINY | FEW, "listops": TINY | {"train_examples": 8, "held_out_examples": 8}}
    present, absent = found.load(replace(PARAMETERS, tasks=tuple(settings), settings=settings))
    assert not absent
    assert list(found.shortcuts(present["digits-7"])) == ["chance", "most common", "bag of tokens"]
    rules = found.shortcuts(present["listops"])
    assert list(rules)[3:] == ["root operator", "root operator and digits"]
    assert rules["chance"] == 10.0


def test_the_conclusions_follow_the_scores() -> None:
    low, high, floor = [40.0, 41.0, 42.0], [60.0, 62.0, 61.0], {"image": {"bag of tokens": 41.0}}
    ahead = found.conclusions(results(fake("image", "transnormer-t2", high), fake("image", "linear", low)), floor)
    behind = found.conclusions(results(fake("image", "transnormer-t2", low), fake("image", "linear", high)), floor)
    assert any("against linear: higher; +20.0 points" in line for line in ahead)
    assert any("against linear: lower; −20.0 points" in line for line in behind)
    assert any("do not beat the shortcut bag of tokens (41.0)" in line and "linear 2 of 3" in line for line in ahead)


def test_what_was_not_asked_for_says_so() -> None:
    some = results(fake("image", "linear", [30.0]))
    assert some.why_not("text") == "the parameters ask for no run on text"
    assert some.why_not("image", ["flash"]) == "the parameters ask for no run of flash on image"


def test_the_averages_of_table_6_are_told_with_their_ranks() -> None:
    assert published.highest_averages() == (
        "TransNormer T1 63.71 (rank 2) and TransNormer T2 64.80 (rank 1); the best other method, cosFormer, has 62.11."
    )
