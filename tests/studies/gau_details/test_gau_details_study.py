"""Notebook 14: which runs it asks for, what its rows are, what its tables say, and how lengths are measured."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
import torch

from transnormer_lib import attention
from transnormer_lib.analysis.step_costs import TrainingCost
from transnormer_lib.models.language_model import build_model, count_parameters
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.gau_details import figures, published, results, sizes
from transnormer_lib.studies.gau_details import runs as study


@pytest.fixture(scope="module")
def quick() -> study.Parameters:
    path = Project(Path(__file__).resolve().parents[3]).root / "notebooks" / "14_gau_details.ipynb"
    values: dict[str, Any] = {}
    cell = next(c for c in nbformat.read(path, 4).cells if "parameters" in c.metadata.get("tags", []))
    exec(cell.source, values)
    return read(study.Parameters, values)


PROJECT = Project(Path(__file__).resolve().parents[3])
PRESETS = {name: read(study.Parameters, resolve(PROJECT, name, "14_gau_details")) for name in ("night", "gpu", "paper")}
ROWS = ("softmax_plus", "relu2-rows", "relu2-normed", "ungated", "mean", *study.OTHERS)


@pytest.mark.parametrize("task", ["causal", "masked"])
@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_a_model_without_absolute_positions_that_reads_four_times_its_length(quick, task, row) -> None:
    parameters = replace(quick, task=task)
    config = study.model(row, parameters)
    assert config.positions == "none"
    ids = torch.randint(250, (2, 4 * parameters.length))
    assert build_model(config, 0)(ids).shape == (2, 4 * parameters.length, 258)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_rows_of_a_preset_have_equally_many_parameters_to_three_percent(preset) -> None:
    of = PRESETS[preset]
    counts = [count_parameters(study.model(row, of)) for row in of.rows]
    assert max(counts) < 1.03 * min(counts)


def test_the_night_has_200_runs() -> None:
    assert len(study.runs(PRESETS["night"])) == 200


@pytest.mark.parametrize(
    ("row", "divisor"),
    [
        ("relu2-n2", 16 * 16),
        ("relu2-n", 16),
        ("relu2-ns", 16 * 8),
        ("relu2-s2", 8 * 8),
        ("relu2-table-2", 16 * 8 * 8),
        ("relu2-normed", 16 * 8),
    ],
)
def test_a_row_of_tables_1_and_2_divides_the_squared_scores_by_its_factor(row, divisor) -> None:
    unit = attention.build("gau", {"dim": 8, "s": 8, "dropout": 0.0, **study.UNITS[row]}).double()
    x = torch.randn(1, 16, 8, dtype=torch.float64)
    _, _, (q, k) = unit.project(x, None)
    torch.testing.assert_close(unit.weights(x)[:, 0], (q @ k.mT).relu().square() / divisor)


def test_an_unknown_row_is_refused(quick) -> None:
    with pytest.raises(ValueError, match="relu3"):
        build_model(study.model("relu3", quick), 0)


def test_a_varied_row_differs_in_its_lengths_alone(quick) -> None:
    parameters = replace(quick, rows=("softmax", "softmax+varied"), seeds=(0,))
    fixed, varied = (config for *_, config in study.search(parameters).judged())
    assert (fixed.data.shortest, varied.data.shortest) == (0, quick.shortest)
    assert fixed.model == varied.model
    assert replace(varied.data, shortest=0) == fixed.data


def test_the_counts_as_printed_are_table_4s() -> None:
    for model in sizes.ARCHITECTURES:
        assert round(sizes.as_printed(model) / 1000) == published.number("table_4", "params", model=model)


def test_two_units_have_the_weights_of_a_layer() -> None:
    weights = sizes.layer_and_two_units()
    assert weights["layer"] == weights["two units without W_z"] == 12 * 768 * 768
    assert weights["two units"] > weights["layer"]


def test_table_1s_factors_are_in_order() -> None:
    assert list(published.divisors()) == ["n", "s²", "n·s", "n²"]


def test_a_missing_cell_of_a_table_is_no_number() -> None:
    with pytest.raises(ValueError, match="no number is printed"):
        published.number("table_1", "accuracy", factor="s²")


def test_the_scores_of_a_unit_are_those_of_its_matrix(quick) -> None:
    model = build_model(study.model("softmax", quick), 0).double().eval()
    ids = torch.randint(250, (2, 12))
    scores = results.unit_scores(model, ids).chunk(2)  # of two units
    hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)  # quick's models are causal
    for of, matrix in zip(scores, model.attention_weights(ids), strict=True):
        torch.testing.assert_close(of.masked_fill(hidden, -math.inf).softmax(-1), matrix[:, 0])


def test_a_decoder_reads_a_shorter_text_as_the_beginning_of_a_longer_one(quick) -> None:
    model = build_model(study.model("relu2-ns", quick), 0).double().eval()
    ids = torch.randint(250, (2, 24))
    torch.testing.assert_close(model(ids)[:, :8], model(ids[:, :8]))


def of(row: str, seed: int, validation: float, lengths: dict[int, float]) -> results.MeasuredRow:
    return results.MeasuredRow(row, seed, validation, None, lengths)  # type: ignore[arg-type]


def test_the_rise_of_a_diverged_run_is_infinite_and_rows_are_in_the_order_of_their_seeds() -> None:
    runs = [of("softmax", 2, math.inf, {64: math.inf}), of("softmax", 1, 3.0, {64: 3.5}), of("mean", 1, 3.0, {64: 9.0})]
    assert results.change(runs, "softmax", 64) == [0.5, math.inf]


class Judge:
    """Records what would be claimed."""

    scale = "night"

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def not_run(self, claim: str, reason: str) -> None:
        self.said[claim] = reason

    def ordering(self, claim: str, **sides: Any) -> None:
        self.said[claim] = sides


def test_a_shorter_text_is_not_judged_of_decoders_and_a_longer_one_with_losses_and_floor(
    quick,
) -> None:
    parameters, claims = replace(quick, seeds=(1,)), Judge()
    runs = [of(row, 1, 3.0, {quick.length * 2: 3.5, quick.length // 4: 4.0}) for row in ("softmax", "relu2-ns")]
    floor = results.Floor("bigram", 2.5)
    for claim, n in (("short", quick.length // 4), ("long", quick.length * 2)):
        results.changes(claims, claim, "softmax", "relu2-ns", runs, parameters, n, floor)
    assert claims.said["short"] == results.PREFIX
    assert claims.said["long"]["learned"] == {"softmax": [3.0], "relu2-ns": [3.0]}
    assert (claims.said["long"]["better"], claims.said["long"]["floor"]) == ([0.5], 2.5)


def test_table_3_of_scores_without_a_mask_has_the_rank_s(quick) -> None:
    model = build_model(study.model("softmax_plus", quick), 0).eval()
    scores = results.unit_scores(model, torch.randint(250, (2, quick.length)))
    made = results.matrices("softmax_plus", scores)
    torch.testing.assert_close(made["scores"], results.factor("softmax_plus", quick.length) * scores)
    assert {int(rank) for rank in results.attention_rank.ranks(made["scores"], [1e-9])[0]} == {quick.s}


def test_no_curve_of_a_figure_is_dropped(quick) -> None:
    rows = PRESETS["night"].rows
    frame = results.length_frame([of(row, seed, 3.0, {64: 3.0, 128: 3.1}) for row in rows for seed in (1, 2)])
    drawn = [line.get_label() for axes in figures.by_length(frame, 64, "bits").axes for line in axes.get_lines()]
    assert {figures.style(row).label for row in rows} <= set(drawn)
    curves = {f"{i}": {8: 1.0, 16: 1.5} for i in range(7)}
    with pytest.raises(ValueError, match="zip"):
        figures.entropy({"too many": curves}, 512)


def test_the_cells_of_table_4_are_those_of_the_claims() -> None:
    from transnormer_lib.ledger import claims

    published_by = {claim.id: claim.published for claim in claims.load()}
    for column in ("memory", "time"):
        assert published.over_gau(column) == pytest.approx(published_by[f"gau-table-4-{column}"])
    ratios = published.times_over_softmax()
    assert {"ReLU²", "scaled ReLU²", "softmax_plus"} == set(ratios)
    assert published_by["gau-table-2-time"] == pytest.approx(ratios, abs=5e-4)


def test_table_4_counts_weights_and_moments_and_leaves_out_what_did_not_fit(monkeypatch) -> None:
    def measure(configs, lengths, **_: Any) -> list[TrainingCost]:
        assert all(options["impl"] == "reference" for c in configs.values() for options in c.attention_options.values())
        cells = [TrainingCost(model, n, (2.0, 3.0), 10**9) for model in configs for n in lengths]
        return [cell for cell in cells if (cell.model, cell.length) != ("RoFormerV1", 2048)]

    monkeypatch.setattr(results, "measure", measure)
    found = results.table_4(rounds=2)
    assert set(found["memory"]) == set(found["time"]) == set(published.over_gau("memory"))
    assert set(found["time"].values()) == {1.0}
    v1, gau = (10**9 + 12 * sizes.trained(model) for model in ("RoFormerV1", "GAU"))
    assert found["memory"]["V1 512"] == pytest.approx(100 * v1 / gau)


def test_memory_over_gau_is_one_for_gau() -> None:
    assert set(published.memory_over_gau("GAU").values()) == {1.0}


def test_rises_are_told_up_to_the_longest_length_and_not_of_rows_that_diverged() -> None:
    found = [of("a", 0, 2.0, {8: 2.0, 32: 2.5}), of("b", 0, 3.0, {8: 3.0, 32: 2.9})]
    lost = of("c", 0, math.inf, {8: math.inf, 32: math.inf})
    said = "From there to 32 tokens b changes by −0.100 bits, the least, a by +0.500, the most."
    assert results.rises([*found, lost]) == said
    assert results.rises([lost]) == "Every run diverged."
    assert results.rises(found[:1]) == "From there to 32 tokens a changes by +0.500 bits."


def test_the_growth_of_entropy_is_told_without_and_with_the_factor() -> None:
    curves = {"gap 5, softmax": {8: 1.0, 64: 3.0}, "gap 5, softmax_plus": {8: 2.0, 64: 1.5}}
    said = "Growth from 8 to 64 keys in nats, without and with the factor: gap 5 +2.00 and −0.50."
    assert results.growth_of_entropy(curves) == said


def test_ranks_are_told_by_size_at_the_tolerance_asked_for() -> None:
    ranks = {(0.3, "softmax"): 0.1, (0.3, "ReLU²"): 0.4, (4.0, "softmax"): 0.7, (4.0, "ReLU²"): 0.5}
    frame = pd.DataFrame(
        {"size": size, "kind": kind, "tolerance": t, "rank": rank if t == 0.1 else 1.0}
        for (size, kind), rank in ranks.items()
        for t in (0.1, 0.01)
    )
    said = "At the tolerance 0.1 softmax and the squared ReLU have 0.10 and 0.40 at size 0.3, 0.70 and 0.50 at size 4."
    assert results.highest_ranks(frame, 0.1) == said


def test_memory_is_told_from_the_shortest_to_the_longest_length() -> None:
    said = results.memory_in_words({"V1": {512: 1.2, 256: 0.9}}, {"V1": {256: 1.0}})
    assert said == "V1 here 0.90 at 256 to 1.20 at 512; V1 in print 1.00 at 256 to 1.00 at 256."
