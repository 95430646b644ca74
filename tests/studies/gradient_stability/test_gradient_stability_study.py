"""The runs behind Tables 1 and 2: what they share, and what their results say, also where one diverged."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_study import LANGUAGE_MODEL, NO_SEARCH

from transnormer_lib import studies
from transnormer_lib.models.architectures import names
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.common.language_models import final_bits, grid
from transnormer_lib.studies.common.measured import Measured, by_row
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.gradient_stability import results
from transnormer_lib.studies.gradient_stability import runs as study
from transnormer_lib.studies.gradient_stability.measures import MAIN
from transnormer_lib.training.gradient_statistics import GradientStatistics
from transnormer_lib.training.stored_run import Run

VALUES: dict[str, Any] = {
    **LANGUAGE_MODEL,
    **NO_SEARCH,
    "architectures": ["vanilla", "linear", "linear-unscaled", "norm-t1", "norm-t2"],
    "rotations": ["none", "lrpe"],
    "other_norms": ["layer", "scale"],
    "seeds": [3, 1],
    "waypoints": [0.1, 0.5, 1.0],
    "steps": 20,
    "learning_rate": 1e-2,
    "warmup": 4,
    "ladder_mechanisms": [],
    "ladder_settings": [],
    "ladder_rates": [],
    "ladder_length": 8,
    "ladder_batch_size": 2,
    "ladder_steps": 10,
}
PARAMETERS = read(study.Parameters, VALUES)


def stored(folder: Path, row: str, seed: int, bits: Sequence[float], *, noise: float = 0.1) -> Measured:
    """A run as the store keeps it, with these losses at its waypoints; it diverged where there are too few of them."""
    config = next(
        c
        for (name, s), c in zip(grid(study.models(PARAMETERS), PARAMETERS.seeds), study.runs(PARAMETERS), strict=True)
        if (name, s) == (row, seed)
    )
    steps = [*config.waypoints, config.steps]
    finished = len(bits) == len(steps)
    generator = torch.Generator().manual_seed(seed)
    parts = [f"blocks.{i}.attention.{p}_proj.weight" for i in range(2) for p in ("q", "k", "v", "out")]
    count = len(parts)
    statistics = GradientStatistics(
        names=tuple(parts),
        counted=16 if finished else 0,
        norms=1 + noise * torch.rand(20 if finished else 7, count, generator=generator),
        mean_norm=torch.ones(count) if finished else torch.full((count,), math.nan),
        mean_square=torch.full((count,), 1 + noise**2 if finished else math.nan),
        elementwise_rsd=torch.full((count,), noise if finished else math.nan),
    )
    path = folder / f"{config.name}"
    path.mkdir(parents=True)
    statistics.save(path / "gradients.safetensors")
    record = {
        "status": "finished" if finished else "diverged",
        "steps": 20 if finished else 8,
        "divergence": None if finished else {"step": 7, "what": "loss", "layer": None},
        "validation": [{"step": s, "bits_per_token": b} for s, b in zip(steps, bits, strict=False)],
        "gradients": {"names": parts, "counted": statistics.counted},
    }
    run = Run(path, config, record)
    return Measured(row, seed, final_bits(run), run)


@given(
    architecture=st.sampled_from(names()),
    norm=st.sampled_from(["rms", "layer", "scale"]),
    rotary=st.sampled_from(["none", "rope", "lrpe"]),
)
def test_the_name_of_a_row_gives_its_parts(architecture: str, norm: str, rotary: str) -> None:
    assert study.parts(study.label(architecture, rotary, norm)) == (architecture, norm, rotary)


@pytest.mark.parametrize("rotary", ["none", "lrpe"])
def test_rows_of_one_rotation_differ_only_in_their_attention(rotary: str) -> None:
    rows = {row: config for row, config in study.models(PARAMETERS).items() if study.parts(row).rotary == rotary}
    rest = [replace(config, attention=("softmax",) * 2, attention_options={}) for config in rows.values()]
    assert len(rows) >= 5
    assert len({(config.attention, str(config.attention_options)) for config in rows.values()}) == len(rows)
    assert all(config == rest[0] and config.rotary == rotary for config in rest)


def test_other_norms_are_trained_only_under_the_last_rotation() -> None:
    others = [row for row in study.models(PARAMETERS) if study.parts(row).norm != "rms"]
    assert others == ["norm-t2-layer+lrpe", "norm-t2-scale+lrpe"]


def test_every_row_is_run_with_every_seed_and_records_its_gradients() -> None:
    runs = studies.runs("02_gradient_stability", VALUES)
    assert len({run.name for run in runs}) == len(runs) == (2 * 5 + 2) * 2
    assert {run.gradients for run in runs} == {"norms"}
    assert {run.waypoints for run in runs} == {(2, 10)}  # the last step is validated anyway


def test_a_warm_up_that_leaves_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup=19: must leave at least two of steps=20"):
        study.runs(replace(PARAMETERS, warmup=19))


def test_losses_come_in_the_order_of_the_seeds(tmp_path: Path) -> None:
    measured = [stored(tmp_path, "linear", 3, [4, 4, 3.3]), stored(tmp_path, "linear", 1, [4, 4, 3.1])]
    assert by_row(measured) == by_row(measured[::-1]) == {"linear": [3.1, 3.3]}


def test_a_diverged_run_loses_and_breaks_nothing(tmp_path: Path) -> None:
    measured = [stored(tmp_path, "linear", seed, [4, 4, 3]) for seed in (1, 3)]
    measured += [stored(tmp_path, "norm-t2", 1, [4, 4, 2]), stored(tmp_path, "norm-t2", 3, [4])]
    assert results.diverged(measured) == ["norm-t2, seed 3 (loss not finite at step 7)"]
    assert by_row(measured)["norm-t2"] == [2, math.inf]
    assert results.perplexity(math.inf) == math.inf
    deviations = results.deviations(measured, 4)
    for definition in deviations.definition.unique():
        finite = [math.isfinite(d) for d in results.deviations_by_row(deviations, definition)["norm-t2"]]
        assert finite == [True, False]
    assert set(results.rankings(results.mean_deviations(deviations)).values()) == {"linear < norm-t2"}
    differences = results.differences_by_step(row_losses.curves(measured), "norm-t2", "linear")
    assert differences["ahead by"].notna().tolist() == [True, False, False]
    assert results.appeared(differences) == {"sign": 0, "since": None}
    assert set(results.layer_deviations(measured, 4).groupby("row").seed.nunique().items()) == {
        ("linear", 2),
        ("norm-t2", 1),
    }


def test_a_steadier_gradient_has_the_smaller_deviation(tmp_path: Path) -> None:
    measured = [stored(tmp_path, "linear", s, [4, 4, 3], noise=0.5) for s in (1, 3)]
    measured += [stored(tmp_path, "norm-t1", s, [4, 4, 3], noise=0.05) for s in (1, 3)]
    means = results.mean_deviations(results.deviations(measured, 4))
    assert list(means.columns) == ["linear", "norm-t1"]
    assert set(results.rankings(means).values()) == {"norm-t1 < linear"}
    layers = results.layer_deviations(measured, 4)
    assert sorted(layers.layer.unique()) == [1, 2]
    mean = layers.groupby("row").deviation.mean()
    assert mean["norm-t1"] < mean["linear"]
    assert means.loc[MAIN, "norm-t1"] < 0.05


def frame(**rows: list[tuple[float, ...]]) -> pd.DataFrame:
    """Curves from the losses of all seeds at each step, by row."""
    return pd.DataFrame(
        [
            {"row": row, "seed": seed, "step": 10 * (at + 1), "bits": bits}
            for row, points in rows.items()
            for at, point in enumerate(points)
            for seed, bits in enumerate(point)
        ]
    )


def test_an_order_has_appeared_once_its_interval_stays_away_from_zero() -> None:
    curves = frame(
        a=[(3.0, 3.1, 3.2), (3.0, 3.4, 2.9), (2.0, 2.1, 2.2), (1.0, 1.1, 1.2)],
        b=[(4.0, 4.1, 4.21), (3.1, 3.0, 3.2), (3.0, 3.1, 3.21), (2.0, 2.1, 2.21)],
    )
    differences = results.differences_by_step(curves, "a", "b")
    assert differences["ahead by"].tolist() == pytest.approx([3.01 / 3, 0.0, 3.01 / 3, 3.01 / 3])
    assert (differences.low > 0).tolist() == [True, False, True, True]
    assert results.appeared(differences) == {"sign": 1, "since": 30}
    assert results.appeared(results.differences_by_step(curves, "b", "a")) == {"sign": -1, "since": 30}


def test_one_seed_shows_no_order() -> None:
    differences = results.differences_by_step(frame(a=[(1.0,)], b=[(2.0,)]), "a", "b")
    assert differences["ahead by"].tolist() == [1.0]
    assert differences[["low", "high"]].isna().all(axis=None)
    assert results.appeared(differences) == {"sign": 0, "since": None}


def test_only_trained_rows_of_one_rotation_are_compared() -> None:
    assert results.pairs(["linear+lrpe", "norm-t1"]) == []
    assert results.pairs(["linear+lrpe", "norm-t1+lrpe"]) == [("norm-t1+lrpe", "linear+lrpe")]
