"""What notebook 02 says follows from its runs: opposite losses give opposite sentences."""

import math
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import pytest
import torch

from transnormer_lib.show.figures import element
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.common.language_models import TWO_SIDED, Floor
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.gradient_stability import figures as draw
from transnormer_lib.studies.gradient_stability import published, results

ROWS = ["vanilla+lrpe", "linear+lrpe", "linear-unscaled+lrpe", "norm-t1+lrpe", "norm-t2+lrpe", "norm-t2-layer+lrpe"]
FLOOR = Floor(TWO_SIDED, 3.65)


@dataclass(frozen=True)
class Config:
    waypoints: tuple[int, ...] = (10,)
    steps: int = 20


@dataclass(frozen=True)
class StoredRun:
    """What the results read from a run."""

    record: dict[str, Any]
    config: Config = Config()


def measured(**last: tuple[float, ...]) -> list[Measured]:
    """Runs whose last loss is given per seed; infinite for one that diverged."""
    return [
        Measured(row.replace("_", "-") + "+lrpe", seed, bits, cast(Any, StoredRun(_record(bits))))
        for row, values in last.items()
        for seed, bits in enumerate(values)
    ]


def _record(bits: float) -> dict[str, Any]:
    points = [{"step": 10, "bits_per_token": 5.0}, {"step": 20, "bits_per_token": bits}]
    finished = math.isfinite(bits)
    return {"status": "finished" if finished else "diverged", "validation": points if finished else points[:1]}


def deviations(**rows: float) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"row": row.replace("_", "-") + "+lrpe", "seed": seed, "definition": name, "deviation": value + seed / 1e3}
            for name in ("main", "other")
            for row, value in rows.items()
            for seed in range(3)
        ]
    )


def test_conclusions_follow_the_losses() -> None:
    low, high = (3.0, 3.1, 3.2), (3.3, 3.41, 3.5)
    means = results.mean_deviations(deviations(linear=0.5, norm_t2=0.2))
    said = results.conclusions(measured(linear=high, norm_t2=low), FLOOR, means, "main")
    opposite = results.conclusions(measured(linear=low, norm_t2=high), FLOOR, means, "main")
    assert any("norm-t2+lrpe against linear+lrpe: lower loss; −0.303 bits" in line for line in said)
    assert any("norm-t2+lrpe against linear+lrpe: higher loss; +0.303 bits" in line for line in opposite)
    assert any("lowest loss is norm-t2+lrpe, the steadiest by 'main' is norm-t2+lrpe" in line for line in said)
    assert any("lowest loss is linear+lrpe, the steadiest by 'main' is norm-t2+lrpe" in line for line in opposite)


@pytest.mark.parametrize(
    ("losses", "words"),
    [((3.0, 3.3, 3.4), "not distinguishable"), ((3.0, 3.0, math.inf), "no interval")],
    ids=["overlap", "diverged"],
)
def test_conclusions_claim_no_difference_that_the_seeds_do_not_show(losses: tuple[float, ...], words: str) -> None:
    runs = measured(linear=(3.2, 3.1, 3.3), norm_t2=losses)
    means = results.mean_deviations(deviations(linear=0.5, norm_t2=0.2))
    lines = results.conclusions(runs, FLOOR, means, "main")
    assert [words in line for line in lines if "against" in line] == [True]


def test_where_all_runs_diverged_no_row_is_called_the_best() -> None:
    runs = measured(linear=(math.inf,) * 3, norm_t2=(math.inf,) * 3)
    means = results.mean_deviations(deviations(linear=math.inf, norm_t2=math.inf))
    last = results.conclusions(runs, FLOOR, means, "main")[-1]
    assert last == "Every row has a run that diverged, so none is the best or the steadiest."


def test_a_row_above_the_floor_is_named() -> None:
    runs = measured(linear=(3.0, 3.0), norm_t2=(3.0, 3.7))
    means = results.mean_deviations(deviations(linear=0.5, norm_t2=0.2))
    first = results.conclusions(runs, FLOOR, means, "main")[0]
    assert "every run of linear+lrpe is below the two-sided 3-gram (3.650 bits)" in first
    assert first.endswith("not so: norm-t2+lrpe.")
    table = results.quality(by_row(runs), {"1-gram": 4.6, FLOOR.name: FLOOR.bits}, FLOOR)
    assert [line["below the floor"] for line in table] == ["2 of 2", "1 of 2", None, None]
    assert [line["range"] for line in table] == ["3.000 to 3.000", "3.000 to 3.700", None, None]


def test_published_values_are_shown_for_the_rows_that_the_paper_has() -> None:
    runs = measured(vanilla=(2.0,), linear=(3.0,), linear_unscaled=(math.inf,), norm_t1=(3.0,), norm_t2_layer=(3.0,))
    table = {line["row"]: line for line in results.beside_table_1(by_row(runs))}
    assert {row: line["Table 1"] for row, line in table.items()} == {
        "linear+lrpe": 4.98,
        "linear-unscaled+lrpe": 797.08,
        "norm-t1+lrpe": 4.94,
    }
    assert table["norm-t1+lrpe"]["Table 8"] == 4.23
    assert [line["perplexity"] for line in table.values()] == [8.0, math.inf, 8.0]
    assert published.deviations(ROWS) == {
        "vanilla+lrpe": 0.25,
        "linear+lrpe": 0.58,
        "norm-t1+lrpe": 0.2,
        "norm-t2+lrpe": 0.2,
    }


def test_the_main_definition_is_shown_beside_the_published_value() -> None:
    means = results.mean_deviations(deviations(linear=0.5, linear_unscaled=0.9))
    linear, unscaled = results.deviation_table(means, "other")
    assert list(linear) == ["row", "other", "Table 2", "main"]
    assert (linear["other"], unscaled["other"]) == pytest.approx((0.501, 0.901))
    assert (linear["Table 2"], unscaled["Table 2"]) == (0.58, None)


def test_the_ranking_puts_the_steadiest_first_and_nan_last() -> None:
    means = pd.DataFrame({"a": [0.5], "b": [math.nan], "c": [0.1]}, index=["main"])
    assert results.rankings(means) == {"main": "c < a < b"}


def test_a_difference_in_speed_has_a_direction_and_is_claimed_only_where_it_shows() -> None:
    slower = {"rms": [1.0, 1.0, 1.01], "layer": [2.0, 2.0, 2.01], "scale": [0.5, 0.5, 0.51]}
    unclear = {"rms": [1.0, 1.1, 0.9], "layer": [1.0, 0.9, 1.11]}
    lines = results.speed_conclusions(slower, unclear)
    assert lines[0].startswith("NormAttention, LayerNorm: 99.7% more time than with RMSNorm (95% interval")
    assert lines[1].startswith("NormAttention, ScaleNorm: 49.8% less time than with RMSNorm (95% interval")
    assert ["no difference is shown" in line for line in lines] == [False, False, True, False]
    assert lines[-1] == "RMSNorm alone takes 99.7% of NormAttention's time."


def figures() -> dict[str, Any]:
    """Every figure of the notebook, with a row that diverged."""
    losses = {row.removesuffix("+lrpe").replace("-", "_"): (3.0, 3.1, 3.2) for row in ROWS}
    runs = measured(**{**losses, "linear_unscaled": (4.0, 4.1, math.inf)})
    curves = row_losses.curves(runs)
    pairs = {pair: results.differences_by_step(curves, *pair) for pair in results.pairs(ROWS)}
    means = results.mean_deviations(deviations(**{name: 0.1 + at / 10 for at, name in enumerate(losses)}))
    means.loc["main", "linear-unscaled+lrpe"] = math.inf
    layers = pd.DataFrame(
        [{"row": r, "seed": s, "layer": y, "deviation": 0.3} for r in ROWS for s in (0, 1) for y in (1, 2)]
    )
    traces = {row: torch.rand(30) + 0.1 for row in ROWS[:5]}
    traces["linear-unscaled+lrpe"] = torch.tensor([1.0, math.inf, math.nan])
    return {
        "curves": draw.learning_curves(curves, FLOOR),
        "differences": draw.differences_over_steps(pairs),
        "ranks": draw.ranks(means, published.deviations(ROWS)),
        "layers": draw.deviation_per_layer(layers),
        "traces": draw.norm_traces(traces, 5, 1.0),
        "times": draw.round_times({"rms": [0.1, 0.2], "layer": [0.1, 0.1]}, {"rms": [0.1, 0.2], "layer": [0.1, 0.1]}),
    }


def test_every_figure_is_drawn_where_a_run_diverged() -> None:
    for name, figure in figures().items():
        svg = element(figure, caption="what it shows", alt="what it says", name=name).svg
        assert svg.count("<path") > 20, name
        assert "nan" not in svg.lower().split("</style>")[-1], name


def test_rows_of_one_figure_look_different() -> None:
    looks = [draw.look(row) for row in (*ROWS, "norm-t2-scale+lrpe")]
    assert len({(look.colour, look.marker) for look in looks}) == len({look.label for look in looks}) == len(looks)


def _frame(*ahead: tuple[float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [{"step": 10 * at, "ahead by": by, "low": low, "high": high} for at, (by, low, high) in enumerate(ahead, 1)]
    )


def test_an_order_is_told_with_its_side_and_its_first_waypoint() -> None:
    said = results.orders_in_words(
        {
            ("a", "b"): _frame((0.0, -0.1, 0.1), (0.2, 0.1, 0.3), (0.3, 0.2, 0.4)),
            ("c", "d"): _frame((-0.3, -0.4, -0.2)),
            ("e", "f"): _frame((0.1, -0.1, 0.3)),
        }
    )
    assert said == (
        "a is 0.300 bits ahead of b at the end, from step 20 on; c is 0.300 bits behind d at the end, from step 10 on; "
        "e and f are not distinguishable at the end."
    )


def test_many_orders_are_counted_and_one_seed_has_none() -> None:
    ahead, behind = _frame((0.3, 0.2, 0.4)), _frame((-0.3, -0.4, -0.2))
    pairs = {("a", "b"): ahead, ("c", "d"): behind, ("e", "f"): ahead, ("g", "h"): _frame((0.0, -1.0, 1.0))}
    assert "of 4 pairs, the model named first is ahead in 2 and behind in 1; in 1 the" in results.orders_in_words(pairs)
    assert results.orders_in_words({("a", "b"): _frame((0.3, math.nan, math.nan))}).startswith("No interval exists")


def test_traces_name_the_least_and_the_most_varying_row_and_leave_out_what_diverged() -> None:
    calm, wild = torch.tensor([9.0, 1.0, 1.0, 1.0]), torch.tensor([9.0, 1.0, 2.0, 3.0])
    lost = torch.tensor([1.0, math.inf, math.nan, 1.0])
    said = results.trace_in_words({"wild": wild, "lost": lost, "calm": calm}, 1, 1.5)
    assert said == (
        "After the warm-up the norm of calm varies by 0% of its mean, the least, that of wild by 50%, the most; 0% to "
        "67% of these steps are clipped."
    )
    assert "clipped" not in results.trace_in_words({"wild": wild}, 1, 0.0)
    assert results.trace_in_words({"lost": lost}, 1, 1.0) == "Every run diverged."


def test_the_steadiest_rows_are_counted_by_definition_and_never_one_that_diverged() -> None:
    means = results.mean_deviations(deviations(norm_t1=0.3, linear=0.2, vanilla=0.1))
    assert results.steadiest(means) == "Steadiest, of 2 definitions: vanilla+lrpe by 2; in Table 2 norm-t1+lrpe."
    means.loc["main", "vanilla+lrpe"] = math.inf
    assert "linear+lrpe by 2" in results.steadiest(means)
    assert results.steadiest(means * math.inf).startswith("Every row has a run that diverged")


def test_the_layers_that_are_named_have_the_lowest_and_the_highest_mean() -> None:
    frame = pd.DataFrame(
        [
            {"row": row, "seed": seed, "layer": layer, "deviation": value + seed / 10}
            for row, of in {"a": (0.3, 0.1), "b": (0.2, 0.9)}.items()
            for layer, value in enumerate(of, 1)
            for seed in (0, 1)
        ]
    )
    assert results.layers_in_words(frame) == "Steadiest: layer 2 of a, 0.15; least steady: layer 2 of b, 0.95."


def test_a_caption_tells_only_the_differences_in_speed_that_show() -> None:
    rms, alone = [1.0, 1.0, 1.01], {"rms": [0.5, 0.5, 0.505]}
    said = results.speed_in_words({"rms": rms, "layer": [2.0, 2.0, 2.01], "scale": [1.0, 0.9, 1.12]}, alone)
    told = "+99.7% with LayerNorm; no difference is shown with ScaleNorm. RMSNorm alone takes 50.0% of it."
    assert said == f"NormAttention's time against that with RMSNorm: {told}"
    one_round = results.speed_in_words({"rms": [1.0], "layer": [2.0]}, {"rms": [0.5]})
    assert "RMSNorm: no difference is shown with LayerNorm." in one_round
