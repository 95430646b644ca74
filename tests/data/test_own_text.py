"""A text of one's own becomes a corpus: every kind of file, split by document, refused in one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from transnormer_lib.data import own_text
from transnormer_lib.data.corpora import corpus_vocabulary_size, load_text_corpus
from transnormer_lib.data.faults import DataFault, DataUnavailable

DOCUMENTS = [f"Document {number}. " + "word " * (5 + number % 7) for number in range(60)]


def _text_file(folder: Path) -> Path:
    path = folder / "my text.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return path


def _folder(folder: Path) -> Path:
    for number, text in enumerate(DOCUMENTS):
        path = folder / "texts" / str(number % 3) / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "texts"


def _jsonl(folder: Path) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text, "title": "t"}) + "\n" for text in DOCUMENTS))
    return path


def _parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "rows.parquet"
    pq.write_table(pa.table({"body": DOCUMENTS, "number": list(range(len(DOCUMENTS)))}), path)
    return path


KINDS: dict[str, Callable[[Path], Path]] = {
    "text": _text_file, "folder": _folder, "jsonl": _jsonl, "parquet": _parquet,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_document_is_in_one_split_and_train_has_nine_tenths(kind: str, tmp_path: Path) -> None:
    splits = own_text.documents(str(KINDS[kind](tmp_path)))
    whole = [text.strip() for texts in splits.values() for text in texts]
    assert sorted(whole) == sorted(text.strip() for text in DOCUMENTS)
    sizes = {split: sum(map(len, texts)) for split, texts in splits.items()}
    assert 0.85 < sizes["train"] / sum(sizes.values()) < 0.95
    assert min(sizes.values()) > 0


def test_the_documents_of_a_text_keep_their_order_and_its_words(tmp_path: Path) -> None:
    path = _text_file(tmp_path)
    whole = "".join(text for texts in own_text.documents(str(path)).values() for text in texts)
    assert whole.split() == path.read_text().split()


def test_neither_the_place_nor_the_order_of_rows_changes_the_corpus(tmp_path: Path) -> None:
    one = _jsonl(tmp_path)
    other = tmp_path / "elsewhere.jsonl"
    other.write_text("".join(reversed(one.read_text().splitlines(keepends=True))))
    assert load_text_corpus(str(one)).fingerprint == load_text_corpus(str(other)).fingerprint
    other.write_text(other.read_text().replace("Document 7.", "Document seven."))
    load_text_corpus.cache_clear()
    assert load_text_corpus(str(one)).fingerprint != load_text_corpus(str(other)).fingerprint


def test_lines_are_the_documents_of_a_text_with_few_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(DOCUMENTS))
    assert sum(map(len, own_text.documents(str(path)).values())) == len(DOCUMENTS)


def test_byte_pairs_are_learned_on_it(tmp_path: Path) -> None:
    corpus = load_text_corpus(str(_folder(tmp_path)), "bpe-280")
    assert corpus.vocabulary.size == corpus_vocabulary_size("anything", "bpe-280")
    assert corpus.vocabulary.decode(corpus.tokens["test"]).startswith("Document")


def test_a_data_set_of_the_data_root_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "someone" / "essays"
    place.mkdir(parents=True)
    _parquet(place).rename(place / "train-00000-of-00001.parquet")
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    assert sum(map(len, own_text.documents("someone/essays").values())) == len(DOCUMENTS)


def test_a_data_set_that_cannot_be_had_is_missing_data(no_real_data: None, tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"^data set 'nobody/nothing': .+$"):
        own_text.documents("nobody/nothing")


def _written(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


MISTAKES: dict[str, tuple[Callable[[Path], str], type[Exception], str]] = {
    "no such file": (lambda folder: "novels.txt", ValueError, r"corpus=.novels.txt.: must be .+ does not exist$"),
    "one document": (lambda folder: _written(folder, "a.txt", b"one\n"), DataFault, "has 1 documents; train, valid"),
    "not UTF-8": (lambda folder: _written(folder, "a.txt", b"ab\xff"), DataFault, "must be UTF-8; byte 2 is not"),
    "an empty folder": (lambda folder: str(folder), DataFault, "has no .txt file"),
    "no column of text": (
        lambda folder: _written(folder, "a.jsonl", b'{"a": "x", "b": "y"}\n'), DataFault, "needs a column 'text'"
    ),
    "a broken table": (lambda folder: _written(folder, "a.parquet", b"PAR1"), DataFault, "expected a whole parquet"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_text_that_cannot_be_read_is_refused_in_one_line(mistake: str, tmp_path: Path) -> None:
    make, kind, line = MISTAKES[mistake]
    with pytest.raises(kind, match=line) as caught:
        own_text.documents(make(tmp_path))
    assert "\n" not in str(caught.value)


ROWS: dict[str, tuple[list[object], str]] = {
    "a list": ([{"text": ["x"]}], r"row 1: text=\['x'\]: must be text"),
    "a list beside a title": ([{"text": ["x"], "title": "t"}], r"row 1: text=\['x'\]: must be text"),
    "a number among texts": ([{"text": "x"}, {"text": 3}], r"row 2: text=3: must be text"),
    "no text": ([{"text": "x", "n": 1}, {"n": 2}], r"row 2: text=None: must be text"),
    "no text at first": ([{"n": 1}, {"text": "x", "n": 2}], r"row 1: text=None: must be text"),
    "null": ([{"text": "x"}, {"text": None}], r"row 2: text=None: must be text"),
    "a row that is none": ([{"text": "x"}, 3], r".+"),
    "half a character": ([{"text": "x"}, {"text": "\ud800"}], r".+"),
}


@pytest.mark.parametrize("place", ["a file", "the data root"])
@pytest.mark.parametrize("rows", ROWS)
def test_a_row_without_text_is_refused_with_its_place(
    rows: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    content, line = ROWS[rows]
    path = tmp_path / "o" / "n" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    named, name = (str(path), str(path)) if place == "a file" else ("data set 'o/n'", "o/n")
    with pytest.raises(DataFault, match=f"^{re.escape(named)}.*[:,] {line}$") as caught:
        own_text.documents(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_damaged_file_of_the_data_root_is_refused_in_one_line(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "o" / "n" / f"train.{suffix}"
    path.parent.mkdir(parents=True)
    path.write_text('{"text": "a"}\n{"text": "b"\n{"te')
    with pytest.raises(DataFault, match=r"^data set 'o/n': .*(JSON parse error|Parquet)") as caught:
        own_text.documents("o/n")
    assert "\n" not in str(caught.value)
