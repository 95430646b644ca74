"""Notebook 12: its runs, its sheets, its judge, equal time, and what the printed tables say."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from transnormer_lib.analysis.pixel_speed import Timing
from transnormer_lib.data.pixels import load_pixels
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.models.logistics import Mixtures
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.image_generation import figures, mixtures, published, results, speed
from transnormer_lib.studies.image_generation.judge import Judge, upper_half
from transnormer_lib.studies.image_generation.runs import Parameters, model, runs

PROJECT = Project(Path(__file__).resolve().parents[3])


def parameters(preset: str = "quick", **fields: object) -> Parameters:
    return replace(read(Parameters, resolve(PROJECT, preset, "12_image_generation")), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", ["quick", "night", "gpu", "paper"])
def test_the_rows_of_a_preset_differ_in_their_attention_alone(preset: str) -> None:
    given = parameters(preset)
    configs = [replace(model(row, given), attention=("linear",), attention_options={}) for row in given.rows]
    assert len(set(map(repr, configs))) == 1
    assert {run.data.task_name for run in runs(given)} == {given.images} | ({"cifar10"} if given.cifar_rows else set())
    assert len({run.name for run in runs(given)}) == len(runs(given))


def test_the_paper_preset_has_the_printed_recipe() -> None:
    given = parameters("paper")
    assert (given.layers, given.heads, given.dim, given.mixtures, given.batch_size) == (8, 8, 256, 10, 10)
    assert (given.rule, given.learning_rate, given.lsh_buckets, given.lsh_chunk) == ("radam", 1e-4, 64, 29)
    assert given.steps * given.batch_size == 250 * 54_000
    colour = given.on_cifar
    assert (colour.layers, colour.lsh_chunk, colour.batch_size, len(colour.rows)) == (16, 37, 4, 4)


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(ValueError, match="rows='lsh-2'"):
        parameters(rows=("lsh-2",))
    with pytest.raises(ValueError, match="cifar_rows='lsh-2'"):
        parameters(cifar_rows=("lsh-2",))


def test_the_printed_factors_follow_from_the_printed_speeds() -> None:
    assert published.times_softmax("table_1", "Linear") == pytest.approx(317, abs=0.5)
    assert published.times_softmax("table_2", "Linear") == pytest.approx(4462, abs=0.5)
    assert published.growth_exponent() == pytest.approx(1.94, abs=0.01)
    assert published.chunks_cover("mnist")
    assert published.chunks_cover("cifar")


def test_a_kept_sheet_is_the_sheet() -> None:
    rng = np.random.default_rng(0)
    rows = {row: rng.integers(256, size=(3, 196)).astype(np.uint8) for row in ("linear", "softmax")}
    sheet = results.Sheet((14, 14, 1), rows, rows, rows["linear"])
    again = results.Sheet.unpacked(sheet.packed())
    assert again.shape == sheet.shape
    assert all(np.array_equal(again.samples[row], images) for row, images in rows.items())
    assert np.array_equal(again.originals, sheet.originals)


def test_a_mosaic_holds_every_image_in_its_place() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None].repeat(4, 1)
    mosaic = figures.mosaic(images, (2, 2, 1), columns=3)[..., 0]
    assert mosaic.shape == (5, 8)
    assert [int(mosaic[3 * (i // 3), 3 * (i % 3)]) for i in range(5)] == list(range(5))


def test_equal_time_is_what_the_faster_row_trains_in_all() -> None:
    fast = results.Curve("linear", 1, (10, 100), (1.0, 10.0), (3.0, 2.0))
    slow = results.Curve("softmax", 1, (10, 100), (10.0, 100.0), (2.5, 1.5))
    assert results.at_equal_time([fast, slow], "linear", "softmax") == ([1], [2.0], [2.5])
    assert slow.at_seconds(math.sqrt(1000)) == pytest.approx(2.0)
    assert slow.at_seconds(5.0) == math.inf


def test_the_judge_sees_real_digits_and_less_in_halves() -> None:
    pixels = load_pixels("mnist-5k-14")
    few = {split: rows[::4] for split, rows in pixels.images.items()}
    labels = {split: of[::4] for split, of in pixels.labels.items()}
    small = replace(pixels, images=few, labels=labels)
    found = Judge(small).references(small.images["test"], small.labels["test"])
    assert upper_half(pixels) == 98
    assert found.real > 0.85 > found.upper > 0.5 > found.blank


@pytest.mark.parametrize("scale", [-5.0, -2.0])
def test_the_released_sampler_is_almost_right_for_narrow_logistics_only(scale: float) -> None:
    narrow, wide = (torch.tensor([0.0, 0.0, x], dtype=torch.float64) for x in (scale, 3.0))
    assert float(mixtures.apart(narrow, 256)) < 0.02
    assert float(mixtures.apart(wide, 256)) > 0.05
    assert float(mixtures.as_released(wide, 256).log_scales.exp()) == pytest.approx(4.0001)
    assert float(Mixtures.of(wide, 256).log_scales) == 3.0


def test_the_factors_multiply_to_the_whole() -> None:
    places = speed.positions([196, 784])
    assert places == [1, 97, 195, 783]

    def timing(way: str, batch: int, seconds: float) -> Timing:
        return Timing(way, batch, dict.fromkeys(places, (seconds, 2 * seconds)))

    times = [timing(speed.LINEAR, 4, 1.0), timing(speed.LINEAR, 64, 2.0), timing(speed.CACHED, 4, 3.0)]
    times += [timing(speed.CACHED, 64, 20.0), timing(speed.SOFTMAX, 4, 12.0), timing(speed.LSH_4, 4, 9.0)]
    found = speed.factors(times, 784)
    assert (found.cache[0], found.recurrence[0], found.batch[0]) == pytest.approx((12 / 3, 3 / 1, 64 / 2 / 4))
    assert found.whole == pytest.approx(speed.leads(times, 784)[speed.SOFTMAX])
    assert found.batches == {speed.LINEAR: 64, speed.CACHED: 64, speed.SOFTMAX: 4}
    assert found.gains[speed.LINEAR][0] == pytest.approx(8.0)
    assert speed.factor_lines({784: found})[0]["batch of linear, recurrent"] == "64, 8.0 times"
    assert speed.seconds_per_image(times, speed.LSH_1, 784) is None
    with pytest.raises(ValueError, match="pixels=784: no batch was timed in all of"):
        speed.factors([one for one in times if one.way != speed.SOFTMAX], 784)


def test_operations_without_a_cache_are_quadratic_with_one_linear_and_of_the_recurrence_constant() -> None:
    from pixel_cases import decoder

    from transnormer_lib.models.language_model import build_model

    powers = speed.attention_powers(build_model(decoder(), 0), near=128)
    assert powers[speed.LINEAR] == 0.0
    assert powers == pytest.approx({speed.LINEAR: 0.0, speed.CACHED: 1.0, speed.SOFTMAX: 2.0}, abs=0.05)


def test_ten_thousand_states_of_the_printed_model_take_gigabytes_and_caches_a_hundred() -> None:
    found = speed.printed_bytes()
    assert found[speed.LINEAR] == 4 * 8 * 8 * (32 * 32 + 32)
    assert found[speed.CACHED] == 4 * 8 * 2 * 783 * 256


def test_the_lead_is_measured_with_the_layers_of_the_model_that_is_given() -> None:
    from pixel_cases import decoder

    from transnormer_lib.models.language_model import build_model

    given = {"memory": 1e9, "rounds": 2, "repeats": 1}
    found = speed.lead_of(build_model(decoder(), 0), parameters(), [8, 16], [1, 2], "cpu", **given)
    assert len(found) == 2
    assert min(found) > 0


def test_the_cuda_device_is_refused_where_there_is_none() -> None:
    from pixel_cases import decoder

    from transnormer_lib.models.language_model import build_model

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="speed_device='cuda'"):
        speed.ways(build_model(decoder(), 0), parameters(), 16, [1], 16, "cuda")


def kept_night(**measured: object) -> Kept:
    """Kept claims with what they measured, by the end of their name."""
    claims = [
        {"id": f"images-{name.replace('_', '-')}", "measured": value, "verdict": "", "scale": "night", "seeds": None}
        for name, value in measured.items()
    ]
    return Kept("night", "night", "12_image_generation", {}, claims, [], "a machine", 1, "abc", "2026-01-02")


def test_the_kept_pictures_are_told_by_the_shares_that_a_judge_recognised() -> None:
    found = kept_night(
        completions_keep_the_digit={"better": [0.5, 0.6], "worse": [0.57, 0.57]},
        completions_add_nothing_false={"better": [0.5, 0.6], "worse": [0.87, 0.87]},
        completions_linear_as_good_as_softmax={"better": [0.5, 0.6], "worse": [0.4, 0.4]},
        completions_lsh_4_as_good_as_softmax=None,
    )
    assert results.kept_completions(found) == (
        "A judge of real digits sees the true one in 55% of linear's and 40% of softmax's (2 seeds); with the lower "
        "half black 57%, none (a judge of upper halves) 87%."
    )
    assert results.kept_completions(kept_night()) == "No judge has read them."


def test_the_kept_samples_are_told_by_the_losses_of_their_models() -> None:
    sides = {"better": [1.5, 1.3], "controls": {"softmax": [1.2, 1.2]}, "floor": {"name": "the floor", "value": 1.4}}
    said = results.kept_losses(kept_night(linear_as_good_as_softmax=sides))
    assert said == "Mean bits per dimension: linear 1.400, softmax 1.200; the floor 1.400."
    for absent in (kept_night(), kept_night(linear_as_good_as_softmax=None)):
        assert results.kept_losses(absent) == "Their losses were not compared."


def test_growth_and_leads_are_medians_over_the_rounds() -> None:
    def timing(way: str, seconds: float, growth: float) -> Timing:
        return Timing(way, 1, {1: (seconds,) * 3, 195: (growth * seconds,) * 3})

    times = [timing(speed.LINEAR, 1e-3, 1.0), timing(speed.CACHED, 2e-3, 1.0), timing(speed.SOFTMAX, 8e-3, 5.0)]
    assert speed.growth_in_words(times) == (
        "The last pixel over the first: linear, recurrent 1.0; softmax, cached 1.0; softmax, recomputed 5.0."
    )
    told = speed.leads_in_words(times, [196])
    assert told.endswith("over softmax, cached 2 at 196 values.")
    assert told.startswith("Linear attention's lead: over softmax, recomputed ")
