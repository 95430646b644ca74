"""A run whose loss is outside its band stops, gives the reason, and resumes on request."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import RUN_CONDITIONS, classifier, config, fake_task

from transnormer_lib.strict import from_plain
from transnormer_lib.training import __main__ as command
from transnormer_lib.training import trainer
from transnormer_lib.training.bands import bands_of, measured
from transnormer_lib.training.config import Band, RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import RunFailed
from transnormer_lib.training.trainer import train

FAR = Band(4, 0.0, 0.1)  # no model has such a loss after four steps


def _lasting(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in RUN_CONDITIONS}


def test_a_run_outside_its_band_stops_there_and_says_why() -> None:
    record = train(config(bands=(FAR,))).record
    assert record["status"] == "outside-band"
    assert record["steps"] == 4
    assert record["outside"] == {"step": 4, "of": "train", "measured": record["train_loss"][3], "low": 0.0, "high": 0.1}


@pytest.mark.parametrize("window", [1, 3, 16])
def test_a_run_stops_at_its_band_whatever_the_window(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "_CPU_WINDOW", window)
    assert train(config(bands=(FAR,))).record["steps"] == 4


def test_bands_from_a_run_hold_for_another_seed_and_change_nothing_in_it() -> None:
    recipe = config(steps=20, waypoints=(5,))
    records = [train(replace(recipe, seed=seed)).record for seed in (1, 2)]
    bands = (*bands_of(records, [5, 10]), *bands_of(records, [5], of="validation"))
    with_bands, without = (train(replace(recipe, bands=given)).record for given in (bands, ()))
    assert with_bands["status"] == "finished"
    assert _lasting(with_bands) == _lasting(without)


def test_a_band_contains_the_losses_it_was_derived_from() -> None:
    train_loss = [5.0 - 0.1 * step for step in range(40)]
    records = [{"status": "finished", "train_loss": [x + d for x in train_loss], "validation": []} for d in (0.0, 0.3)]
    [early, late] = bands_of(records, [1, 40], margin=0.1)
    assert (early.low, early.high) == pytest.approx((5.0 - 0.515, 5.3 + 0.515))
    mean = sum(train_loss[36:]) / 4  # the last tenth
    assert measured(40, "train", train_loss, []) == pytest.approx(mean)
    assert late.low < mean < mean + 0.3 < late.high


@pytest.mark.parametrize(
    ("records", "steps", "message"),
    [
        ([], [1], "records: at least one"),
        ([{"status": "diverged"}], [1], "records: one is 'diverged'"),
        ([{"status": "finished", "train_loss": [1.0], "validation": []}], [2], "step=2: the record has 1 steps"),
    ],
    ids=["none", "diverged", "short"],
)
def test_bands_need_finished_runs_that_reach_their_steps(records: Any, steps: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bands_of(records, steps)


@pytest.mark.parametrize("of", ["train", "validation"])
@pytest.mark.parametrize("task", ["causal", "classify"])
def test_a_stopped_run_resumes_without_its_bands_and_ends_bit_identical(
    task: str, of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_task(monkeypatch)
    band = replace(FAR, of=of, high=1e-3)
    fields: dict[str, Any] = {"waypoints": (4,), "bands": (band,)}
    run = config(**fields) if task == "causal" else classifier(**fields)
    stopped = RunStore(tmp_path).get(run)
    assert stopped.record["status"] == "outside-band"
    assert RunStore(tmp_path).find(run) is None  # not finished
    with pytest.raises(RunFailed, match=f"outside-band after 4 steps: {of} loss .* TRANSNORMER_CHECK_BANDS=0 lets it"):
        _ = stopped.validation
    again = RunStore(tmp_path).get(run)
    assert (again.record["steps"], again.record["sessions"]) == (4, 2)  # requested again: stops without a step
    monkeypatch.setenv("TRANSNORMER_CHECK_BANDS", "0")
    finished = RunStore(tmp_path).get(run)
    assert finished.record["sessions"] == 2
    expected = RunStore(tmp_path / "undisturbed").get(run)
    assert _lasting(finished.record) == _lasting(expected.record)
    ours, theirs = finished.model().state_dict(), expected.model().state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_bands_are_no_part_of_a_run_s_identity(tmp_path: Path) -> None:
    wide = config(bands=(Band(4, 0.0, 100.0),))
    assert run_id(wide) == run_id(config())
    trained = RunStore(tmp_path).get(wide)
    assert RunStore(tmp_path).get(config(bands=(FAR,))).record == trained.record  # finished: nothing left to stop


def test_a_stored_run_outside_the_requested_bands_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    stored = store.get(config())
    store.get(config(bands=(Band(4, 0.0, 100.0),)))
    assert capsys.readouterr().err == ""
    late = Band(8, 0.0, 0.2, "validation")
    store.get(config(bands=(late,)))
    error = capsys.readouterr().err
    assert error.startswith(f"run {stored.path.name}, stored: validation loss ")
    assert error.endswith(" after 8 steps, expected in [0, 0.2]\n")
    RunStore(tmp_path, check_bands=False).get(config(bands=(late,)))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("band", "message"),
    [
        (Band(9, 0.0, 1.0), r"bands\.step=9: exceeds steps=8"),
        (Band(3, 0.0, 1.0, "validation"), r"bands\.step=3: validation is not measured then"),
    ],
    ids=["late", "no-validation"],
)
def test_a_band_that_can_never_be_checked_is_refused(band: Band, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(bands=(band,))


def test_bands_survive_plain_values() -> None:
    run = config(bands=(FAR, Band(8, 0.1, 9.0, "validation")))
    assert from_plain(RunConfig, asdict(run)) == run
    with pytest.raises(ValueError, match=r"high=1\.0: must be greater than low=2\.0"):
        Band(3, 2.0, 1.0)


def test_the_command_names_the_band_and_can_ignore_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    def arguments(run: RunConfig, *more: str) -> list[str]:
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(json.loads(json.dumps(asdict(run)))))
        return [str(path), "--store", str(tmp_path / "runs"), *more]

    assert command.main(arguments(config(bands=(FAR,)))) == 1
    assert "after 4 steps, expected in [0, 0.1]" in capsys.readouterr().err
    assert command.main(arguments(config(bands=(FAR,)), "--ignore-bands")) == 0


def test_an_invalid_switch_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSNORMER_CHECK_BANDS", "no")
    with pytest.raises(ValueError, match="TRANSNORMER_CHECK_BANDS='no': must be 0 or 1"):
        RunStore()
