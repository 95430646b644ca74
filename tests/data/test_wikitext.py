"""WikiText-103 in words, byte pairs and bytes: tokens, counts, what is said about them, memory, interruption."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transnormer_lib.data import hub, token_files, wikitext
from transnormer_lib.data.batches import WindowBatches, evaluation_windows
from transnormer_lib.data.corpora import corpus_vocabulary_size, load_text_corpus
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import PUBLISHED_SIZES, train_bpe

LINES = ["", " = Robins = \n", "", " The robin @-@ bird sings to the <unk> robin . \n", " = = Song = = \n", " é 好 \n"]
SPLITS = {"train": LINES * 20, "validation": LINES[:4], "test": [" The owl sings . \n"]}
FILE = [line or " \n" for line in LINES]


def put(root: Path, name: str = wikitext.WORD_LEVEL, splits: dict[str, list[str]] | None = None) -> None:
    for split, lines in (splits or SPLITS).items():
        path = root / name / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": lines}), path)


def load(vocabulary: str) -> TextCorpus:
    return load_text_corpus.__wrapped__("wikitext-103", vocabulary)


@pytest.mark.parametrize("vocabulary", ["wikitext-103-words", "bytes", "bpe-280", "gpt2-bpe"])
def test_tokens_decode_to_the_lines_of_the_original_file(vocabulary: str, data_root: Path) -> None:
    put(data_root)
    corpus = load(vocabulary)
    assert corpus.vocabulary.decode(corpus.tokens["train"]) == "".join(FILE) * 20
    counts = corpus.counts["train"]
    assert counts.tokens == len(corpus.tokens["train"])
    assert counts.words == 20 * len("".join(FILE).split())
    assert counts.bytes == 20 * len("".join(FILE).encode())
    assert counts.documents == 20
    assert corpus.tokens["train"].dtype == np.int32


def test_each_line_ends_with_its_token_as_in_the_published_counts(data_root: Path) -> None:
    put(data_root)
    corpus = load("wikitext-103-words")
    for split, lines in SPLITS.items():
        assert len(corpus.tokens[split]) == sum(len(line.split()) + 1 for line in lines)


def test_words_come_from_train_alone_and_others_are_unknown(data_root: Path) -> None:
    put(data_root)
    corpus = load("wikitext-103-words")
    assert corpus.vocabulary.decode(corpus.tokens["test"]) == " The <unk> sings . \n"


@pytest.mark.parametrize("vocabulary", ["wikitext-103-words", "bytes", "gpt2-bpe", "bpe-280"])
def test_the_size_is_known_without_tokenising(vocabulary: str, data_root: Path) -> None:
    put(data_root)
    size = corpus_vocabulary_size("wikitext-103", vocabulary)
    assert not (data_root.parent / "cache" / "tokens").exists()
    assert size == load(vocabulary).vocabulary.size
    if vocabulary in PUBLISHED_SIZES:
        assert corpus_vocabulary_size("wikitext-103", vocabulary, published=True) == PUBLISHED_SIZES[vocabulary]


def test_tokens_are_made_once_and_mapped_read_only(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data_root)
    first = load("wikitext-103-words")
    monkeypatch.setattr(token_files, "_write", lambda *_: pytest.fail("made again"))
    monkeypatch.setattr(wikitext, "_count", lambda *_: pytest.fail("counted again"))
    again = load("wikitext-103-words")
    assert (again.fingerprint, again.counts) == (first.fingerprint, first.counts)
    for split in SPLITS:
        assert np.array_equal(again.tokens[split], first.tokens[split])
        with pytest.raises(ValueError, match="read-only"):
            again.tokens[split][0] = 1


def test_batches_come_from_mapped_tokens_as_from_any(data_root: Path) -> None:
    put(data_root)
    tokens = load("bytes").tokens["train"]
    held = np.array(tokens)
    for of in (tokens, held):
        assert isinstance(of, np.ndarray)
    samplers = [WindowBatches(of, 16, 4, seed=1) for of in (tokens, held)]
    assert all((samplers[0].batch(9)[key] == samplers[1].batch(9)[key]).all() for key in ("input_ids", "targets"))
    windows = [list(evaluation_windows(of, length=16, batch_size=4)) for of in (tokens, held)]
    assert len(windows[0]) == len(windows[1])


def test_the_fingerprint_follows_the_text_and_the_vocabulary(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(data_root)
    seen = {load(vocabulary).fingerprint for vocabulary in ("wikitext-103-words", "bytes", "bpe-280")}
    assert len(seen) == 3
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cold"))
    assert load("bytes").fingerprint in seen
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "other"))
    put(data_root, splits={**SPLITS, "validation": [" Another line . \n"]})
    assert load("bytes").fingerprint not in seen


def test_what_differs_from_the_published_data_is_said(data_root: Path) -> None:
    put(data_root)
    corpus = load("gpt2-bpe")
    assert corpus.name == "wikitext-103 (word-level text, own byte pairs, sample)"
    notes = " | ".join(corpus.notes)
    assert "the data root has no raw text" in notes
    assert "GPT-2's files are not on this machine" in notes
    assert "train 120 of 1,801,350" in notes
    put(data_root, wikitext.RAW)
    assert load("bytes").name == "wikitext-103 (sample)"


def test_the_whole_text_has_nothing_to_say_about_itself(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data_root)
    described = hub.DATASETS[wikitext.WORD_LEVEL]
    splits = {name: replace(split, rows=len(SPLITS[name])) for name, split in described.splits.items()}
    monkeypatch.setitem(hub.DATASETS, wikitext.WORD_LEVEL, replace(described, splits=splits))
    corpus = load("wikitext-103-words")
    assert (corpus.name, corpus.notes) == ("wikitext-103", ())


def test_published_byte_pairs_are_taken_from_the_data_root_and_held_against_their_digest(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(data_root)
    model = json.loads(train_bpe(FILE * 5, 270).definition)["model"]
    folder = data_root / hub.GPT2.repository
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    with pytest.raises(DataFault, match=r"vocab\.json: has sha256 .*\(published\)"):
        load("gpt2-bpe")
    ours = replace(
        hub.GPT2,
        vocabulary=replace(hub.GPT2.vocabulary, sha256=None),
        merges=replace(hub.GPT2.merges, sha256=None),
    )
    monkeypatch.setattr(hub, "GPT2", ours)
    corpus = load("gpt2-bpe")
    assert "own byte pairs" not in corpus.name
    assert corpus.vocabulary.text_size == 270
    assert corpus.vocabulary.size == PUBLISHED_SIZES["gpt2-bpe"]
    assert corpus.vocabulary.decode(corpus.tokens["train"]) == "".join(FILE) * 20


def test_words_need_the_word_level_text(data_root: Path) -> None:
    put(data_root, wikitext.RAW)
    with pytest.raises(DataUnavailable, match=r"wikitext-103-v1/train.* is not on this machine"):
        load("wikitext-103-words")


def test_a_missing_split_and_an_unknown_vocabulary_are_named(data_root: Path) -> None:
    put(data_root, splits={"train": LINES})
    with pytest.raises(DataUnavailable, match="split 'validation' is absent from the data root"):
        load("bytes")
    with pytest.raises(ValueError, match="vocabulary='gpt2': must be"):
        load("gpt2")


def numbered(count: int) -> Iterator[pa.Array]:
    for number in range(count):
        yield pa.array([f" {number} {line} \n" for line in range(number % 7 + 1)], pa.large_string())


def as_bytes(lines: pa.Array) -> np.ndarray:
    return np.frombuffer("".join(lines.to_pylist()).encode(), np.uint8).astype(np.int32)


def test_threads_do_not_change_the_order(data_root: Path) -> None:
    pauses = random.Random(0)

    def slow(item: int) -> int:
        for _ in range(pauses.randrange(2000)):
            pass
        return item

    assert list(token_files.in_order(slow, range(200), threads=7)) == list(range(200))
    tokens, tally = token_files.token_file("numbers", "1", lambda: numbered(50), as_bytes)
    assert tokens.astype(np.uint8).tobytes().decode() == "".join(
        text for part in numbered(50) for text in part.to_pylist()
    )
    assert tally.lines == sum(len(part) for part in numbered(50))


def test_an_error_in_a_thread_is_raised_and_leaves_nothing_behind(data_root: Path) -> None:
    def fail(lines: pa.Array) -> np.ndarray:
        if " 30 0 " in lines[0].as_py():
            raise KeyboardInterrupt
        return as_bytes(lines)

    with pytest.raises(KeyboardInterrupt):
        token_files.token_file("numbers", "1", lambda: numbered(50), fail)
    left = {path.name for path in (data_root.parent / "cache" / "tokens").iterdir()}
    assert left <= {"numbers-1.int32.lock"}


def test_a_killed_process_costs_only_its_time(data_root: Path) -> None:
    script = (
        "import os, numpy as np\n"
        "from test_wikitext import as_bytes, numbered\n"
        "from transnormer_lib.data import token_files\n"
        "def die(lines):\n"
        "    if ' 30 0 ' in lines[0].as_py(): os._exit(9)\n"
        "    return as_bytes(lines)\n"
        "token_files.token_file('numbers', '1', lambda: numbered(50), die)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert done.returncode == 9
    folder = data_root.parent / "cache" / "tokens"
    assert any(path.name.startswith(".numbers-1") for path in folder.iterdir())
    tokens, _ = token_files.token_file("numbers", "1", lambda: numbered(50), as_bytes)
    assert len(tokens) == sum(len(as_bytes(part)) for part in numbered(50))
    assert not any(path.name.startswith(".numbers-1") for path in folder.iterdir())


def test_a_token_file_cut_short_is_made_again(data_root: Path) -> None:
    tokens, _ = token_files.token_file("numbers", "1", lambda: numbered(5), as_bytes)
    path = data_root.parent / "cache" / "tokens" / "numbers-1.int32"
    os.truncate(path, path.stat().st_size // 2 // 4 * 4)
    again, _ = token_files.token_file("numbers", "1", lambda: numbered(5), as_bytes)
    assert len(again) == len(tokens) == path.stat().st_size // 4


def test_whoever_asks_for_the_same_tokens_at_once_waits_for_them(data_root: Path) -> None:
    asked = []

    def batches() -> Iterator[pa.Array]:
        asked.append(1)
        return numbered(200)

    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(token_files.token_file, "numbers", "1", batches, as_bytes) for _ in range(3)]
        sizes = {len(future.result()[0]) for future in done}
    assert (len(asked), len(sizes)) == (1, 1)


def test_a_text_without_lines_is_refused(data_root: Path) -> None:
    with pytest.raises(DataFault, match="has no text"):
        token_files.token_file("nothing", "1", lambda: iter([]), as_bytes)


def peak_kilobytes(root: Path, cache: Path, megabytes: int) -> int:
    """The highest memory of a process that tokenises so much text to words."""
    words = [f"word{n}" for n in range(5000)]
    lines = [" " + " ".join(words[(7 * n) % 4900 : (7 * n) % 4900 + 60]) + " \n" for n in range(2048)]
    piece = pa.table({"text": lines})
    for split, pieces in (("train", megabytes), ("validation", 1), ("test", 1)):
        path = root / wikitext.WORD_LEVEL / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, piece.schema) as writer:
            for _ in range(pieces):
                writer.write_table(piece)
    script = (
        "import resource; from transnormer_lib.data.corpora import load_text_corpus\n"
        "load_text_corpus('wikitext-103', 'wikitext-103-words')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    environment = os.environ | {
        "TRANSNORMER_DATA_ROOT": str(root),
        "TRANSNORMER_CACHE": str(cache),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    small, large = (peak_kilobytes(tmp_path / f"{size}", tmp_path / f"cache{size}", size) for size in (12, 36))
    # 24 MB more text, 12 MB more tokens; Arrow's own pools vary by a few megabytes.
    assert large - small < 12_000, f"{small} kB for 12 MB of text, {large} kB for 36 MB"


def test_the_real_sample_has_the_published_number_of_tokens(real_root: Path, tmp_path: Path) -> None:
    if not (real_root / wikitext.WORD_LEVEL).is_dir():
        pytest.skip("the data root has no wikitext-103-v1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
        corpus = load("wikitext-103-words")
        assert corpus.vocabulary.size == corpus_vocabulary_size("wikitext-103", "wikitext-103-words")
    if "sample" in corpus.name:  # its train split is the published validation split
        assert (corpus.counts["train"].tokens, corpus.counts["train"].documents) == (217_646, 60)
    else:
        assert corpus.counts["train"].tokens == 103_227_021
        assert corpus.vocabulary.size == PUBLISHED_SIZES["wikitext-103-words"]
