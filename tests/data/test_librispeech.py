"""LibriSpeech from generated files: every utterance once per epoch, long ones counted, features kept, faults named."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from librispeech_sample import encoded, needs_packages, noise, row
from librispeech_sample import put as put_below

from transnormer_lib.data import cache, filterbanks, librispeech
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.librispeech import LibriSpeech, spelled
from transnormer_lib.data.speech import normalised, symbols_of
from transnormer_lib.data.speech_tasks import speech_task

TEXTS = ["A CAT", "ISN'T IT", "BOOK", "THE END", "SO  SAID he", "OH"]
Put = Callable[..., Path]


@pytest.fixture
def put(data_root: Path) -> Put:
    """Writes rows as one file of a split."""
    return partial(put_below, data_root)


@pytest.fixture
def corpus(put: Put) -> LibriSpeech:
    """Six training utterances in two files, of 48 to 73 frames; the last is too long."""
    rows = [row(n, text, speaker=1 + n % 2) for n, text in enumerate(TEXTS)]
    put("train.100", rows[:4], 0, 2)
    put("train.100", rows[4:], 1, 2)
    put("validation", [row(10 + n, "OH", 8000, 3) for n in range(3)])
    put("test", [row(20, "ONE", 8000, 4), row(21, "TWO", 9600, 5), row(22, "THREE", 16_000, 5)])
    return LibriSpeech(70)


@needs_packages
def test_frames_are_the_normalised_energies_and_symbols_spell_the_text(corpus: LibriSpeech) -> None:
    utterances = corpus.utterances("train")
    for number, text in enumerate(TEXTS):
        frames, symbols = utterances.example(number)
        energies = filterbanks.filterbanks(noise(8000 + 800 * number, number))
        np.testing.assert_allclose(frames, normalised(energies), atol=2e-3)  # half precision
        assert "".join(corpus.symbols[symbol] for symbol in symbols) == " ".join(text.upper().split())
        assert frames.dtype == np.float32
        assert symbols.min() > 0  # never the blank


@needs_packages
def test_longer_utterances_are_left_out_and_counted(corpus: LibriSpeech) -> None:
    assert [corpus.pool(split) for split in corpus.splits] == [5, 3, 2]
    assert [corpus.left_out(split) for split in corpus.splits] == [1, 0, 1]
    whole = LibriSpeech(2400)
    assert [whole.pool(split) for split in whole.splits] == [6, 3, 3]
    with pytest.raises(ValueError, match="length=47: the shortest utterance of split 'train' has 48 frames"):
        LibriSpeech(47).pool("train")


@needs_packages
def test_an_epoch_reads_every_utterance_once_in_an_order_of_its_own(corpus: LibriSpeech) -> None:
    batches = corpus.sampler(1, seed=3)
    orders = [[batches.batch(5 * epoch + step)["targets"].tolist() for step in range(5)] for epoch in range(4)]
    assert all(sorted(map(str, order)) == sorted(map(str, orders[0])) for order in orders)
    assert len({str(one) for one in orders[0]}) == 5
    assert len(set(map(str, orders))) > 1


@needs_packages
def test_a_batch_depends_on_seed_and_step_alone(corpus: LibriSpeech) -> None:
    first, again = (task.sampler(4, seed=7).batch(5) for task in (corpus, LibriSpeech(corpus.length)))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert first["frames"].shape[1] % 16 == 0
    assert not first["frames"][first["key_padding_mask"]].any()


@needs_packages
def test_held_out_utterances_are_the_same_in_batches_of_any_size_and_at_most_all(corpus: LibriSpeech) -> None:
    by_size = [
        [one for batch in corpus.held_out("test", 9, size) for one in symbols_of(batch["targets"])] for size in (1, 9)
    ]
    assert by_size[0] == by_size[1]
    assert [len(one) for one in by_size[0]] == [3, 3]  # of three, one is too long
    frames = [int((~batch["key_padding_mask"]).sum()) for batch in corpus.held_out("train", 5, 1)]
    assert frames == [68, 63, 58, 53, 48]


@needs_packages
def test_speakers_are_read_where_the_files_name_them(put: Put, corpus: LibriSpeech) -> None:
    assert [corpus.heard(split, 1) for split in corpus.splits] == [{1, 2}, {3}, {4, 5}]


@needs_packages
def test_a_file_may_lack_the_speakers(put: Put) -> None:
    nameless = row(0)
    del nameless["speaker_id"]
    put("validation", [nameless])
    assert LibriSpeech(70).heard("validation", 1) == set()


@needs_packages
def test_features_are_made_once(corpus: LibriSpeech, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint, pool = corpus.fingerprint, corpus.pool("train")
    assert len(list(cache.cache_dir().glob("filterbanks-*[0-9a-f]"))) == 2  # one for each file
    monkeypatch.setattr(librispeech, "_write", None)
    again = LibriSpeech(corpus.length)
    assert (again.fingerprint, again.pool("train")) == (fingerprint, pool)
    assert LibriSpeech(71).fingerprint != fingerprint


@needs_packages
def test_half_precision_is_what_is_kept(corpus: LibriSpeech) -> None:
    from safetensors.numpy import load_file

    for file in corpus.utterances("train").files:
        kept = load_file(file)["energies"]
        assert kept.dtype == np.float16
        assert kept.shape[1] == 40


@needs_packages
def test_damaged_features_are_named(corpus: LibriSpeech) -> None:
    (file, *_) = corpus.utterances("train").files
    file.write_bytes(file.read_bytes()[:100])
    librispeech._opened.cache_clear()
    with pytest.raises(DataFault, match=r"is damaged .*; delete it to make it again"):
        LibriSpeech(70).pool("train")


@needs_packages
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"text": "CAFÉ"}, "row 1: 'É' in the text, expected the letters A to Z, spaces and apostrophes"),
        ({"text": " "}, "row 1, column 'text': expected text, found none"),
        ({"text": "A" * 200}, "row 1: 53 frames for a text that CTC needs 399 for"),
        ({"audio": {"bytes": b"fLaC and no more", "path": ""}}, "row 1: 16 bytes that cannot be decoded"),
        ({"audio": {"bytes": b"", "path": ""}}, "row 1, column 'audio': expected a recording, found none"),
        ({"audio": {"bytes": b"\x89PNG", "path": ""}}, "row 1, column 'audio': expected a FLAC or WAV file"),
        ({"speaker_id": -1}, "row 1, column 'speaker_id': expected a label in 0…99999, found -1"),
    ],
    ids=["letter", "blank", "room", "cut", "empty", "picture", "speaker"],
)
def test_a_fault_names_the_file_and_the_row(fault: dict[str, Any], message: str, put: Put) -> None:
    path = put("test", [row(0), row(1) | fault])
    with pytest.raises(DataFault, match=message) as caught:
        LibriSpeech(100).pool("test")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_packages
def test_another_rate_is_refused(put: Put) -> None:
    put("test", [row(0) | {"audio": {"bytes": encoded(noise(8000), 8000), "path": ""}}])
    with pytest.raises(DataFault, match=r"row 0: 1 channels of 8,000 samples per second, expected 1 of 16,000"):
        LibriSpeech(100).pool("test")


@needs_packages
def test_a_file_without_rows_is_refused(put: Put) -> None:
    path = put("test", [row(0)])
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(DataFault, match="has no rows, expected about 2620"):
        LibriSpeech(100).pool("test")


@needs_packages
def test_without_the_corpus_the_reason_is_one_line(data_root: Path) -> None:
    with pytest.raises(
        DataUnavailable, match=r"openslr/librispeech_asr/clean/train\.100/0000\.parquet .* transnormer data"
    ):
        LibriSpeech(100).fingerprint  # noqa: B018


def test_the_task_is_found_by_name_without_reading_anything(data_root: Path) -> None:
    task = speech_task(librispeech.NAME, 2400)
    assert (task.name, task.length, task.features, len(task.symbols)) == ("librispeech-clean-100", 2400, 40, 29)
    with pytest.raises(ValueError, match="length=0"):
        speech_task(librispeech.NAME, 0)


@pytest.mark.parametrize("text", ["HELLO", "it's", " A  B "])
def test_a_text_is_spelled_in_capitals_with_single_spaces(text: str) -> None:
    assert "".join(librispeech.SYMBOLS[symbol] for symbol in spelled(text)) == " ".join(text.upper().split())
