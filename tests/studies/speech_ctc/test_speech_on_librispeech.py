"""The speech study on LibriSpeech: the presets that need the Hub plan without data and train where there are some."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from librispeech_sample import needs_packages, put, row
from speech_parameters import PARAMETERS

from transnormer_lib.data import librispeech
from transnormer_lib.data.speech_tasks import speech_task
from transnormer_lib.studies.speech_ctc import baselines, figures, results, runs, timing
from transnormer_lib.training.store import RunStore

ROOT = Path(__file__).resolve().parents[3]
ENGLISH = replace(PARAMETERS, corpus=librispeech.NAME, context=0, length=64, steps=8, seeds=(0, 1))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("TRANSNORMER_DATA_ROOT", "root"), ("TRANSNORMER_CACHE", "cache")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    speech_task.cache_clear()  # a task keeps what it has read
    for split, speaker in (("train.100", 1), ("validation", 2), ("test", 3)):
        put(tmp_path / "root", split, [row(n, "A CAT", speaker=speaker) for n in range(5)])


@pytest.mark.parametrize("preset", ["gpu", "paper"])
def test_the_presets_of_the_hub_read_single_frames_of_librispeech_as_long_as_the_papers(preset: str) -> None:
    values = yaml.safe_load((ROOT / "params" / preset / "13_speech_ctc.yaml").read_text())
    names = {field.name for field in fields(runs.Parameters)}
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name in names}
    for run in runs.runs(replace(PARAMETERS, **given)):
        assert run.data.task_name == librispeech.NAME
        assert (run.model.features, run.model.vocab_size, run.model.context, run.data.length) == (40, 29, 0, 2400)


def test_all_seeds_share_the_splits_of_the_corpus() -> None:
    assert {runs.task_name(ENGLISH, seed) for seed in range(5)} == {librispeech.NAME}
    assert [task.name for task in runs.tasks(ENGLISH)] == [librispeech.NAME]


def test_steps_are_timed_on_the_features_of_the_corpus() -> None:
    assert set(timing.step_times(("linear",), ENGLISH, [48], 1, 1)[48]) == {"linear"}


@needs_packages
@pytest.mark.usefixtures("corpus")
@pytest.mark.parametrize("row", ["bilstm", "linear"])
def test_a_row_trains_and_is_measured(row: str, tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz")
    parameters = replace(ENGLISH, rows=(row,))
    measured = results.measure(parameters, RunStore(tmp_path))
    (task,) = runs.tasks(parameters)
    assert all(m.run.record["train_loss"][-1] < m.run.record["train_loss"][0] for m in measured)
    assert results.transcripts(measured[0].run, task, 2)[0]["said"] == "A CAT"
    assert baselines.floor(task) == 0.0  # every utterance says the same
    assert figures.utterance(task, 0)[1] == "A CAT"
